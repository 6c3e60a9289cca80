"""The launch line by version, as tables."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from eagle3_patch.config import read_settings
from eagle3_remote.protocol import LaunchPlan, ModelFact, ServerSpec
from eagle3_remote.server.launch import PlanError, parse_version, plan, settle

MODEL = ModelFact(path="/m", exists=True, num_layers=61, vocab_size=100)
SPEC = ServerSpec(model="/m", python="/venv/bin/python", port=30001, tp=8, boundaries=(58, 2, 30))
RELEASE = Path("/home/u/.eagle3-console/releases/abc")

GRAPHS, PIECEWISE = "--disable-cuda-graph", "--disable-piecewise-cuda-graph"
DECODE_GRAPHS, PREFILL_GRAPHS = "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph"
FUSION = "--enforce-disable-flashinfer-allreduce-fusion"
ALL = {"--skip-server-warmup", "--disable-radix-cache", "--enable-metrics"}
RADIX = "--disable-radix-cache"


def make(spec: ServerSpec = SPEC, version: str = "0.5.23", env: dict[str, str] | None = None) -> LaunchPlan:
    return plan(settle(spec), version, MODEL, RELEASE, "/dev/shm/d", env or {})


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.5.4.post3", {GRAPHS}),
        ("0.5.6.post2", {GRAPHS}),
        ("0.5.8.post1", {GRAPHS}),
        ("0.5.9", {GRAPHS}),
        ("0.5.10.post1", {GRAPHS, PIECEWISE, FUSION}),
        ("0.5.13.post1", {GRAPHS, PIECEWISE, FUSION}),
        ("0.5.16", {DECODE_GRAPHS, PREFILL_GRAPHS, FUSION}),
        ("0.5.20", {DECODE_GRAPHS, PREFILL_GRAPHS, FUSION}),
        ("0.5.23", {DECODE_GRAPHS, PREFILL_GRAPHS, FUSION}),
    ],
)
def test_flags_of_each_version(version: str, flags: set[str]) -> None:
    made = make(version=version)
    line = "-u -m sglang.launch_server --model-path /m --host 127.0.0.1 --port 30001 --tp-size 8"
    assert made.argv[:12] == ("/venv/bin/python", *line.split())
    assert sorted(made.argv[12:]) == sorted(flags | ALL)
    assert made.sglang_version == version
    notes = "\n".join(made.notes)
    for flag in flags | ALL:
        assert f"{flag}: " in notes  # each has its reason
    for what in (
        "radix cache off",
        "CUDA graphs off",
        "prefill graphs off",
        "fused all-reduce off",
        "chunked prefill",
        "warm-up skipped",
        "metrics on",
    ):
        assert f"{what}: " in notes, what  # where a version needs no flag, it is said why
    assert "health" in notes


@pytest.mark.parametrize(("version", "told"), [("0.5.4.post3", False), ("0.5.6.post2", True), ("0.5.23", True)])
def test_health_without_generation_where_the_version_has_it(version: str, told: bool) -> None:
    assert ("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION" in make(version=version).env) is told


def test_environment() -> None:
    spec = dataclasses.replace(SPEC, env={"NCCL_DEBUG": "INFO", "PYTHONUNBUFFERED": "0"}, final="post")
    env = make(spec, env={"PYTHONPATH": "/stubs:/more", "PATH": "/usr/bin"}).env
    assert env == {
        "PYTHONPATH": f"{RELEASE}/eagle3_patch/entry:/stubs:/more",
        "PATH": "/venv/bin:/usr/bin",
        "PYTHONUNBUFFERED": "0",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        "EAGLE3_DUMP_DIR": "/dev/shm/d",
        "EAGLE3_BOUNDARIES": "2,30,58",
        "EAGLE3_FINAL": "post",
        "NCCL_DEBUG": "INFO",
    }
    assert "PATH" not in make(env={"PATH": "/usr/bin:/venv/bin"}).env
    assert make().env["PYTHONPATH"] == f"{RELEASE}/eagle3_patch/entry"
    own = dataclasses.replace(SPEC, env={"PYTHONPATH": "/mine"}, boundaries=())
    assert make(own, env={"PYTHONPATH": "/stubs"}).env["PYTHONPATH"] == f"{RELEASE}/eagle3_patch/entry:/mine"
    assert "EAGLE3_BOUNDARIES" not in make(own).env


def test_what_the_patch_would_read_of_the_boxs_own_environment_is_emptied_and_told() -> None:
    own = {
        "EAGLE3_BOUNDARIES": "1,4",
        "EAGLE3_RID_PREFIX": "mine-",
        "EAGLE3_DUMP_LAYOUT": "pt",
        "EAGLE3_PINNED_BUDGET": "1",
        "EAGLE3_DUMP_BUDGET": "1",
        "SGLANG_HS_DUMP_DIR": "/old",
        "EAGLE3_FINAL": "post",
    }
    spec = dataclasses.replace(SPEC, boundaries=(), env={"EAGLE3_DUMP_BUDGET": "5000"})
    made = make(spec, env=own)
    read, ours = (read_settings({**mine, **made.env}) for mine in (own, {}))
    assert read == ours
    assert (read.boundaries, read.final, read.rid_prefix, read.dump_budget) == (None, "pre", "e3-", 5000)
    assert any("EAGLE3_DUMP_LAYOUT" in note and "--server-env" in note for note in made.notes)
    assert not any("EAGLE3_DUMP_LAYOUT" in note for note in make(spec).notes)
    assert "EAGLE3_DUMP_LAYOUT" not in make(spec, env={"EAGLE3_DUMP_LAYOUT": ""}).env
    assert make(SPEC, env=own).env["EAGLE3_BOUNDARIES"] == "2,30,58"


def test_the_persons_own_arguments_win_and_come_last() -> None:
    extra = ("--chunked-prefill-size", "4096", "--disable-cuda-graph", "--host=0.0.0.0", "--tp", "4", "--port", "31000")
    made = make(dataclasses.replace(SPEC, extra_args=extra), "0.5.9")
    assert made.argv[-3:] == ("--chunked-prefill-size", "4096", "--disable-cuda-graph")
    assert made.argv.count("--disable-cuda-graph") == 1
    assert " ".join(made.argv).count("--host 0.0.0.0 --port 31000 --tp-size 4") == 1
    settled = settle(dataclasses.replace(SPEC, extra_args=(*extra, "--model=/other")))
    assert (settled.host, settled.port, settled.tp, settled.model) == ("0.0.0.0", 31000, 4, "/other")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (0, ()),
        (32768, ("--chunked-prefill-size", "8192")),
        (33000, ("--chunked-prefill-size", "8192")),  # a multiple of the page size
        (300, ("--chunked-prefill-size", "128")),
        (131072, ("--chunked-prefill-size", "32768", "--max-prefill-tokens", "32768")),
    ],
)
def test_the_prefill_chunk_fits_the_tokens_in_flight(tokens: int, words: tuple[str, ...]) -> None:
    made = make(dataclasses.replace(SPEC, tokens_in_flight=tokens))
    assert made.argv[len(make().argv) :] == words
    own = make(dataclasses.replace(SPEC, tokens_in_flight=tokens, extra_args=("--chunked-prefill-size=-1",)))
    assert [word for word in own.argv if word.startswith("--chunked")] == ["--chunked-prefill-size=-1"]
    assert any("your own" in note for note in own.notes)


def test_radix_cache_on_purpose() -> None:
    made = make(dataclasses.replace(SPEC, radix_cache=True))
    assert RADIX not in made.argv
    assert any("radix cache ON" in note for note in made.notes)


@pytest.mark.parametrize(
    ("change", "version", "sentence"),
    [
        ({}, "0.5.3", "too old"),
        ({}, "main", "cannot be read"),
        ({"boundaries": (2, 62)}, "0.5.23", "outside 0 to 61"),
        ({"boundaries": (2, 2)}, "0.5.23", "twice"),
        ({"final": "mid"}, "0.5.23", "neither pre nor post"),
        ({"port": 0}, "0.5.23", "outside 1 to 65535"),
        ({"tp": 0}, "0.5.23", "at least one GPU"),
        ({"extra_args": ("--port",)}, "0.5.23", "has no value"),
        ({"extra_args": ("--tp", "two")}, "0.5.23", "whole numbers"),
        ({"tokens_in_flight": -1}, "0.5.23", "0 or more"),
        ({"extra_args": ("cpu", "--device")}, "0.5.23", "'cpu' belongs to no option"),
        ({"extra_args": ("--tp", "4", "--tp-size=8")}, "0.5.23", r"--tp-size is given 2 times .*\(4; 8\)"),
        ({"extra_args": ("--page-size", "1", "--page-size=64")}, "0.5.23", r"--page-size is given 2 times"),
        ({"extra_args": ("--enable-piecewise-cuda-graph",)}, "0.5.9", "contradicts the recipe: a replayed CUDA graph"),
        ({"extra_args": ("--cuda-graph-backend-prefill=full",)}, "0.5.23", r"disabled is possible"),
        ({"extra_args": ("--enable-flashinfer-allreduce-fusion",)}, "0.5.13", "partial sums"),
        ({"extra_args": ("--flashinfer-allreduce-fusion-backend", "auto")}, "0.5.23", "partial sums"),
        ({"extra_args": ("--enable-hierarchical-cache",)}, "0.5.23", "the radix cache is off"),
        ({"extra_args": ("--disable-radix-cache",), "radix_cache": True}, "0.5.23", "contradicts --radix-cache on"),
        ({"extra_args": ("--allow-auto-truncate",)}, "0.5.23", "loss mask"),
        ({"extra_args": ("--log-level", "error")}, "0.5.23", "info or debug is possible"),
        ({"env": {"EAGLE3_DUMP_DIR": "/mine"}}, "0.5.23", "use --dump-dir"),
    ],
)
def test_refusals(change: dict[str, object], version: str, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        make(dataclasses.replace(SPEC, **change), version)  # type: ignore[arg-type]


def test_all_that_contradicts_is_named_at_once() -> None:
    spec = dataclasses.replace(
        SPEC, extra_args=("--allow-auto-truncate", "--log-level=error"), env={"EAGLE3_FINAL": "pre"}
    )
    with pytest.raises(PlanError, match=r"--allow-auto-truncate .*--log-level error .*EAGLE3_FINAL"):
        make(spec)


def test_what_does_not_contradict_is_taken_and_what_is_said_twice_stands_once() -> None:
    extra = ("--cuda-graph-backend-decode", "disabled", "--log-level", "debug", "--log-level=debug")
    assert make(dataclasses.replace(SPEC, extra_args=extra)).argv[-3:] == (*extra[:2], extra[-1])
    made = make(dataclasses.replace(SPEC, extra_args=("--enable-hierarchical-cache",), radix_cache=True))
    assert made.argv[-1] == "--enable-hierarchical-cache"


def test_a_version_that_spells_it_otherwise_than_its_number_says() -> None:
    """0.5.14 and 0.5.15 were never read; a build from source carries any number."""
    offered = {RADIX, DECODE_GRAPHS, PREFILL_GRAPHS, FUSION, "--skip-server-warmup", "--enable-metrics"}
    made = plan(SPEC, "0.5.15", MODEL, RELEASE, "/d", {}, offered)
    assert {DECODE_GRAPHS, PREFILL_GRAPHS} <= set(made.argv)
    assert not {GRAPHS, PIECEWISE} & set(made.argv)
    with pytest.raises(
        PlanError, match=r"SGLang 0\.5\.15 has no --disable-radix-cache .*the nearest it has: --disable-cache"
    ):
        plan(SPEC, "0.5.15", MODEL, RELEASE, "/d", {}, (offered - {RADIX}) | {"--disable-cache"})
    without = plan(SPEC, "0.5.15", MODEL, RELEASE, "/d", {}, offered - {FUSION})
    assert any(note.startswith("fused all-reduce off: ") for note in without.notes)


def test_a_model_too_small_for_the_default_boundaries() -> None:
    small = dataclasses.replace(MODEL, num_layers=4)
    with pytest.raises(PlanError, match="name them yourself"):
        plan(dataclasses.replace(SPEC, boundaries=()), "0.5.23", small, RELEASE, "/d", {})
    assert plan(dataclasses.replace(SPEC, boundaries=(1, 2)), "0.5.23", small, RELEASE, "/d", {}).argv


def test_versions() -> None:
    assert parse_version("0.5.10.post1") == (0, 5, 10) > parse_version("0.5.9")
