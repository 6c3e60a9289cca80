"""The dataset directory: who may write it, what lies in it, and making it whole.

::

    data-00000-of-00001.arrow  dataset_info.json  state.json   written at the end (`arrow.write`)
    hidden_states/hs_<row>.safetensors                         one a stored sample
    .eagle3/journal.sqlite3  samples.bin  manifest.json  lock   ours
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from eagle3_remote.extract import damaged, place
from eagle3_remote.extract.collect import TMP_PREFIX, file_name, row_of, sync_dir
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.records import Entry, StoredFile
from eagle3_remote.extract.statesfile import file_crc, read_header, read_ids
from eagle3_remote.files import locked

ARROW_FILE = "data-00000-of-00001.arrow"
INFO_FILE, STATE_FILE = place.INFO_FILE, place.STATE_FILE


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The paths of one dataset."""

    root: str

    @property
    def states(self) -> str:
        return os.path.join(self.root, "hidden_states")

    @property
    def ours(self) -> str:
        return os.path.join(self.root, ".eagle3")

    @property
    def journal(self) -> str:
        return os.path.join(self.ours, "journal.sqlite3")

    @property
    def spool(self) -> str:
        return os.path.join(self.ours, "samples.bin")

    @property
    def manifest(self) -> str:
        return os.path.join(self.ours, "manifest.json")

    @property
    def lock(self) -> str:
        return os.path.join(self.ours, "lock")


@dataclasses.dataclass(frozen=True)
class Settled:
    """What was put right at the start of a run."""

    missing: int = 0
    """Stored samples whose file was gone, damaged by a check's finding, or had another size: they wait again."""
    adopted: int = 0
    """Complete files the journal did not know as stored."""
    temporary: int = 0
    """Half files removed."""


def check_place(root: str, model: str = "", data: str = "") -> None:
    """Refuse a place where no dataset can be; nothing is made.

    Args:
        root: absolute.
        model: the model's folder; empty: not known.
        data: the input; empty: not known.

    Raises:
        ExtractionError: the parent is missing, somebody else's data lie there, or it is among the files of another
            dataset, of the model or of the data.
    """
    parent = os.path.dirname(root)
    if not os.path.isdir(parent):
        raise ExtractionError(
            f"The output's parent directory {parent} does not exist: make it or choose another --out."
        )
    if (why := place.misplaced(root, model, data)) is not None:
        raise ExtractionError(f"The output {root} {why}.")
    if os.path.isdir(root) and (name := place.foreign(root)) is not None:
        raise ExtractionError(
            f"{root} holds {name}, which no extraction of ours wrote: choose another output directory."
        )


def prepare(root: str, model: str = "", data: str = "") -> Dataset:
    """Make the directories.

    Raises:
        ExtractionError: as `check_place`, or it cannot be written.
    """
    root = os.path.abspath(root)
    check_place(root, model, data)
    dataset = Dataset(root)
    try:
        for path in (root, dataset.ours, dataset.states):
            os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ExtractionError(f"The output directory {root} cannot be made: {error.strerror}.") from None
    return dataset


def take_lock(dataset: Dataset, run_dir: str) -> int:
    """Hold the dataset for the life of this process; returns the open descriptor.

    Raises:
        ExtractionError: another extraction holds it; the text says which.
    """
    fd = os.open(dataset.lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 4096, 0).decode("utf-8", "replace")
        os.close(fd)
        raise ExtractionError(
            f"{dataset.root} is being written by another extraction ({holder or 'unknown'}): wait for it or stop it."
        ) from None
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time()), "run_dir": run_dir}
    with contextlib.suppress(OSError):  # a full disk: who it is, is for looking only
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(who).encode(), 0)
    return fd


def is_locked(dataset: Dataset) -> bool:
    """Whether an extraction writes the dataset now."""
    return locked(dataset.lock)


def difference(kept: dict[str, Any], asked: dict[str, Any]) -> str | None:
    """Which of the settings of a dataset differ from what is asked now, in words; `None`: none."""
    parts = [
        f"{key} is {_shown(kept.get(key))} there, {_shown(asked[key])} is asked"
        for key in asked
        if kept.get(key) != asked[key]
    ]
    return "; ".join(parts) or None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:12] + "..."


def settle(dataset: Dataset, journal: Journal, layers: int, hidden_size: int) -> Settled:
    """Bring journal and files together after whatever ended the last run. Files are believed over the journal."""
    temporary = _remove_half_files(dataset)
    finish_moves(dataset, journal)
    damaged.give_up(dataset.ours, dataset.states, journal)
    missing = journal.set_present(_files(dataset))
    found = (_adoptable(dataset, entry, layers, hidden_size) for entry in journal.found())
    adopted = [file for file in found if file is not None]
    journal.set_stored(adopted)
    return Settled(missing, len(adopted), temporary)


def _remove_half_files(dataset: Dataset) -> int:
    half = [entry.path for entry in os.scandir(dataset.states) if entry.name.startswith(TMP_PREFIX)]
    for path in half:
        os.unlink(path)
    return len(half)


def _files(dataset: Dataset) -> Iterator[tuple[int, int]]:
    """(row, bytes) of every file of states."""
    for entry in os.scandir(dataset.states):
        row = row_of(entry.name)
        if row is not None:
            yield row, entry.stat().st_size


def _adoptable(dataset: Dataset, entry: Entry, layers: int, hidden_size: int) -> StoredFile | None:
    """A file gets its final name only after its values were checked, so header and ids decide."""
    path = os.path.join(dataset.states, file_name(entry.row))
    try:
        header = read_header(path)
        same = hashlib.blake2b(read_ids(path, header), digest_size=16).digest() == entry.fingerprint
    except (OSError, ValueError):
        return None
    if not same or header.shape != (entry.tokens, layers, hidden_size):
        return None
    return StoredFile(entry.line, entry.row, header.size, file_crc(path), time.time())


def close_holes(dataset: Dataset, journal: Journal) -> None:
    """Rename stored files so that rows 0..n-1 all exist, in ascending order. Killed anywhere, `settle` finishes it."""
    for row in journal.unstored_rows():
        try:
            os.unlink(os.path.join(dataset.states, file_name(row)))
        except FileNotFoundError:
            continue
    journal.plan_moves()
    finish_moves(dataset, journal)


def finish_moves(dataset: Dataset, journal: Journal) -> None:
    """Do what is left of the planned renames."""
    while planned := journal.moves():
        rows = {row for entry, target in planned for row in (entry.row, target)}
        present = {row for row in rows if os.path.exists(_path(dataset, row))}
        done = moves_done([(entry.row, target) for entry, target in planned], present)
        left = planned[done:] if done is not None else _tell_apart(dataset, journal, planned)
        for entry, target in left:
            os.rename(_path(dataset, entry.row), _path(dataset, target))
        sync_dir(dataset.states)
        journal.moved(entry.line for entry, _ in planned)


def _path(dataset: Dataset, row: int) -> str:
    return os.path.join(dataset.states, file_name(row))


def moves_done(moves: list[tuple[int, int]], present: set[int]) -> int | None:
    """How many of the renames (from, to), ascending and done in this order, are done, judged by which rows exist.

    After k renames exactly ``to[:k]`` and ``from[k:]`` exist. Each rename lowers the sum of the rows (to < from), so the sum names k.
    `None`: the rows are not those of any k (somebody else took or added a file).
    """
    seen = present & {row for move in moves for row in move}
    left = sum(row for row, _ in moves) - sum(seen)
    for k in range(len(moves) + 1):
        if left == 0:
            return k if seen == {to for _, to in moves[:k]} | {row for row, _ in moves[k:]} else None
        if k < len(moves):
            left -= moves[k][0] - moves[k][1]
    return None


def _tell_apart(dataset: Dataset, journal: Journal, planned: list[tuple[Entry, int]]) -> list[tuple[Entry, int]]:
    """Somebody else took a file: find by checksum which renames are done. Returns those to be done; lost samples wait again."""
    left: list[tuple[Entry, int]] = []
    lost: list[int] = []
    claimed: set[int] = set()
    for entry, target in planned:
        there = [row for row in (target, entry.row) if row not in claimed and _holds(_path(dataset, row), entry)]
        if not there:
            lost.append(entry.line)
            continue
        claimed.add(there[0])
        if there[0] == entry.row:
            left.append((entry, target))
    journal.set_missing(lost)
    return left


def _holds(path: str, entry: Entry) -> bool:
    return os.path.exists(path) and os.path.getsize(path) == entry.bytes and file_crc(path) == entry.crc32


def write_json(path: str, value: Any) -> None:
    """Write by tmp + fsync + rename."""
    tmp = path + ".tmp"
    with open(tmp, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(tmp, path)


def read_manifest(dataset: Dataset) -> dict[str, Any]:
    """The manifest, or an empty one where it is missing or broken."""
    try:
        with open(dataset.manifest, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
