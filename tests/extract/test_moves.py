"""Closing the holes that failed samples left: killed anywhere, no file is lost and every row ends where its Arrow row is."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.records import FAILED, StoredFile
from eagle3_remote.extract.statesfile import file_crc
from tests.extract.kill_at import killed_at
from tests.extract.made import HIDDEN, LAYERS, journal_of, states_bytes, stored_ids, write_data

IDS = [[10 + i] * (3 + i % 2) for i in range(8)]
HOLES = (0, 3, 4)


def with_holes(root: Path) -> tuple[ds.Dataset, Journal]:
    write_data(root.with_suffix(".jsonl"), IDS)
    dataset, journal = journal_of(root, root.with_suffix(".jsonl"))
    for row, ids in enumerate(IDS):
        if row in HOLES:
            journal.set_failed(row + 1, FAILED, "timeout", "late")
            continue
        path = Path(dataset.states) / f"hs_{row}.safetensors"
        path.write_bytes(states_bytes(ids))
        journal.set_stored([StoredFile(row + 1, row, path.stat().st_size, file_crc(str(path)), 0.0)])
    return dataset, journal


def is_whole(dataset: ds.Dataset, journal: Journal) -> None:
    left = [ids for row, ids in enumerate(IDS) if row not in HOLES]
    assert [entry.row for entry in journal.stored()] == list(range(len(left)))
    assert len(list(Path(dataset.states).iterdir())) == len(left)
    for entry, ids in zip(journal.stored(), left, strict=True):
        assert stored_ids(dataset, f"hs_{entry.row}.safetensors") == ids
        assert file_crc(str(Path(dataset.states) / f"hs_{entry.row}.safetensors")) == entry.crc32


def test_killed_between_any_two_steps(tmp_path: Path) -> None:
    """Every point is hit once; then an undisturbed start finishes what the killed one left."""
    at = 1
    while True:
        dataset, journal = with_holes(tmp_path / f"at{at}")
        journal.close()
        points = killed_at(at, lambda root=dataset.root: start_and_close(root))  # type: ignore[misc]
        journal = start_and_close(dataset.root)
        is_whole(dataset, journal)
        journal.close()
        if points is not None:
            assert at == points + 1 > 2 * len(IDS)
            return
        at += 1


def start_and_close(root: str) -> Journal:
    """What a run does before and after sending."""
    dataset = ds.Dataset(root)
    journal = Journal(dataset.journal)
    ds.settle(dataset, journal, LAYERS, HIDDEN)
    ds.close_holes(dataset, journal)
    return journal


def test_a_file_taken_in_the_middle_costs_only_its_own_sample(tmp_path: Path) -> None:
    dataset, journal = with_holes(tmp_path / "out")
    journal.plan_moves()
    states = Path(dataset.states)
    for source, target in ((1, 0), (2, 1), (5, 2)):
        (states / f"hs_{source}.safetensors").rename(states / f"hs_{target}.safetensors")
    (states / "hs_6.safetensors").unlink()
    ds.settle(dataset, journal, LAYERS, HIDDEN)
    assert [stored_ids(dataset, f"hs_{e.row}.safetensors")[0] for e in journal.stored()] == [11, 12, 15, 17]
    assert [entry.line for entry in journal.waiting(10)] == [7]


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_the_rows_on_disk_tell_how_far_it_got(rows: set[int], data: st.DataObject) -> None:
    moves = [(row, at) for at, row in enumerate(sorted(rows)) if row != at]
    done = data.draw(st.integers(0, len(moves)))
    present = {at for at, row in enumerate(sorted(rows)) if row == at}
    present |= {to for _, to in moves[:done]} | {row for row, _ in moves[done:]}
    assert ds.moves_done(moves, present) == done
    if moves:
        gone = data.draw(st.sampled_from(sorted({to for _, to in moves[:done]} | {row for row, _ in moves[done:]})))
        found = ds.moves_done(moves, present - {gone})
        assert found is None, (moves, present, gone, found)


def test_the_plan_is_durable_before_a_file_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss the renames may be there; a plan that is not would give files to other samples' rows."""
    dataset, journal = with_holes(tmp_path / "out")
    said: list[str] = []
    journal._db.set_trace_callback(said.append)
    before: list[list[str]] = []
    real = os.rename

    def rename(source: str, target: str) -> None:
        before.append(list(said))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    ds.close_holes(dataset, journal)
    modes = [one.rpartition("=")[2] for one in before[0] if one.startswith("PRAGMA synchronous=") or one == "COMMIT"]
    assert modes.count("COMMIT") >= 2
    assert [mode for mode, then in itertools.pairwise(modes) if then == "COMMIT"] == ["FULL"] * modes.count("COMMIT")
    is_whole(dataset, journal)
