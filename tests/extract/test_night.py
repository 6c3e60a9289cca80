"""What happens at three in the morning: a directory goes away, the journal is locked or damaged, a disk is full at an odd moment."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_remote.extract import collect, spool
from eagle3_remote.extract.dataset import prepare
from eagle3_remote.extract.errors import ExtractionError, SampleFailure
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.order import Order
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.sources import find
from eagle3_remote.protocol import ExtractState
from tests.box.client import until
from tests.extract import filling, jobs
from tests.extract.made import RULES, journal_of, states_bytes, write_data, write_dump
from tests.extract.standin import standin
from tests.extract.test_faults import IDS, holds, spec_of

MANY = [[i % 900 + 1] * (8 + i % 40) for i in range(300)]


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[bool, str], None]) -> Iterator[Path]:
    with filling.small_disk_at(tmp_path / "small", "24m", needs) as path:
        yield path


def test_an_input_that_would_not_do_is_extracted_once_bad_lines_may_be_skipped(tmp_path: Path, python: Path) -> None:
    """What is read anew is still the same dataset: to its last step, and for the run after it."""
    write_data(tmp_path / "data.jsonl", [*IDS, []])
    with standin(tmp_path) as server:
        stops, skips, again = (
            jobs.prepare(tmp_path / name, spec_of(server, tmp_path, on_bad=policy))
            for name, policy in (("stops", "stop"), ("skips", "skip"), ("again", "skip"))
        )
        assert jobs.run(python, stops, tuning=jobs.QUICK) == 5
        assert jobs.run(python, skips, tuning=jobs.QUICK) == 7, (skips / "out.log").read_text()
        assert jobs.status(skips).state is ExtractState.FINISHED
        manifest = json.loads((tmp_path / "out/.eagle3/manifest.json").read_text())
        assert manifest["complete"]
        assert manifest["data"]["blake2b"]
        holds(tmp_path / "out", IDS)
        other = jobs.prepare(tmp_path / "other", spec_of(server, tmp_path, max_seq_len=3))
        assert jobs.run(python, other, tuning=jobs.QUICK) == 5
        assert "max_seq_len is 0 there, 3 is asked" in jobs.status(other).sentence
        assert jobs.run(python, again, tuning=jobs.QUICK) == 7
    assert jobs.verify(python, tmp_path / "out").ok


def test_dumps_of_a_run_that_begins_anew_are_swept(tmp_path: Path, python: Path) -> None:
    write_data(tmp_path / "data.jsonl", [*IDS, []])
    with standin(tmp_path) as server:
        stops = jobs.prepare(tmp_path / "stops", spec_of(server, tmp_path, on_bad="stop"))
        assert jobs.run(python, stops, tuning=jobs.QUICK) == 5
        (run,) = Journal(str(tmp_path / "out/.eagle3/journal.sqlite3")).get("runs")
        left = server.dump_dir / f"req_e3-{run}-0-1"
        write_dump(left, states_bytes([1]))
        cut = jobs.prepare(tmp_path / "cut", spec_of(server, tmp_path, max_seq_len=3))
        assert jobs.run(python, cut, tuning=jobs.QUICK) == 7
        assert not left.exists()


def test_a_dump_directory_that_goes_away_is_waited_for(tmp_path: Path, python: Path) -> None:
    """As when its server is stopped and started again: nothing is lost, and a sentence says what is missing."""
    aside = tmp_path / "aside"
    write_data(tmp_path / "data.jsonl", MANY)
    with standin(tmp_path) as server:

        def dumped(folder: Path) -> None:
            if len(server.prompts) >= 20:
                server.dumped = lambda folder: None
                shutil.copytree(server.dump_dir, aside)
                shutil.rmtree(server.dump_dir)

        server.dumped = dumped
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=1))
        with jobs.running(python, run_dir, jobs.IMPATIENT) as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert (
                f"the dump directory {server.dump_dir} cannot be looked at (No such file or directory)" in now.sentence
            )
            server.dump_dir.mkdir()
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
        holds(tmp_path / "out", MANY)


def test_an_output_that_goes_away_ends_with_its_name(tmp_path: Path, python: Path) -> None:
    write_data(tmp_path / "data.jsonl", MANY)
    with standin(tmp_path) as server:

        def dumped(folder: Path) -> None:
            if len(server.prompts) >= 20:
                (tmp_path / "out").rename(tmp_path / "aside")

        server.dumped = dumped
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=1))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 5
        assert f"{tmp_path}/out" in jobs.status(run_dir).sentence
        assert "broke" not in jobs.status(run_dir).sentence
        server.dumped = lambda folder: None
        (tmp_path / "aside").rename(tmp_path / "out")
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        holds(tmp_path / "out", MANY)


def test_a_journal_that_somebody_locks_is_waited_for(tmp_path: Path, python: Path) -> None:
    locked = threading.Event()
    with standin(tmp_path) as server:
        holder: list[sqlite3.Connection] = []

        def behave(ids: list[int], attempt: int) -> str:
            if ids[0] == 6 and not locked.is_set():
                held = sqlite3.connect(tmp_path / "out/.eagle3/journal.sqlite3", check_same_thread=False)
                held.execute("BEGIN IMMEDIATE")
                holder.append(held)
                locked.set()
            return "good"

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=20))
        env_code = "eagle3_remote.extract.journalfile.PATIENCE = 0.2"
        with jobs.running(python, run_dir, before=f"import eagle3_remote.extract.journalfile; {env_code}; ") as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert "another program holds the journal" in now.sentence, now.sentence
            holder[0].rollback()
            holder[0].close()
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
        holds(tmp_path / "out", IDS)


EACH_FAILS_ONCE = """
import contextlib, errno, sys
from eagle3_remote.extract import dataset, journalfile, reading
armed, failed = [], set()
def fails_first(real):
    def call(*words, **more):
        frame = sys._getframe(1)
        while "journal" in frame.f_code.co_filename or "contextlib" in frame.f_code.co_filename:
            frame = frame.f_back
        place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        if armed and place not in failed:
            failed.add(place)
            print("failed once:", place, flush=True)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*words, **more)
    return call
journalfile.JournalFile._writing = fails_first(journalfile.JournalFile._writing)
dataset.write_json = fails_first(dataset.write_json)
start = reading.Feeder.start
def start_armed(self):
    armed.append(True)
    start(self)
reading.Feeder.start = start_armed
"""
"""A stand-in for a disk that is full at the worst moments: wherever journal or manifest is written, the first time fails."""


@pytest.mark.parametrize("shuffle", [None, 3])
def test_wherever_a_change_is_made_once_the_reading_has_begun_a_full_disk_is_waited_for(
    shuffle: int | None, tmp_path: Path, python: Path
) -> None:
    with standin(tmp_path) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, shuffle=shuffle, probe=True))
        with jobs.running(python, run_dir, before=f"exec({EACH_FAILS_ONCE!r}); ") as process:
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
        said = (run_dir / "out.log").read_text()
        assert len(set(re.findall(r"failed once: (\w+)\.py", said))) > 2, said
        stored = [path.read_bytes() for path in (tmp_path / "out/hidden_states").iterdir()]
        assert sorted(stored) == sorted(states_bytes(ids) for ids in IDS)


def test_a_journal_that_somebody_locks_when_the_reading_begins_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3_remote.extract.journalfile.PATIENCE", 0.05)
    monkeypatch.setattr("eagle3_remote.extract.reading._FULL_WAIT", 0.05)
    write_data(tmp_path / "data.jsonl", IDS)
    dataset = prepare(str(tmp_path / "out"))
    Journal(dataset.journal).close()
    held = sqlite3.connect(dataset.journal)
    held.execute("BEGIN IMMEDIATE")
    feeder = Feeder(dataset.journal, dataset.spool, find(str(tmp_path / "data.jsonl")), RULES, Order())
    feeder.start()
    until(lambda: feeder.waits or feeder.over)
    assert "another program holds the journal" in feeder.waits
    held.rollback()
    held.close()
    until(lambda: feeder.over)
    feeder.close()
    feeder.check()
    journal = Journal(dataset.journal)
    assert len(journal.waiting(99)) == len(IDS)
    journal.close()


def test_that_an_input_will_not_do_is_kept_though_the_disk_is_full_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3_remote.extract.reading._FULL_WAIT", 0.01)
    (tmp_path / "data.jsonl").write_text("{}\n" * 3)
    full, put = [OSError(28, "No space left on device")], Journal.put

    def put_later(self: Journal, key: str, value: object) -> None:
        if full:
            raise full.pop()
        put(self, key, value)

    monkeypatch.setattr(Journal, "put", put_later)
    for _ in range(2):  # read anew each time
        with pytest.raises(ExtractionError, match=r"data.jsonl has no usable sample: 3 were read, 3 refused"):
            journal_of(tmp_path / "out", tmp_path / "data.jsonl")
    assert full == []


def test_a_damaged_journal_is_said(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        journal = tmp_path / "out/.eagle3/journal.sqlite3"
        raw = bytearray(journal.read_bytes())
        raw[4096:] = b"x" * (len(raw) - 4096)
        journal.write_bytes(raw)
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 5
        sentence = jobs.status(run_dir).sentence
        assert sentence.startswith(f"The journal of {tmp_path}/out is damaged: ")
        assert "What is stored stays" in sentence
        assert len(list((tmp_path / "out/hidden_states").iterdir())) == len(IDS)


def test_a_dump_that_becomes_shorter_is_the_samples_fault_and_not_the_outputs(tmp_path: Path) -> None:
    folder = tmp_path / "req_e3-r-1"
    write_dump(folder, states_bytes([1, 2, 3]))

    class Cutting:
        def open(self, folder: str, header: object) -> None:
            os.truncate(Path(folder) / "states.safetensors", 200)

        def rows(self, first: int, piece: memoryview) -> None:
            return

        def close(self, ids: bytes) -> object:
            raise AssertionError

    with pytest.raises(SampleFailure, match="became shorter"):
        collect.stage(str(folder), str(tmp_path), 0, Cutting())  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["req_e3-r-1"]


def test_a_disk_that_is_full_when_rows_are_written_or_reading_begins_is_an_os_error(
    small_disk: Path, python: Path, tmp_path: Path
) -> None:
    """Which whoever calls waits out: not another error about what could not be cleaned up."""
    write_data(tmp_path / "data.jsonl", IDS)
    code = (
        f"import sys; sys.path[:0] = {[*jobs.PATHS, str(jobs.ROOT)]!r}\n"
        "from pathlib import Path\nfrom eagle3_remote.extract import arrow, spool\n"
        "from eagle3_remote.extract.collect import is_full\nfrom tests.extract import filling\n"
        "from tests.extract.made import journal_of\n"
        "root, data = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "dataset, journal = journal_of(root / 'out', data)\n"
        "rows = lambda: (spool.read(dataset.spool, one) for one in journal.waiting(99) * 2000)\n"
        "filling.fill_to_the_last(root / 'filler')\n"
        "try:\n    arrow.write(dataset, rows(), '0' * 16)\nexcept OSError as error:\n    assert is_full(error), repr(error)\n"
        "else:\n    raise AssertionError\n"
        "(root / 'filler').unlink()\n"
        "arrow.write(dataset, (spool.read(dataset.spool, one) for one in journal.waiting(99)), '0' * 16)\n"
        "assert len(list(arrow.rows(dataset))) == 12\n"
    )
    done = subprocess.run([str(python), "-c", code, str(small_disk), str(tmp_path / "data.jsonl")], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_full_disk_while_rows_are_given_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a shuffled order: in the middle of the second piece, and when the spool is made."""
    monkeypatch.setattr("eagle3_remote.extract.journalfile._CHUNK", 5)
    monkeypatch.setattr("eagle3_remote.extract.reading._FULL_WAIT", 0.01)
    write_data(tmp_path / "data.jsonl", IDS)
    full = [OSError(28, "No space left on device") for _ in range(3)]
    real_writer, real_rows = spool.Writer, Journal.give_rows

    def writer(path: str, end: int) -> spool.Writer:
        if len(full) > 2:
            raise full.pop()
        return real_writer(path, end)

    def give_rows(self: Journal, *words: object) -> Iterator[object]:
        for counts in real_rows(self, *words):  # type: ignore[arg-type]
            yield counts
            if full:
                raise full.pop()

    monkeypatch.setattr(spool, "Writer", writer)
    monkeypatch.setattr(Journal, "give_rows", give_rows)
    _, journal = journal_of(tmp_path / "out", tmp_path / "data.jsonl", Order(seed=3))
    assert full == []
    monkeypatch.undo()
    _, whole = journal_of(tmp_path / "whole", tmp_path / "data.jsonl", Order(seed=3))
    assert [one.line for one in journal.waiting(99)] == [one.line for one in whole.waiting(99)]
