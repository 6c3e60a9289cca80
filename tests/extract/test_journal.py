"""The journal: what it counts, in which order it sends, what a resume finds."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.order import Order
from eagle3_remote.extract.records import FAILED, SENT, WAITING, StoredFile
from eagle3_remote.extract.statesfile import file_crc
from tests.extract.made import HIDDEN, LAYERS, journal_of, states_bytes, write_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    write_data(path, [[1, 2, 3], [4, 5], [], [6], [1, 2, 3], [7] * 10])
    return path


def store(dataset: ds.Dataset, journal: Journal, line: int, row: int, ids: list[int]) -> None:
    path = Path(dataset.states) / f"hs_{row}.safetensors"
    path.write_bytes(states_bytes(ids))
    journal.set_stored([StoredFile(line, row, path.stat().st_size, file_crc(str(path)), 0.0)])


def test_counts_and_rows_follow_the_input(tmp_path: Path, data: Path) -> None:
    dataset, journal = journal_of(tmp_path / "out", data)
    assert [(e.line, e.row, e.tokens) for e in journal.waiting(10)] == [
        (1, 0, 3),
        (2, 1, 2),
        (4, 2, 1),
        (5, 3, 3),
        (6, 4, 10),
    ]
    store(dataset, journal, 1, 0, [1, 2, 3])
    counts = journal.counts()
    assert (counts.total, counts.stored, counts.rejected, counts.waiting) == (6, 1, 1, 4)
    assert (counts.tokens_total, counts.tokens_stored, counts.largest, counts.no_mask) == (19, 3, 10, 5)
    assert (journal.reading().same_ids, journal.reading().same_name) == (1, 0)
    assert journal.problems(10) == [(3, "rejected", "empty", "input_ids is empty")]


def test_what_was_tried_before_comes_last(tmp_path: Path, data: Path) -> None:
    _, journal = journal_of(tmp_path / "out", data)
    journal.set_state(1, SENT)
    journal.set_failed(1, FAILED, "non-finite", "NaN")
    journal.set_state(2, SENT)
    journal.close()
    journal = Journal(str(tmp_path / "out/.eagle3/journal.sqlite3"))
    assert [e.line for e in journal.waiting(10)] == [4, 5, 6]
    journal.requeue()
    assert [(e.line, e.attempts) for e in journal.waiting(10)] == [(4, 0), (5, 0), (6, 0), (1, 1), (2, 1)]


def test_files_are_believed_over_the_journal(tmp_path: Path, data: Path) -> None:
    dataset, journal = journal_of(tmp_path / "out", data)
    states = Path(dataset.states)
    store(dataset, journal, 1, 0, [1, 2, 3])
    store(dataset, journal, 2, 1, [4, 5])
    store(dataset, journal, 4, 2, [6])
    (states / "hs_0.safetensors").unlink()
    with (states / "hs_1.safetensors").open("ab") as file:
        file.write(b"x")
    (states / "hs_3.safetensors").write_bytes(states_bytes([1, 2, 3]))  # named, and killed before the journal said so
    (states / "hs_4.safetensors").write_bytes(states_bytes([7] * 9))  # not this row's
    (states / ".tmp-4").write_bytes(b"half")
    (states / "notes.txt").write_text("somebody's")
    assert ds.settle(dataset, journal, LAYERS, HIDDEN) == ds.Settled(missing=2, adopted=1, temporary=1)
    assert [e.row for e in journal.stored()] == [2, 3]
    assert [e.row for e in journal.waiting(10)] == [0, 1, 4]
    assert not (states / ".tmp-4").exists()
    assert (states / "notes.txt").exists()


def test_rows_of_failed_samples_are_closed_and_given_again(tmp_path: Path, data: Path) -> None:
    dataset, journal = journal_of(tmp_path / "out", data)
    for line, row, ids in ((2, 1, [4, 5]), (5, 3, [1, 2, 3]), (6, 4, [7] * 10)):
        store(dataset, journal, line, row, ids)
    for line in (1, 4):
        journal.set_failed(line, FAILED, "timeout", "late")
    ds.close_holes(dataset, journal)
    assert sorted(path.name for path in Path(dataset.states).iterdir()) == [f"hs_{i}.safetensors" for i in range(3)]
    assert [(e.line, e.row) for e in journal.stored()] == [(2, 0), (5, 1), (6, 2)]
    journal.requeue()
    assert [(e.line, e.row) for e in journal.waiting(10)] == [(1, 3), (4, 4)]


def test_a_bad_start_stops_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"input_ids": [[1, 2]]}\n' * 51 + '{"input_ids": [1]}\n' * 49 + '{"input_ids": [1]}\n' * 1000)
    with pytest.raises(
        ExtractionError, match=r"51 of the first 100 samples of .* are bad, first line 1: input_ids is a list of lists"
    ):
        read(tmp_path, path)
    path.write_text('{"input_ids": [[1, 2]]}\n' * 50 + '{"input_ids": [1]}\n' * 50)
    read(tmp_path, path)
    path.write_text('{"input_ids": {}}\n' * 3)
    with pytest.raises(ExtractionError, match=r"has no usable sample: 3 were read, 3 refused, first line 1"):
        read(tmp_path, path)


def test_one_bad_sample_stops_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"input_ids": [1]}\n{"input_ids": [-5]}\n')
    with pytest.raises(ExtractionError, match=r"line 2: input_ids\[0\] = -5 is outside the vocabulary"):
        read(tmp_path, path, on_bad="stop")


def read(tmp_path: Path, path: Path, on_bad: str = "skip") -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as work:
        _, journal = journal_of(Path(work) / "out", path, Order(on_bad=on_bad))
        journal.close()


def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out" / "hidden_states").mkdir(parents=True)
    with pytest.raises(ExtractionError, match="holds hidden_states, which no extraction of ours wrote"):
        ds.prepare(str(tmp_path / "out"))
    with pytest.raises(ExtractionError, match=r"parent directory .* does not exist"):
        ds.prepare(str(tmp_path / "nowhere" / "out"))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    import os

    dataset = ds.prepare(str(tmp_path / "out"))
    assert not ds.is_locked(dataset)
    held = ds.take_lock(dataset, "/runs/extract-1")
    assert ds.is_locked(dataset)
    with pytest.raises(ExtractionError, match=rf'another extraction .*"pid": {os.getpid()}.*extract-1'):
        ds.take_lock(dataset, "/runs/extract-2")
    os.close(held)
    os.close(ds.take_lock(dataset, "/runs/extract-3"))


def test_states_of_waiting_are_known(tmp_path: Path, data: Path) -> None:
    _, journal = journal_of(tmp_path / "out", data)
    assert {entry.state for entry in journal.waiting(10)} == {WAITING}


def test_looking_while_another_thread_writes_and_another_connection_reads_the_input(tmp_path: Path, data: Path) -> None:
    _, journal = journal_of(tmp_path / "out", data)
    reader = Journal(str(tmp_path / "out/.eagle3/journal.sqlite3"))
    over = threading.Event()

    def again_and_again(act: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                act()
        finally:
            over.set()

    acts: list[Callable[[], object]] = [
        lambda: reader.put("reading", {"number": 6}),
        lambda: journal.set_state(1, WAITING),
        lambda: (journal.reading(), journal.waiting(10), journal.group("run:"), journal.facts()),
        lambda: (journal.counts(), journal.problems(10), journal.has_samples()),
    ]
    with ThreadPoolExecutor(len(acts)) as threads:
        doing = [threads.submit(again_and_again, act) for act in acts]
        over.wait(1.0)
        over.set()
    for done in doing:
        done.result()
