"""Servers that answer late, wrong or never, and full disks. The server is the stand-in; the extraction is the real job."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.__main__ import main as extraction
from eagle3_remote.extract.checks import EXPLANATIONS
from eagle3_remote.extract.errors import EXIT_NOT_FIT
from eagle3_remote.extract.journal import open_readonly
from eagle3_remote.extract.sqlitefull import raise_if_full
from eagle3_remote.protocol import ExtractSpec, ExtractState
from tests.extract import filling, jobs
from tests.extract.made import journal_of, states_bytes, write_data
from tests.extract.standin import StandIn, standin

IDS = [[i + 1] * (5 + i) for i in range(12)]
NOT_HERE = ("dtype", "dump-full", "input-changed", "norms", "kills-server")


def spec_of(server: StandIn, work: Path, **more: object) -> ExtractSpec:
    data = work / "data.jsonl"
    if not data.exists():
        write_data(data, IDS)
    given = {
        "out": str(work / "out"),
        "probe": False,
        "dump_dir": str(server.dump_dir),
        "model": str(server.model),
        **more,
    }
    return ExtractSpec(data=str(data), server_url=server.url, **given)  # type: ignore[arg-type]


def holds(dataset: Path, rows: list[list[int]]) -> None:
    """Exactly these rows are stored, each once, whole, in this order."""
    files = sorted((dataset / "hidden_states").iterdir(), key=lambda path: int(path.stem[3:]))
    assert [path.name for path in files] == [f"hs_{row}.safetensors" for row in range(len(rows))]
    assert [path.read_bytes() for path in files] == [states_bytes(ids) for ids in rows]


def test_a_sample_that_never_comes_right_is_left_out_and_named(tmp_path: Path, python: Path) -> None:
    wrong = {3: "non-finite", 7: "rows"}
    with standin(tmp_path, lambda ids, attempt: wrong.get(ids[0], "good")) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 7
        report = jobs.report(python, run_dir)
        assert (report.status.state, report.status.stored, report.status.failed) == (ExtractState.FINISHED, 10, 2)
        assert [(p.where, p.kind) for p in report.problems] == [
            ("line 3", "failed: non-finite"),
            ("line 7", "failed: rows"),
        ]
        assert report.problems[0].reason == "row 0, layer 0 holds NaN or infinity"
        assert report.problems[1].reason.startswith("11 tokens were sent, the dump has [10, 4, 8] states")
        assert server.prompts.count(IDS[2]) == 3
        holds(tmp_path / "out", [ids for ids in IDS if ids[0] not in wrong])
        assert jobs.verify(python, tmp_path / "out").ok
        assert list(server.dump_dir.iterdir()) == []

        wrong.clear()
        server.prompts.clear()
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        assert sorted(server.prompts) == [IDS[2], IDS[6]], "only what was missing is sent again"
        holds(tmp_path / "out", [*(ids for ids in IDS if ids[0] not in (3, 7)), IDS[2], IDS[6]])
        assert jobs.verify(python, tmp_path / "out").ok


def test_three_in_a_row_end_the_run_with_the_explanation(tmp_path: Path, python: Path) -> None:
    """Every kind of failure, each in an extraction of its own; then three of the servers are mended and all goes on."""
    kinds = [kind for kind in EXPLANATIONS if kind not in NOT_HERE]
    broken = True

    def act(kind: str, ids: list[int], attempt: int) -> str:
        return kind if broken and len(ids) < 13 else "good"  # the longest four are sent first

    with contextlib.ExitStack() as stack:
        servers: dict[str, StandIn] = {}
        for kind in kinds:
            servers[kind] = stack.enter_context(standin(tmp_path / kind, functools.partial(act, kind)))
        specs = [spec_of(servers[kind], tmp_path / kind, tokens_in_flight=1) for kind in kinds]
        run_dirs = [jobs.prepare(tmp_path / kind / "run", spec) for kind, spec in zip(kinds, specs, strict=True)]
        waits = [run_dir for run_dir in run_dirs if run_dir.parent.name in ("timeout", "dump-missing")]
        others = [run_dir for run_dir in run_dirs if run_dir not in waits]
        with jobs.start(python, *waits, tuning=jobs.IMPATIENT) as waiting:
            assert jobs.run(python, *others, tuning=jobs.QUICK) == 7
            assert waiting.wait(120) == 7
        for kind, run_dir in zip(kinds, run_dirs, strict=True):
            now = jobs.status(run_dir)
            assert now.state is ExtractState.FAILED
            assert now.failed in ((3, 4, 5) if kind == "refused" else (0,)), kind  # some may be on their way already
            assert now.stored == 4
            assert f"failed in one way ({kind}): {EXPLANATIONS[kind]}" in now.sentence
            assert list(servers[kind].dump_dir.iterdir()) == []
        broken = False
        for server in servers.values():
            server.release.set()
        mended = ("non-finite", "timeout", "refused")
        assert jobs.run(python, *(tmp_path / kind / "run" for kind in mended), tuning=jobs.QUICK) == 0
        for kind in mended:
            holds_in_some_order(tmp_path / kind / "out")


def holds_in_some_order(dataset: Path) -> None:
    found = [path.read_bytes() for path in (dataset / "hidden_states").iterdir()]
    assert sorted(found) == sorted(states_bytes(ids) for ids in IDS)


def test_a_server_that_goes_away_and_comes_back_costs_nothing(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:

        def behave(ids: list[int], attempt: int) -> str:
            if ids[0] == 6 and attempt == 1:
                server.down = True
                return "drop"
            return "good"

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=20))
        with jobs.running(python, run_dir) as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert "the server is away" in now.sentence
            assert now.in_flight == 0
            server.down = False
            assert process.wait(60) == 0
        holds(tmp_path / "out", IDS)
        assert list(server.dump_dir.iterdir()) == []


def test_a_server_that_stays_away_ends_the_run_resumably(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:

        def behave(ids: list[int], attempt: int) -> str:
            server.down = ids[0] == 6
            return "drop" if server.down else "good"

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=20))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK.replace("30.0", "0.5")) == 6
        now = jobs.status(run_dir)
        assert (now.state, now.failed) == (ExtractState.FAILED, 0)
        assert "did not come back within" in now.sentence
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 6
        assert "No SGLang server answers at" in jobs.status(run_dir).sentence
        server.behave, server.down = (lambda ids, attempt: "good"), False
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        holds(tmp_path / "out", IDS)


def test_another_setting_is_refused_and_named(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        good = jobs.prepare(tmp_path / "good", spec_of(server, tmp_path))
        assert jobs.run(python, good, tuning=jobs.QUICK) == 0
        other = tmp_path / "other.jsonl"
        write_data(other, IDS[:5])
        asked = {
            "boundaries is [2, 4, 5] there, [1, 2, 3] is asked": {"boundaries": (1, 2, 3)},
            "final is pre there, post is asked": {"final": "post"},
            "max_seq_len is 0 there, 8 is asked": {"max_seq_len": 8},
            "data is ": {"data": str(other)},
        }
        dirs = [
            jobs.prepare(tmp_path / f"bad{i}", _with(spec_of(server, tmp_path), more))
            for i, more in enumerate(asked.values())
        ]
        assert jobs.run(python, *dirs, tuning=jobs.QUICK) == 5
        for words, run_dir in zip(asked, dirs, strict=True):
            now = jobs.status(run_dir)
            assert now.state is ExtractState.FAILED
            assert f"was begun with other settings: {words}" in now.sentence
        assert jobs.verify(python, tmp_path / "out").ok


def _with(spec: ExtractSpec, more: dict[str, object]) -> ExtractSpec:
    import dataclasses

    return dataclasses.replace(spec, **more)  # type: ignore[arg-type]


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[bool, str], None]) -> Iterator[Path]:
    with filling.small_disk_at(tmp_path / "small", "24m", needs) as path:
        yield path


def test_a_disk_that_fills_up_pauses_and_goes_on_by_itself(tmp_path: Path, python: Path, small_disk: Path) -> None:
    """Somebody fills the output's file system to the last byte in the middle; later the space is given back."""
    filler = small_disk / "filler"
    with standin(tmp_path) as server:

        def behave(ids: list[int], attempt: int) -> str:
            if ids[0] == 6 and not filler.exists():
                filling.fill_to_the_last(filler)
            return "good"

        server.behave = behave
        run_dir = jobs.prepare(
            tmp_path / "run", spec_of(server, tmp_path, out=str(small_disk / "out"), tokens_in_flight=40)
        )
        with jobs.running(python, run_dir) as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert "goes on by itself when there is space" in now.sentence
            assert now.stored < len(IDS)
            filler.unlink()
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
        holds(small_disk / "out", IDS)
        assert jobs.verify(python, small_disk / "out").ok


def test_too_little_space_is_refused_before_anything_is_sent(tmp_path: Path, python: Path, small_disk: Path) -> None:
    with standin(tmp_path) as server:
        (small_disk / "filler").write_bytes(b"x" * 20_000_000)
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, out=str(small_disk / "out")))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 5
        now = jobs.status(run_dir)
        assert re.search(r"MB free, the rest of the dataset takes .* and 0\.50 MB stay free for others: ", now.sentence)
        assert server.prompts == []


def test_a_disk_that_fills_up_while_the_input_is_read_is_waited_for(
    tmp_path: Path, python: Path, small_disk: Path
) -> None:
    data = tmp_path / "many.jsonl"
    write_data(data, [[i % 900, i // 900, 5] for i in range(20_000)])
    filler = small_disk / "filler"
    filling.fill(filler, 800_000)
    with standin(tmp_path) as server:
        spec = spec_of(server, tmp_path, out=str(small_disk / "out"), shuffle=1)
        run_dir = jobs.prepare(tmp_path / "run", _with(spec, {"data": str(data)}))
        with jobs.running(python, run_dir) as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert now.sentence.endswith("the input cannot be read on. It goes on by itself when there is space.")
            filler.unlink()
            jobs.wait_until(run_dir, lambda now: now.total == 20_000, process)


def test_where_sqlite_only_says_i_o_error_the_disk_is_asked(small_disk: Path) -> None:
    """As it does for a used-up quota."""
    path, error = str(small_disk / "journal.sqlite3"), sqlite3.OperationalError("disk I/O error")
    raise_if_full(error, path)
    assert list(small_disk.iterdir()) == []
    filling.fill_to_the_last(small_disk / "filler")
    with pytest.raises(OSError, match="No space left"):
        raise_if_full(error, path)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_by_hand_a_full_disk_is_a_sentence(
    tmp_path: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ds.prepare(str(small_disk / "out"))
    filling.fill_to_the_last(small_disk / "filler")
    with standin(tmp_path) as server:
        words = {
            "--server-url": server.url,
            "--hs-dump-dir": server.dump_dir,
            "--output-dir": small_disk / "out",
            "--prepared-data": tmp_path / "data.jsonl",
            "--boundaries": "2,4,5",
            "--final": "pre",
        }
        assert extraction([str(word) for pair in words.items() for word in pair]) == EXIT_NOT_FIT
    said = capsys.readouterr().out
    assert "The output directory cannot be written: [Errno 28]" in said
    assert "start it again when it can" in said


def test_a_dataset_on_a_read_only_mount_is_read(tmp_path: Path, small_disk: Path) -> None:
    write_data(tmp_path / "data.jsonl", IDS)
    dataset, journal = journal_of(small_disk / "out", tmp_path / "data.jsonl")
    journal.put("identity", {"final": "pre"})
    journal.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    journal = open_readonly(dataset.journal)
    assert journal.get("identity") == {"final": "pre"}
    assert len(journal.waiting(100)) == len(IDS)
    journal.close()
