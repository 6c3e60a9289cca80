"""The set-up's proposals, verdicts and arithmetic: pure functions of what was typed and what the box told."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.cli import build_parser
from eagle3_console.commands.context import make_plan
from eagle3_console.errors import UsageError
from eagle3_console.judge import FAIL, OK, WARN
from eagle3_console.plan import Plan
from eagle3_console.profiles import hosts, write
from eagle3_console.profiles.profile import parse
from eagle3_console.setup import arithmetic
from eagle3_console.setup.assess import (
    Assessment,
    assess,
    at_fault,
    next_step,
    profile_name,
    sizes,
)
from eagle3_console.setup.draft import FIELDS, Draft, Seen, from_plan, value_of
from eagle3_console.trainers import TRAINERS, unable
from eagle3_remote.extract import space
from eagle3_remote.protocol import (
    DataLook,
    DatasetLook,
    Disk,
    Facts,
    Gauges,
    Gpu,
    Looked,
    ModelFact,
    ModelLook,
    OutLook,
    PortFact,
    PythonFact,
    SmokeRate,
)

GIB = 1 << 30
PYTHON = "/venv/bin/python"
GPUS = tuple(Gpu(number, "NVIDIA H200", 0, 141 * GIB) for number in range(8))


def facts(gpus: tuple[Gpu, ...] = GPUS, shm_free: int = 504 * 10**9, *pythons: PythonFact) -> Facts:
    gauges = Gauges("gpu-box", 128, 1.0, 2 * 10**12, 10**12, (), gpus)
    found = pythons or (PythonFact(PYTHON, "VIRTUAL_ENV", "3.11.7", "0.5.9"),)
    return Facts(
        "gpu-box", "root", "Linux", "x86_64", "3.11", 0.0, "b", found, ("PATH",), gauges, 504 * 10**9, shm_free
    )


BOX = Looked(
    port=PortFact(30000, True),
    asked=PortFact(30000, True),
    disks=(Disk("/data", "xfs", 17 * 10**11, 44 * 10**11),),
    driver="570.124.06",
)
MODEL = ModelLook(
    ModelFact(
        "/m/Kimi-K2.5", True, "KimiK25ForConditionalGeneration", 61, 7168, 163840, 262144, "bfloat16", 64, 595 * 10**9
    ),
    heads=64,
    kv_heads=64,
    quantisation="compressed-tensors",
    shards=64,
    boundaries=(2, 30, 58),
    fingerprint="f" * 64,
)
DATA = DataLook(
    "/data/t.jsonl", "jsonl", 1, 10**8, "line", 10_000, 17_300_000, False, 392, 0, "", 4000, 0, 163_585, "line 7", 0,
    (1000, 2000, 2190, 4000),
)  # fmt: skip
OUT = OutLook("/data/hidden", False, False, "/data", True, True, "xfs", 17 * 10**11, 44 * 10**11, 9_000_000)
SEEN = Seen(facts(), BOX, MODEL, DATA, OUT)
DRAFT = Draft({"model": "/m/Kimi-K2.5", "data": "/data/t.jsonl", "out": "/data/hidden"})


def made(draft: Draft = DRAFT, **seen: object) -> Assessment:
    return assess(draft, dataclasses.replace(SEEN, **seen))


def said(one: Assessment, level: str) -> str:
    found = [*one.box, *(finding for some in one.fields.values() for finding in some), *one.forecast]
    return "\n".join(f"{each.what}: {each.sentence} {each.cure}" for each in found if each.level == level)


def test_a_box_as_the_hand_made_run_had_it() -> None:
    one = made()
    assert one.ready, (one.failures, one.missing)
    plan = one.plan
    assert (plan.model, plan.data, plan.out, plan.python) == ("/m/Kimi-K2.5", "/data/t.jsonl", "/data/hidden", PYTHON)
    assert (plan.boundaries, plan.final, plan.tp, plan.port) == ((2, 30, 58), "pre", 8, 30000)
    assert (plan.max_seq_len, plan.samples, plan.tokens_in_flight, plan.dump_dir) == (0, 0, 0, "")
    assert plan.server_args[:2] == ("--attention-backend", "triton")
    text = said(one, OK)
    for part in (
        "8 × NVIDIA H200, 141 GiB each, driver 570.124.06, all free.",
        "SGLang 0.5.9, Python 3.11.7",
        "/data 1.70 TB free",
        "about 17,300,000 tokens of 10,000 samples",
        "57344 bytes a token".replace("57344", "57,344"),
        "GB = 925 GiB = 0.99 TB",
        "it fits (1.71 times)",
        "ids 0 to 163,585, all of them in the vocabulary of 163,840",
    ):
        assert part in text, (part, text)


def test_every_proposal_has_a_reason() -> None:
    proposals = made().proposals
    assert proposals.keys() == {
        "python", "boundaries", "final", "max_seq_len", "samples", "tp", "tokens_in_flight", "dump_dir", "port", "server_args",
    }  # fmt: skip
    assert all(len(one.reason) > 8 for one in proposals.values()), proposals


def test_what_is_typed_wins_and_an_emptied_field_is_the_proposal_again() -> None:
    typed = DRAFT.typed("tp", "4").typed("boundaries", "59, 3,31").typed("max_seq_len", "2,000")
    one = made(typed)
    assert (one.plan.tp, one.plan.boundaries, one.plan.max_seq_len) == (4, (3, 31, 59), 2000)
    assert made(typed.typed("tp", " ")).plan.tp == 8


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("boundaries", "2,x", "whole numbers"),
        ("boundaries", "3,3", "names boundary 3 more than once"),
        ("boundaries", "9,3,7,3,9", "names boundaries 3 and 9 more than once"),
        ("final", "middle", "pre or post"),
        ("tp", "0", "from 1 to 1024"),
        ("port", "70000", "from 1 to 65535"),
        ("samples", "many", "from 1 on"),
        ("server_args", "triton", "begin with --"),
        ("server_args", "--x 'y", "as in a shell"),
    ],
)
def test_what_means_nothing_is_said_at_its_field(name: str, text: str, words: str) -> None:
    one = made(DRAFT.typed(name, text))
    assert words in one.fields[name][0].sentence
    assert not one.ready


def test_words_for_the_defaults() -> None:
    assert [
        value_of(name, text) for name, text in (("samples", "all"), ("max_seq_len", "never"), ("dump_dir", "auto"))
    ] == [0, 0, ""]


@pytest.mark.parametrize(
    ("weights", "heads", "kv", "tp"),
    [
        (16 * 10**9, 32, 8, 1),
        (140 * 10**9, 64, 8, 2),  # it would fit into one, and leave no room
        (300 * 10**9, 40, 8, 4),
        (600 * 10**9, 64, 64, 8),
        (300 * 10**9, 12, 4, 4),  # not 3: four key-value heads cannot be shared by it
        (250 * 10**9, 14, 2, 2),  # 7 is not possible, and 2 is the most there is
        (140 * 10**9, 0, 0, 2),
    ],
)
def test_tensor_parallel_size(weights: int, heads: int, kv: int, tp: int) -> None:
    fact = dataclasses.replace(MODEL.fact, weight_bytes=weights)
    model = dataclasses.replace(MODEL, fact=fact, heads=heads, kv_heads=kv)
    assert made(model=model).proposals["tp"].text == str(tp)


def test_a_model_that_is_too_large() -> None:
    model = dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, weight_bytes=2 * 10**12))
    one = made(model=model)
    assert "leave little" in said(one, FAIL)
    assert "heads cannot be shared by 3" in said(made(DRAFT.typed("tp", "3")), FAIL)
    assert "16 GPUs are asked and 8 are there" in said(made(DRAFT.typed("tp", "16")), FAIL)


def test_without_a_gpu_the_server_runs_on_the_cpu() -> None:
    one = made(facts=facts(()))
    assert one.ready
    assert (one.plan.server_args, one.plan.tp) == (("--device", "cpu"), 1)
    assert "which is slow" in said(one, WARN)


CPU_ONLY = facts(())


@pytest.mark.parametrize(
    ("name", "typed", "seen", "level", "words"),
    [
        ("tp", "16", {}, FAIL, "16 GPUs are asked and 8 are there"),
        ("tp", "4", {"facts": CPU_ONLY}, WARN, "no GPU is seen: 4 processes share the CPU"),
        ("tp", "1", {"facts": CPU_ONLY}, OK, ""),
        ("tokens_in_flight", "999999999999", {}, FAIL, "more than 1,048,576"),
        ("tokens_in_flight", "1048577", {"model": None}, FAIL, "SGLang's own is 16,384 at most"),
        ("tokens_in_flight", "1048576", {}, OK, ""),
        ("tokens_in_flight", "100000", {"facts": facts(GPUS, 4 * 10**9)}, FAIL, "At most 69,754 fit"),
        ("tokens_in_flight", "69754", {"facts": facts(GPUS, 4 * 10**9)}, WARN, "more than half"),
        ("tokens_in_flight", "34000", {"facts": facts(GPUS, 4 * 10**9)}, OK, ""),
        ("max_seq_len", "999999999", {}, WARN, "the model takes 262,144 tokens"),
        ("max_seq_len", "262139", {}, WARN, "longer ones than the model takes are refused"),
        ("max_seq_len", "262138", {}, OK, ""),
        ("samples", "99999999", {}, WARN, "the data has about 10,000"),
        ("samples", "10001", {"data": dataclasses.replace(DATA, exact=True)}, WARN, "the data has 10,000: "),
        ("samples", "10000", {}, OK, ""),
    ],
)
def test_a_number_that_cannot_be_is_refused_and_a_harmless_one_is_warned_of(
    name: str, typed: str, seen: dict[str, object], level: str, words: str
) -> None:
    one = made(DRAFT.typed(name, typed), **seen)
    found = [(each.level, f"{each.sentence} {each.cure}") for each in one.fields.get(name, ())]
    if level == OK:
        assert not found
        return
    assert [each for each in found if each[0] == level and words in each[1]], found
    assert (at_fault(one) == name) is (level == FAIL)


def test_dumps_on_a_disk_are_not_bound_by_what_dev_shm_holds() -> None:
    draft = DRAFT.typed("tokens_in_flight", "100000")
    small = facts(GPUS, 4 * 10**9)
    assert not made(draft, facts=small).ready
    assert made(draft.typed("dump_dir", "/fast/d"), facts=small).ready


def test_of_several_pythons_the_newest_sglang_that_lacks_nothing() -> None:
    old, new = PythonFact("/a/python", "conda", "3.11.1", "0.5.9"), PythonFact("/b/python", "/b", "3.12.0", "0.5.23")
    half = PythonFact("/c/python", "/c", "3.12.0", "0.5.24", ("torch",))
    one = made(facts=facts(GPUS, 504 * 10**9, old, new, half))
    assert one.plan.python == "/b/python"
    assert "/a/python (SGLang 0.5.9)" in one.proposals["python"].reason
    lacks = made(DRAFT.typed("python", "/c/python"), facts=facts(GPUS, 504 * 10**9, old, new, half))
    assert "/c/python -m pip install torch" in said(lacks, FAIL)
    none = made(facts=facts(GPUS, 504 * 10**9, PythonFact("/p", "--python", "3.11.1")))
    assert "none with SGLang was found" in said(none, FAIL)


@pytest.mark.parametrize(
    ("shm", "dumps", "flight"),
    [(504 * 10**9, "auto", "auto"), (4 * 10**9, "auto", "34816"), (64 << 20, "/data/eagle3-dumps", "auto")],
)
def test_budgets_follow_what_dev_shm_holds(shm: int, dumps: str, flight: str) -> None:
    proposals = made(facts=facts(GPUS, shm)).proposals
    assert (proposals["dump_dir"].text, proposals["tokens_in_flight"].text) == (dumps, flight)


def test_a_sample_that_dev_shm_cannot_hold_is_refused_unless_it_goes_elsewhere() -> None:
    small = facts(GPUS, 100 << 20)
    assert "the longest sample takes" in said(made(DRAFT.typed("dump_dir", "auto").typed("tp", "8"), facts=small), FAIL)
    assert made(facts=small).ready


def test_longer_than_the_context_is_cut() -> None:
    model = dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, context_len=2048))
    one = made(model=model)
    assert one.plan.max_seq_len == 2042
    left = (1000 + 2000 + 2042 + 2042) / 9190
    assert abs(_amount(one).tokens - 17_300_000 * left) < 10


def _amount(one: Assessment) -> arithmetic.Amount:
    found = arithmetic.amount(SEEN, DRAFT, one.plan.max_seq_len, one.plan.samples)
    assert found is not None
    return found


@pytest.mark.parametrize("tokens", [17_300_000, 1234])
def test_the_arithmetic_is_the_extraction_s_own(tokens: int) -> None:
    data = dataclasses.replace(DATA, tokens=tokens)
    mine = arithmetic.amount(dataclasses.replace(SEEN, data=data), DRAFT, 0, 0)
    assert mine is not None
    shape = space.Shape(4, 7168, 2)
    assert mine.token_bytes + 8 == shape.token_bytes
    assert mine.bytes == shape.dataset_bytes(tokens, data.samples) + space.JOURNAL_FIXED


@pytest.mark.parametrize(("times", "level"), [(0.99, FAIL), (1.0, WARN), (1.19, WARN), (1.21, OK)])
def test_the_disk_s_verdict(times: float, level: str) -> None:
    need = _amount(made()).bytes
    one = made(out=dataclasses.replace(OUT, free=int(need * times) + 1))
    (disk,) = [finding for finding in one.forecast if finding.what == "disk"]
    assert (disk.level, one.ready) == (level, level != FAIL), disk


def test_the_forecast_follows_samples_boundaries_and_dtype() -> None:
    few = made(DRAFT.typed("samples", "100"))
    assert "about 173,000 tokens of 100 samples" in said(few, OK)
    assert "100,352 bytes a token" in said(made(DRAFT.typed("boundaries", "1,2,3,4,5,6")), OK)
    wide = DRAFT.typed("server_args", "--dtype float32")
    assert "114,688 bytes a token" in said(made(wide), OK)
    float32 = dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, dtype="float32"))
    assert "57,344 bytes a token" in said(made(model=float32), OK)


def test_time_as_it_was_measured_here() -> None:
    assert "'eagle3-console extract plan HOST' on this machine measures it" in said(made(), OK)
    named = assess(DRAFT, SEEN, host="root@h -x")
    assert "'eagle3-console extract plan 'root@h -x'' on this machine" in said(named, OK)
    smoke = SmokeRate(32, 10_000.0)
    assert "about 28 m 50 s at 10,000 tokens/s, by the 32 samples" in said(made(smoke=smoke), OK)
    assert "as 'server bench' measured" not in said(made(prefill_tps=20_000.0, smoke=smoke), OK), "the whole way counts"
    assert "about 14 m 25 s at 20,000 tokens/s" in said(made(prefill_tps=20_000.0), OK)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exists": False, "error": "there is no such directory"}, "there is no folder /m/Kimi-K2.5"),
        ({"error": "config.json is missing"}, "no config.json in this folder"),
        ({"num_layers": 0}, "names no layers"),
    ],
)
def test_models_that_are_none(change: dict[str, object], words: str) -> None:
    assert words in said(made(model=dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, **change))), FAIL)


def test_weights_that_are_not_whole() -> None:
    one = made(model=dataclasses.replace(MODEL, missing=("a", "b", "c"), missing_count=7))
    assert "7 of 64 files are missing or cut off: a, b … Finish the download." in said(one, FAIL).replace("…. ", "… ")


@pytest.mark.parametrize(
    ("text", "beyond"), [("2,30,99", "boundary 99 is"), ("99,2,62,70", "boundaries 62, 70 and 99 are")]
)
def test_every_boundary_that_the_model_has_not_is_named(text: str, beyond: str) -> None:
    assert f"layers: {beyond} asked and there are 61 layers." in said(made(DRAFT.typed("boundaries", text)), FAIL)


@pytest.mark.parametrize("text", ["59,3,31", "31, 59 3", "3,59,31"])
def test_another_order_than_the_typed_one_is_said(text: str) -> None:
    one = made(DRAFT.typed("boundaries", text))
    assert one.ready
    assert "in ascending order, as 3,31,59" in said(one, OK)
    assert "order" not in {found.what for found in made(DRAFT.typed("boundaries", "3, 31,59")).fields["boundaries"]}


@pytest.mark.parametrize("text", ["2,30,58", "30,58", "1,2,3,4", "0,30,58", "0,58", "61"])
def test_the_field_and_the_report_agree_on_who_can_use_the_boundaries(text: str) -> None:
    """Each trainer that the report leaves out is named at the field with the same reason, and no other one is."""
    one = made(DRAFT.typed("boundaries", text))
    assert one.ready, "others can use them"
    warned = [found for found in one.fields["boundaries"] if found.level == WARN]
    for trainer in TRAINERS:
        name, why = trainer.name.partition(";")[0], unable(trainer, one.plan.boundaries, "pre")
        naming = [found.sentence for found in warned if name in found.sentence]
        assert len(naming) == bool(why), (trainer, naming)
        assert all(why in sentence for sentence in naming)
    assert all(found.cure for found in warned[-1:])


def test_few_layers_need_boundaries_by_hand() -> None:
    few = dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, num_layers=4), boundaries=())
    assert "4 layers are too few" in said(made(model=few), FAIL)
    assert made(DRAFT.typed("boundaries", "1,2,3"), model=few).ready
    assert "boundary 9 is asked and there are 4 layers" in said(
        made(DRAFT.typed("boundaries", "1,2,9"), model=few), FAIL
    )


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"error": "it is empty"}, FAIL, "it is empty"),
        ({"samples": 0, "bad": 5, "first_bad": "line 1: not JSON"}, FAIL, "line 1: not JSON"),
        ({"highest_id": 163_840}, WARN, "the model's vocabulary ends at 163,839 (first above at line 7)"),
        (
            {"bad": 3, "first_bad": "line 9: input_ids is empty"},
            WARN,
            "3 of 392 looked at cannot be used, the first line 9",
        ),
        ({"without_mask": 4}, OK, "have no loss_mask"),
    ],
)
def test_data(change: dict[str, object], level: str, words: str) -> None:
    assert words in said(made(data=dataclasses.replace(DATA, **change)), level)


BEGUN = DatasetLook("/m/Kimi-K2.5", True, "/data/t.jsonl", (2, 30, 58), "pre", 0, 4000, 10_000, False, False)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"parent_exists": False}, FAIL, "there is no folder /data to make it in"),
        ({"exists": True}, FAIL, "a file of this name is there"),
        ({"writable": False}, FAIL, "may not write there"),
        ({"foreign": "x.arrow", "is_dir": True}, FAIL, "x.arrow lies there, which no extraction of ours wrote"),
        ({"error": "/data did not answer in 10 s: a slow or dead file system"}, FAIL, "did not answer in 10 s"),
        ({"filesystem": "nfs4"}, WARN, "over the network"),
        ({"is_dir": True, "exists": True, "names": ("a", "b")}, WARN, "other things lie there: a, b"),
        ({"inodes": 10}, FAIL, "10 files more fit on it"),
        ({"dataset": BEGUN}, OK, "4,000 samples are stored and all are asked: it goes on with the rest"),
        ({"dataset": dataclasses.replace(BEGUN, same_model=False, model="/m/other")}, FAIL, "another model (/m/other)"),
        ({"dataset": dataclasses.replace(BEGUN, stored=10_000, complete=True)}, WARN, "nothing is left to extract"),
        ({"dataset": dataclasses.replace(BEGUN, writing=True)}, WARN, "is writing a dataset there now"),
        ({"dataset": dataclasses.replace(BEGUN, stored=0, same_model=False)}, OK, "it begins anew"),
    ],
)
def test_outputs(change: dict[str, object], level: str, words: str) -> None:
    change = {"exists": True, "is_dir": True, **change} if "dataset" in change else change
    assert words in said(made(out=dataclasses.replace(OUT, **change)), level)


READ = {"input": "d" * 32, "lines": 2010, "samples": 2000, "tokens": 600_000}
"""The input was read to its end: 10 of its lines were refused."""


@pytest.mark.parametrize(
    ("dataset", "samples", "left", "words"),
    [
        ({"stored": 1176, "settled": 1176}, "", 824, "1,176 samples are stored and all 2,000 are asked: it goes on"),
        ({"stored": 1176, "settled": 1176}, "500", 0, "the first 500 are asked: nothing is left"),
        ({"stored": 1176, "settled": 1176, "complete": True}, "", 824, "all 2,000 are asked: it goes on with the rest"),
        ({"stored": 1176, "settled": 1176}, "1176", 0, "nothing is left to extract"),
        ({"stored": 1176, "settled": 1176}, "1500", 324, "the first 1,500 are asked: it goes on with the rest"),
        ({"stored": 2000, "settled": 2010, "complete": True}, "", 0, "all 2,000 are asked: nothing is left to extract"),
        ({"stored": 2000, "settled": 2010}, "99999999", 0, "all 2,000 are asked: nothing is left to extract"),
        ({"stored": 1999, "settled": 700}, "", 1, "it goes on with the rest"),  # one failed, and is tried again
        (
            {"stored": 499, "settled": 500, "lines": 0, "samples": 0},
            "500",
            0,
            "the first 500 are asked: nothing is left",
        ),
        (
            {"stored": 499, "settled": 500, "lines": 0, "samples": 0},
            "",
            None,
            "all are asked: it goes on with the rest",
        ),
        (
            {"stored": 2000, "settled": 0, "lines": 0, "samples": 0, "complete": True, "total": 2000},
            "",
            None,
            "nothing",
        ),
        (
            {"stored": 500, "settled": 0, "lines": 0, "samples": 0, "complete": True, "total": 2000},
            "",
            None,
            "the rest",
        ),
    ],
)
def test_the_output_and_the_forecast_agree_on_what_is_left(
    dataset: dict[str, Any], samples: str, left: int | None, words: str
) -> None:
    begun = dataclasses.replace(BEGUN, **{**READ, **dataset})
    one = made(
        DRAFT.typed("samples", samples), out=dataclasses.replace(OUT, exists=True, is_dir=True, dataset=begun),
        data=dataclasses.replace(DATA, samples=2138, tokens=641_000, identity="d" * 32),
    )  # fmt: skip
    (told,) = [found.sentence + found.cure for found in one.fields["out"] if found.what == "dataset"]
    assert words in told
    forecast = "\n".join(found.sentence for found in one.forecast)
    assert ("all of it is stored" in forecast) is ("nothing is left" in told)
    if left is not None:
        assert f"{left:,} files" in forecast, forecast
    if begun.samples:
        assert "2,138" not in said(one, OK), "the dataset's own count of the same data wins"
        assert not forecast.startswith("about")


@pytest.mark.parametrize("identity", ["", "e" * 32])
def test_the_count_of_other_data_is_not_taken_and_its_dataset_not_continued(identity: str) -> None:
    begun = dataclasses.replace(BEGUN, final="post", **READ)  # type: ignore[arg-type]
    out = dataclasses.replace(OUT, exists=True, is_dir=True, dataset=begun)
    one = made(out=out, data=dataclasses.replace(DATA, identity=identity))
    assert "about 17,300,000 tokens of 10,000 samples" in said(one, OK)
    assert ("a dataset of other data is there (/data/t.jsonl)" in said(one, FAIL)) is bool(identity)
    assert one.plan.final == ("pre" if identity else "post")
    assert at_fault(one) == ("out" if identity else "")


def test_a_dataset_that_is_continued_gives_its_own_settings_and_takes_less_room() -> None:
    begun = dataclasses.replace(BEGUN, boundaries=(3, 31, 59), final="post", max_seq_len=4096)
    out = dataclasses.replace(OUT, exists=True, is_dir=True, dataset=begun)
    one = made(out=out)
    assert one.ready, one.failures
    assert (one.plan.boundaries, one.plan.final, one.plan.max_seq_len) == ((3, 31, 59), "post", 4096)
    assert "about 6,000 files" in said(one, OK)
    other = made(DRAFT.typed("boundaries", "2,30,58"), out=out)
    assert "begun with 3,31,59, not 2,30,58" in said(other, FAIL)
    assert "begun there with other settings" in said(other, WARN)
    unknown = made(out=dataclasses.replace(out, dataset=dataclasses.replace(begun, data="")), data=None)
    assert not unknown.failures, "how long its samples may be is not known before the data are looked at"


def test_a_port_that_is_taken() -> None:
    nothing_free = PortFact(30000, False, "pid 7 (user x, y)")
    one = made(box=Looked(port=nothing_free, asked=nothing_free))
    assert "30000 is taken by pid 7" in said(one, FAIL)
    theirs = PortFact(30000, False, "pid 7 (user x, y)")
    box = Looked(port=PortFact(30002, True), asked=theirs)
    one = made(box=box)
    assert (one.plan.port, one.ready) == (30002, True)
    assert one.proposals["port"].reason == "it is free; 30000 is taken by pid 7 (user x, y)"
    typed = made(DRAFT.typed("port", "30000"), box=box)
    assert "30000 is taken by pid 7 (user x, y)." in said(typed, FAIL)
    assert (at_fault(typed), typed.ready) == ("port", False)


def test_a_port_that_our_own_server_holds_is_right() -> None:
    ours = PortFact(30000, False, "pid 7 (user x, y)", "server-20261129T000000-abcd")
    for draft in (DRAFT, DRAFT.typed("port", "30000")):
        one = made(draft, box=Looked(port=PortFact(30001, True), asked=ours))
        assert (one.plan.port, one.ready) == (30000, True)
        assert one.proposals["port"].reason.startswith("the running server's")
        assert "30000 is held by our own server" in said(one, OK)


@pytest.mark.parametrize(
    ("typed", "label"),
    [({"port": "30007"}, "Port"), ({"python": "/new/python"}, "Python"), ({"python": "~/p"}, "Python")],
)
def test_what_was_typed_and_not_looked_at_yet_does_not_start(typed: dict[str, str], label: str) -> None:
    one = made(Draft({**DRAFT.texts, **typed}))
    assert not one.ready
    assert next_step(one) == f"One moment: {label} is still being looked at."


def test_a_python_below_the_home_is_the_one_that_was_looked_at() -> None:
    found = PythonFact("/root/venv/bin/python", "--python", "3.11.7", "0.5.9")
    one = made(DRAFT.typed("python", "~/venv/bin/python"), facts=facts(GPUS, 504 * 10**9, found))
    assert (one.plan.python, one.ready) == (found.path, True)


def test_the_next_step_leads_from_the_first_field_to_the_start() -> None:
    steps = []
    draft, seen = Draft(), Seen()
    for name, look in (
        ("", {"facts": SEEN.facts, "box": BOX}),
        ("model", {"model": MODEL}),
        ("data", {"data": DATA}),
        ("out", {"out": OUT}),
    ):
        draft = draft.typed(name, DRAFT.texts[name]) if name else draft
        seen = dataclasses.replace(seen, **look)
        steps.append(next_step(assess(draft, seen)))
    for step, words in zip(
        steps, ("Type into Model", "Type into Data", "Type into Output", "ctrl+r saves and starts"), strict=True
    ):
        assert words in step
    assert "One moment" in next_step(assess(DRAFT, Seen()))


BEGUN_OUT = dataclasses.replace(OUT, exists=True, is_dir=True, dataset=BEGUN)
FEW = dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, num_layers=4), boundaries=())
HUGE = dataclasses.replace(MODEL, fact=dataclasses.replace(MODEL.fact, weight_bytes=2 * 10**12))


@pytest.mark.parametrize(
    ("field", "typed", "seen"),
    [
        ("model", {"model": "/m/none"}, {"model": dataclasses.replace(MODEL, missing=("a",), missing_count=1)}),
        ("data", {}, {"data": dataclasses.replace(DATA, error="it is empty")}),
        ("out", {}, {"out": dataclasses.replace(OUT, parent_exists=False)}),
        ("out", {"out": "", "tp": "3"}, {}),
        ("python", {"python": "/p"}, {"facts": facts(GPUS, 504 * 10**9, PythonFact("/p", "--python", "3.11.1"))}),
        ("python", {}, {"data": DataLook("/data/t.jsonl", python_error="it cannot read tables.")}),
        ("boundaries", {"boundaries": "2,x"}, {}),
        ("boundaries", {"boundaries": "2,30,99"}, {}),
        ("boundaries", {}, {"model": FEW}),
        ("boundaries", {"boundaries": "3,31,59"}, {"out": BEGUN_OUT}),
        ("final", {"final": "post", "tp": "3"}, {"out": BEGUN_OUT}),
        ("max_seq_len", {"max_seq_len": "2000"}, {"out": BEGUN_OUT}),
        ("tp", {"tp": "3"}, {}),
        ("tp", {"tp": "16"}, {}),
        ("tp", {}, {"model": HUGE}),
        ("dump_dir", {"dump_dir": "auto"}, {"facts": facts(GPUS, 100 << 20)}),
        ("port", {}, {"box": Looked(port=PortFact(30000, False, "pid 7"), asked=PortFact(30000, False, "pid 7"))}),
        ("port", {"port": "30000"}, {"box": Looked(port=PortFact(30001, True), asked=PortFact(30000, False, "pid 7"))}),
        ("server_args", {"server_args": "triton"}, {}),
        ("", {}, {"out": dataclasses.replace(OUT, inodes=10)}),
        ("", {}, {}),
    ],
)
def test_a_refusal_leads_to_the_field_at_fault(field: str, typed: dict[str, str], seen: dict[str, object]) -> None:
    draft = DRAFT
    for name, text in typed.items():
        draft = draft.typed(name, text)
    one = made(draft, **seen)
    assert at_fault(one) == field, one.failures
    if field:
        assert FIELDS[field].label in next_step(one)
    for name, found in one.fields.items():
        if name != field and name != "tp":
            assert FAIL not in {each.level for each in found}, (name, found)


@pytest.mark.parametrize(
    ("typed", "shown"), [("hidden", True), ("~/hidden", False), ("./a/../hidden", True), ("/root/hidden", False)]
)
def test_a_relative_output_says_where_it_lies(typed: str, shown: bool) -> None:
    out = dataclasses.replace(OUT, path="/root/hidden")
    one = made(DRAFT.typed("out", typed), out=out)
    assert ("this is /root/hidden" in said(one, OK)) is shown
    assert one.plan.out == "/root/hidden"


@pytest.mark.parametrize("name", [field.name for field in FIELDS.values() if field.path])
@pytest.mark.parametrize(("typed", "read"), [("/a/b/", "/a/b"), ("/a/b// ", "/a/b"), ("/", "/"), ("~/", "~")])
def test_a_path_with_a_slash_at_its_end_is_the_path(name: str, typed: str, read: str) -> None:
    assert Draft().typed(name, typed).texts == {name: read}
    assert from_plan(dataclasses.replace(Plan(), **{name: typed})).texts == {name: read}  # type: ignore[arg-type]
    assert Draft().typed("server_args", "--x /a/").texts == {"server_args": "--x /a/"}


SERVING = Plan(model="/m/Kimi-K2.5", python=PYTHON, tp=8, boundaries=(2, 30, 58), final="pre")


@pytest.mark.parametrize(
    ("typed", "served", "fields"),
    [
        ({}, {}, ()),
        ({"samples": "10", "data": "/new", "max_seq_len": "100"}, {}, ()),
        ({"boundaries": "1,3,6"}, {}, ("boundaries",)),
        ({"boundaries": "58,2,30"}, {}, ()),
        ({"boundaries": "2,30,58"}, {"boundaries": ()}, ()),
        ({"boundaries": "1,3,6"}, {"boundaries": ()}, ("boundaries",)),
        ({}, {"boundaries": (2, 4, 5)}, ("boundaries",)),
        ({"final": "post"}, {}, ("final",)),
        ({}, {"final": "post"}, ("final",)),
        ({}, {"model": "/m/other"}, ("model",)),
        ({"tp": "4"}, {}, ("tp",)),
        ({"tp": "x"}, {}, ()),
        ({}, {"tp": 2, "port": 31000}, ()),
        ({"port": "30000", "dump_dir": "/d"}, {"port": 31000}, ("dump_dir", "port")),
        ({"tokens_in_flight": "auto"}, {}, ()),
        ({"server_args": "--a 1 --b=2"}, {"server_args": ("--host", "0.0.0.0", "--b", "2", "--a", "1")}, ()),
        ({"server_args": "--a 1"}, {"server_args": ("--a", "2")}, ("server_args",)),
    ],
)
def test_what_a_running_server_goes_against_waits_for_its_restart(
    typed: dict[str, str], served: dict[str, Any], fields: tuple[str, ...]
) -> None:
    one = assess(Draft({**DRAFT.texts, **typed}), SEEN, running=dataclasses.replace(SERVING, **served))
    assert one.waits == fields
    if not one.ready:
        return
    step = next_step(one, "R")
    assert ("ctrl+r saves and starts everything" in step) is (not fields), step
    for name in fields:
        assert FIELDS[name].label in step
        assert "R on the dashboard restarts the server" in step


def test_sizes_in_three_units() -> None:
    assert sizes(992 * 10**9) == "992 GB = 924 GiB = 0.99 TB"


# -- keeping it


@pytest.fixture
def xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


FULL = Plan(
    model="/m/My \"model\" é", data="-d.jsonl", out="/o\x7f", python=PYTHON, tp=4, port=31000, boundaries=(3, 31, 59), final="post",
    dump_dir="/fast/d", max_seq_len=4096, samples=7, tokens_in_flight=8192,
    server_args=("--attention-backend", "triton", "--trust-remote-code", "--cuda-graph-bs", "1", "2"), server_env={"A": "b c"},
)  # fmt: skip


def opened(host: str, *words: str) -> Plan:
    args = hosts.with_remembered(build_parser()[0].parse_args(["open", host, *words]))
    return make_plan(args)


def test_what_is_saved_gives_the_same_plan_again_and_the_host_remembers_it(xdg: Path) -> None:
    path = write.save("mine", write.text_of(FULL, "of a test"), replace=False)
    hosts.remember("root@h", "mine")
    assert parse(path.read_text(), path).description == "of a test"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for plan in (opened("root@h"), opened("other", "--profile", "mine")):
        kept = dataclasses.replace(plan, on_trouble=FULL.on_trouble, server_args=FULL.server_args)
        assert kept == FULL
        assert sorted(plan.server_args) == sorted(FULL.server_args)
    assert opened("other") == dataclasses.replace(Plan(), on_trouble="pause")
    for name in ("model", "data", "out"):
        other = opened("root@h", f"--{name}", "/x")
        kept = dataclasses.replace(other, on_trouble=FULL.on_trouble, server_args=FULL.server_args)
        assert kept == dataclasses.replace(FULL, **{name: "/x"}), "the one word changes one thing"
    whole = opened("root@h", "--model", "/x", "--data", "/y", "--out", "/z")
    assert (whole.model, whole.server_args) == ("/x", ()), "a run of its own"
    path.unlink()
    assert opened("root@h").model == ""


def test_a_draft_of_a_plan_is_the_plan(xdg: Path) -> None:
    one = assess(from_plan(FULL), Seen(facts=SEEN.facts))
    kept = {field.name: getattr(one.plan, field.name) for field in dataclasses.fields(Plan) if field.name != "said"}
    assert Plan(**kept) == FULL


def test_an_own_profile_is_not_replaced_without_being_asked_to(xdg: Path) -> None:
    write.save("mine", write.text_of(FULL, "one"), replace=False)
    with pytest.raises(UsageError, match="already"):
        write.save("mine", write.text_of(FULL, "two"), replace=False)
    assert "two" in write.save("mine", write.text_of(FULL, "two"), replace=True).read_text()
    assert [one.name for one in write.own_folder().iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a b", "x" * 65])
def test_names_that_cannot_be(xdg: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        write.save(name, "", replace=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server_args": ("--port", "1")}, "field of its own"),
        ({"server_args": ("triton",)}, "begin with --"),
        ({"out": "/caf\udce9"}, "no UTF-8"),
        ({"server_env": {"EAGLE3_FINAL": "pre"}}, "cannot be kept"),
    ],
)
def test_what_a_profile_cannot_say(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        write.text_of(dataclasses.replace(FULL, **change), "x")


def test_a_secret_is_left_out_by_name() -> None:
    text = write.text_of(dataclasses.replace(FULL, server_env={"HF_TOKEN": "s3cret", "B": "1"}), "x")
    assert "s3cret" not in text
    assert "# left out, for it may be a secret: HF_TOKEN" in text


def test_a_damaged_memory_of_hosts_is_none(xdg: Path) -> None:
    hosts.remember("h", "kimi-k2.5")
    assert hosts.remembered("h") == "kimi-k2.5"
    hosts.place().write_text("[1")
    assert hosts.remembered("h") == ""
    hosts.remember("h", "llama")
    assert json.loads(hosts.place().read_text()) == {"h": "llama"}


def test_a_name_is_made_of_model_and_host() -> None:
    assert profile_name(Plan(model="/m/Kimi K2.5/"), "root@gpu-box:2222") == "kimi-k2.5-gpu-box"
    assert write.path_of(profile_name(Plan(model="/ü"), "é")).name == "run.toml"
