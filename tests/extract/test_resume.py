"""What continues a dataset, what is refused and why, and what its runs leave in the report. The server is the stand-in."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from eagle3_remote.protocol import ExtractSpec, ExtractState
from tests.extract import jobs
from tests.extract.made import states_bytes, write_data
from tests.extract.standin import CONFIG, StandIn, standin

IDS = [[i + 1] * (5 + i % 9) for i in range(40)]


def spec_of(server: StandIn, work: Path, **more: object) -> ExtractSpec:
    data = work / "data.jsonl"
    if not data.exists():
        write_data(data, IDS)
    given = {"data": str(data), "out": str(work / "out"), "dump_dir": str(server.dump_dir), **more}
    return ExtractSpec(server_url=server.url, model=str(server.model), **given)  # type: ignore[arg-type]


def stored(work: Path) -> list[bytes]:
    files = sorted((work / "out/hidden_states").iterdir(), key=lambda path: int(path.stem[3:]))
    return [path.read_bytes() for path in files]


def test_a_dataset_is_not_continued_with_other_settings(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        begun = spec_of(server, tmp_path)
        assert jobs.run(python, jobs.prepare(tmp_path / "run", begun), tuning=jobs.QUICK) == 0
        before = stored(tmp_path)
        other = tmp_path / "other.jsonl"
        write_data(other, [*IDS[:-1], [999]])
        changes: dict[str, dict[str, object]] = {
            "boundaries is [2, 4, 5] there, [1, 4, 5] is asked": {"boundaries": (1, 4, 5)},
            "final is pre there, post is asked": {"final": "post"},
            "max_seq_len is 0 there, 7 is asked": {"max_seq_len": 7},
            "data is ": {"data": str(other)},
            "shuffle is null there, 1 is asked": {"shuffle": 1},
            "shard is 0/1 there, 1/2 is asked": {"shard": "1/2"},
        }
        specs = [dataclasses.replace(begun, **change) for change in changes.values()]  # type: ignore[arg-type]
        run_dirs = [jobs.prepare(tmp_path / f"run-{at}", spec) for at, spec in enumerate(specs)]
        assert jobs.run(python, *run_dirs, tuning=jobs.QUICK) == 5
        (server.model / "config.json").write_text(json.dumps({**CONFIG, "rope_theta": 5}))
        another_model = jobs.prepare(tmp_path / "run-model", begun)
        assert jobs.run(python, another_model, tuning=jobs.QUICK) == 5
    for run_dir, words in zip([*run_dirs, another_model], [*changes, "model is "], strict=True):
        now = jobs.status(run_dir)
        assert now.state is ExtractState.FAILED
        assert f"was begun with other settings: {words}" in now.sentence, now.sentence
        assert "Continue it with the same ones, or choose another --out" in now.sentence
    assert stored(tmp_path) == before


def test_a_copy_of_the_input_and_more_samples_go_on(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        few = jobs.prepare(tmp_path / "few", spec_of(server, tmp_path, limit=15))
        assert jobs.run(python, few, tuning=jobs.QUICK) == 0
        assert stored(tmp_path) == [states_bytes(ids) for ids in IDS[:15]]
        assert jobs.status(few).total == 15
        copy = tmp_path / "elsewhere.jsonl"
        copy.write_bytes((tmp_path / "data.jsonl").read_bytes())
        os.utime(copy, (1, 1))
        server.prompts.clear()
        more = jobs.prepare(tmp_path / "more", spec_of(server, tmp_path, data=str(copy)))
        assert jobs.run(python, more, tuning=jobs.QUICK) == 0
        assert [ids for ids in IDS if ids in server.prompts] == IDS[15:], "probes aside, only what is missing is sent"
    assert stored(tmp_path) == [states_bytes(ids) for ids in IDS]
    now = jobs.status(more)
    assert (now.total, now.stored, now.total_final) == (40, 40, True)
    assert now.bytes_total == now.bytes_stored == sum(len(states_bytes(ids)) for ids in IDS)
    assert jobs.verify(python, tmp_path / "out").ok


def test_starting_a_finished_extraction_again_keeps_the_figures_of_the_run_that_made_it(
    tmp_path: Path, python: Path
) -> None:
    with standin(tmp_path) as server:
        few, whole, again = (
            jobs.prepare(tmp_path / name, spec_of(server, tmp_path, limit=limit))
            for name, limit in (("few", 15), ("whole", 0), ("again", 0))
        )
        assert jobs.run(python, few, whole, again, tuning=jobs.QUICK) == 0
    report = jobs.report(python, again)
    assert [run.stored for run in report.runs] == [15, 25], "a run that found nothing to do is none of them"
    made, now = report.runs[1], jobs.status(again)
    assert (now.state, now.stored, now.total) == (ExtractState.FINISHED, 40, 40)
    assert now.elapsed == made.seconds > 0
    assert [jobs.status(one).nothing_to_do for one in (few, whole, again)] == [False, False, True]
    assert now.mean_samples_per_s == made.stored / made.spent["extracting"] > 0


def test_the_report_tells_of_every_run(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        first, again = (jobs.prepare(tmp_path / name, spec_of(server, tmp_path)) for name in ("first", "again"))
        assert jobs.run(python, first, again, tuning=jobs.QUICK) == 0
    report = jobs.report(python, again)
    (made,) = report.runs
    assert (made.stored, made.tokens, made.state) == (40, sum(map(len, IDS)), "finished")
    assert made.bytes == report.status.bytes_stored
    assert 0 < made.spent["extracting"] <= made.seconds
    speculators, specforge = report.training
    assert "--target-layer-ids 2 4 5" in speculators.command
    assert f"--data-path {tmp_path}/out" in speculators.command
    assert "aux_hidden_state_layer_ids: [1, 3, 4]" in specforge.command
