"""Where prepared samples come from: JSON lines (plain or gzip), Arrow as ``datasets`` saves it, Parquet; a file or a folder, streamed.

A source is read once, from front to back, from any position on (`Position`). Nothing of it is held whole.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.input import MAX_LINE_BYTES, Line, Row

COLUMNS = ("input_ids", "loss_mask", "id")
_PROBE_ENDS, _PROBE_BLOCKS, _PROBE_BLOCK = 1024 * 1024, 64, 64 * 1024
_BATCH_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a source was read: the next item is number `number` + 1 and begins at byte `offset` (of unpacked text)."""

    number: int = 0
    offset: int = 0


@dataclasses.dataclass
class Progress:
    """How much was read, kept by `Source.items`."""

    fraction: float = 0.0
    """Of the bytes of all files."""


@dataclasses.dataclass(frozen=True)
class Source:
    """An input. `kind` is ``jsonl``, ``jsonl.gz``, ``arrow`` or ``parquet``; `files` are read in this order."""

    path: str
    kind: str
    files: tuple[str, ...]

    @property
    def unit(self) -> str:
        """What an item of it is called in a message."""
        return "line" if self.kind.startswith("jsonl") else "row"

    @property
    def bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self.files)

    def items(self, start: Position, progress: Progress | None = None) -> Iterator[Line | Row]:
        """Every item from `start` on; `progress` is kept up to date.

        Raises:
            OSError, ValueError: a file cannot be read any further (pyarrow's and gzip's errors are these).
        """
        progress = progress or Progress()
        if not self.kind.startswith("jsonl"):
            yield from _rows(self, start.number, progress)
            return
        with open(self.files[0], "rb") as file:
            size = max(os.fstat(file.fileno()).st_size, 1)
            if self.kind == "jsonl":
                file.seek(start.offset)
                for line in lines(file, start):
                    progress.fraction = line.end / size
                    yield line
                return
            try:
                with gzip.open(file, "rb") as unpacked:
                    unpacked.seek(start.offset)  # unpacks all before it
                    for line in lines(unpacked, start):
                        progress.fraction = file.tell() / size
                        yield line
            except (EOFError, zlib.error) as error:
                raise ValueError(f"it is cut off or damaged: {error}") from None

    def identity(self) -> str:
        """BLAKE2b-128 over number, sizes and sampled bytes of the files: head, tail and 64 blocks between, of each.

        The same for a copy elsewhere; a file of 50 GB takes 6 MB of reading.
        """
        digest = hashlib.blake2b(digest_size=16)
        for path in self.files:
            digest.update(_probe(path))
        return digest.hexdigest()

    def stat(self) -> list[list[int]]:
        """Size and modification time in ns of each file: the same where nothing was touched."""
        return [[seen.st_size, seen.st_mtime_ns] for seen in map(os.stat, self.files)]


def lines(file: BinaryIO | gzip.GzipFile, start: Position = Position()) -> Iterator[Line]:
    """Every non-blank line of `file`, which stands at `start`."""
    number, offset = start.number, start.offset
    while head := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        size = len(head)
        whole = size <= MAX_LINE_BYTES or head.endswith(b"\n")
        rest = b"" if whole else head
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(1024 * 1024)
            size += len(rest)
        if not whole:
            yield Line(number, offset, size, None)
        elif not head.isspace():
            yield Line(number, offset, size, head)
        offset += size


def find(path: str) -> Source:
    """The source at `path`, known by its contents rather than its name.

    Raises:
        ExtractionError: there is nothing that can be read as samples.
    """
    try:
        if os.path.isdir(path):
            return _folder(path)
        if not os.path.isfile(path):
            raise ExtractionError(f"The data file {path} does not exist, or is neither a file nor a folder.")
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise ExtractionError(f"The data {path} cannot be read: {error.strerror}.") from None
    if head.startswith(b"\x1f\x8b"):
        return Source(path, "jsonl.gz", (path,))
    if head.startswith(b"PAR1"):
        return Source(path, "parquet", (path,))
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return Source(path, "arrow", (path,))
    return Source(path, "jsonl", (path,))


def _folder(path: str) -> Source:
    if os.path.exists(os.path.join(path, "dataset_dict.json")):
        with open(os.path.join(path, "dataset_dict.json"), encoding="utf-8") as file:
            splits = json.load(file).get("splits", [])
        raise ExtractionError(
            f"{path} holds several splits ({', '.join(map(str, splits))}): name one, for example {os.path.join(path, str(splits[0]))}."
        )
    state = os.path.join(path, "state.json")
    if os.path.exists(state):
        return Source(path, "arrow", _saved_files(path, state))
    found = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if not name.startswith((".", "_"))
    )
    for kind in ("parquet", "arrow"):
        files = tuple(one for one in found if one.endswith("." + kind))
        if files:
            return Source(path, kind, files)
    raise ExtractionError(
        f"{path} is a folder without .parquet or .arrow files: name a JSON-lines file, or a folder of one of these."
    )


def _saved_files(path: str, state: str) -> tuple[str, ...]:
    """The files of a ``datasets.save_to_disk`` folder, in their order."""
    try:
        with open(state, encoding="utf-8") as file:
            said = json.load(file)
        names = [one["filename"] for one in said["_data_files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ExtractionError(f"{state} does not name the files of a saved dataset: {error!r}.") from None
    if said.get("_indices_data_files"):
        raise ExtractionError(
            f"{path} is a selection of rows saved by an old version of datasets: save it again with flatten_indices()."
        )
    files = tuple(os.path.join(path, name) for name in names)
    missing = [one for one in files if not os.path.isfile(one)]
    if missing or not files:
        raise ExtractionError(f"{path} is not whole: {missing[0] if missing else 'it has no data file'} is missing.")
    return files


def _probe(path: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(size.to_bytes(8, "little"))
        digest.update(file.read(_PROBE_ENDS))
        rest = size - 2 * _PROBE_ENDS
        for block in range(_PROBE_BLOCKS if rest > 0 else 0):
            file.seek(_PROBE_ENDS + rest * block // _PROBE_BLOCKS)
            digest.update(file.read(_PROBE_BLOCK))
        file.seek(max(_PROBE_ENDS, size - _PROBE_ENDS))
        digest.update(file.read())
    return digest.digest()


# tables


def _rows(source: Source, done: int, progress: Progress) -> Iterator[Row]:
    """Rows after the first `done`, numbered over all files."""
    number, passed = 0, 0
    whole = max(source.bytes, 1)
    for path in source.files:
        size = os.path.getsize(path)
        for batch, part in _parquet(path, done - number) if source.kind == "parquet" else _arrow(path):
            progress.fraction = (passed + part * size) / whole
            skipped = batch if isinstance(batch, int) else min(batch.num_rows, max(0, done - number))
            number += skipped
            if isinstance(batch, int):
                continue
            names = [name for name in COLUMNS if name in batch.schema.names]
            if not names:
                names = batch.schema.names[:1]  # its rows are refused one by one, with the names of the columns
            for at in range(skipped, batch.num_rows, _BATCH_ROWS):
                piece = batch.select(names).slice(at, _BATCH_ROWS)
                for cells in piece.to_pylist():
                    number += 1
                    yield Row(number, cells)
        passed += size


def _arrow(path: str) -> Iterator[tuple[Any, float]]:
    """Record batches of an Arrow IPC stream (as ``datasets`` writes) or file, each with how much of the file ends with it."""
    import pyarrow as pa

    # Not memory-mapped: mapped pages would count as this process's memory.
    with pa.OSFile(path) as file:
        head = file.read(6)
        file.seek(0)
        if head == b"ARROW1":
            reader = pa.ipc.open_file(file)
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at), (at + 1) / reader.num_record_batches
        else:
            size = max(file.size(), 1)
            with pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield batch, file.tell() / size


def _parquet(path: str, skip: int) -> Iterator[tuple[Any, float]]:
    """Record batches of a Parquet file, each with how much of the file ends with it.

    Row groups that are all in the first `skip` rows are passed over: their number of rows comes instead.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        wanted = [name for name in COLUMNS if name in file.schema_arrow.names]
        rows, passed = max(file.metadata.num_rows, 1), 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if passed + count <= skip:
                passed += count
                yield count, passed / rows
                continue
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted or None):
                passed += batch.num_rows
                yield batch, passed / rows
