"""A look at an input before a run: is it what the extraction reads, how many samples are in it, and how long are they.

Samples are read at the front and here and there behind it, never all of it. Tables need pyarrow, so this runs as a process of its own.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.input import Bad, Line, Row, Rules, parse
from eagle3_remote.extract.sources import COLUMNS, Position, Source, find, lines
from eagle3_remote.protocol import DataLook, encode
from eagle3_remote.protocol.paths import MOST_LENGTHS

FRONT = 200
"""Samples read at the front."""
PLACES, EACH = 24, 8
"""So many places behind it, and samples at each."""
SMALL = 2 << 20
"""Bytes of JSON lines that are read to the end."""
PACKED_FRONT = 1 << 20
"""Bytes of a packed input that are read."""
FEW_FILES = 16
"""Of an input of more, telling its identity would read too much for a look: 6 MB each."""
_ANY = Rules(1 << 62, 1 << 62, "")
"""Vocabulary and context are the console's to judge: here ids and lengths are only told."""


@dataclasses.dataclass
class _Seen:
    """What was read."""

    samples: int = 0
    tokens: int = 0
    bytes: int = 0
    bad: int = 0
    first_bad: str = ""
    longest: int = 0
    lowest_id: int = 0
    highest_id: int = -1
    highest_at: str = ""
    without_mask: int = 0
    lengths: list[int] = dataclasses.field(default_factory=list)

    @property
    def density(self) -> tuple[float, float]:
        """(samples, tokens) a byte."""
        return self.samples / max(self.bytes, 1), self.tokens / max(self.bytes, 1)

    def take(self, item: Line | Row, where: str) -> None:
        """One more."""
        self.bytes += item.size if isinstance(item, Line) else 0
        got = parse(item, _ANY)
        if isinstance(got, Bad):
            self.bad += 1
            self.first_bad = self.first_bad or f"{where}: {got.reason}"
            return
        low, high = min(got.ids), max(got.ids)
        self.lowest_id = low if not self.samples else min(self.lowest_id, low)
        if high > self.highest_id:
            self.highest_id, self.highest_at = high, where
        self.samples += 1
        self.tokens += got.tokens
        self.longest = max(self.longest, got.tokens)
        self.lengths.append(got.tokens)
        self.without_mask += not got.has_mask

    def join(self, other: _Seen) -> _Seen:
        """Both together; `self` was read first."""
        top = self if self.highest_id >= other.highest_id else other
        lows = [one.lowest_id for one in (self, other) if one.samples]
        return _Seen(
            self.samples + other.samples,
            self.tokens + other.tokens,
            self.bytes + other.bytes,
            self.bad + other.bad,
            self.first_bad or other.first_bad,
            max(self.longest, other.longest),
            min(lows, default=0),
            top.highest_id,
            top.highest_at,
            self.without_mask + other.without_mask,
            self.lengths + other.lengths,
        )


@dataclasses.dataclass(frozen=True)
class _Reading:
    """What was seen, and what it makes of the whole."""

    seen: _Seen
    samples: int
    tokens: int
    exact: bool


def look(path: str, seconds: float) -> DataLook:
    """See `DataLook`; what is wrong is its `error`."""
    deadline = time.monotonic() + seconds
    try:
        source = find(path)
        if not source.bytes:
            raise ExtractionError(f"{path} is empty: there is no sample in it.")
        identity = source.identity() if len(source.files) <= FEW_FILES else ""
        reading = _json_lines(source, deadline) if source.kind.startswith("jsonl") else _table(source, deadline)
    except ExtractionError as error:
        return DataLook(path, error=str(error))
    except ImportError as error:
        return DataLook(path, python_error=f"{sys.executable} cannot read tables: {error}.")
    except (OSError, ValueError, EOFError, zlib.error) as error:
        return DataLook(path, error=f"it cannot be read: {error}")
    seen = reading.seen
    return DataLook(
        path=path,
        kind=source.kind,
        files=len(source.files),
        bytes=source.bytes,
        unit=source.unit,
        samples=reading.samples,
        tokens=reading.tokens,
        exact=reading.exact,
        seen=seen.samples + seen.bad,
        bad=seen.bad,
        first_bad=seen.first_bad,
        longest=seen.longest,
        lowest_id=max(seen.lowest_id, 0),
        highest_id=max(seen.highest_id, 0),
        highest_at=seen.highest_at,
        without_mask=seen.without_mask,
        lengths=tuple(seen.lengths[:: -(-len(seen.lengths) // MOST_LENGTHS) or 1]),
        identity=identity,
    )


def _json_lines(source: Source, deadline: float) -> _Reading:
    size = os.path.getsize(source.files[0])
    with open(source.files[0], "rb") as raw:
        if source.kind == "jsonl.gz":
            return _packed(raw, size, deadline)
        front = _Seen()
        for line in itertools.islice(lines(raw), None if size <= SMALL else FRONT):
            front.take(line, f"line {line.number}")
            if time.monotonic() > deadline:
                break
        else:
            if not raw.read(1):
                return _Reading(front, front.samples, front.tokens, True)
        begin = raw.tell()
        seen, per_byte = front, [front.density]
        for at in range(PLACES):
            raw.seek(begin + (size - begin) * at // PLACES)
            raw.readline(1 << 24)  # the rest of some line
            here = _Seen()
            for line in itertools.islice(lines(raw, Position(0, raw.tell())), EACH):
                here.take(line, f"the line at byte {line.offset:,}")
            if here.bytes:
                seen = seen.join(here)
                per_byte.append(here.density)
            if time.monotonic() > deadline:
                break
    # Places are as far apart in bytes, not in lines: what each says of a byte counts alike, however long its lines are.
    most = per_byte[1:] or per_byte
    samples, tokens = (size * sum(one[which] for one in most) / len(most) for which in (0, 1))
    return _Reading(seen, round(samples), round(tokens), False)


def _packed(raw: BinaryIO, size: int, deadline: float) -> _Reading:
    """Nothing behind the front can be reached without unpacking all before it."""
    seen = _Seen()
    with gzip.GzipFile(fileobj=raw) as file:
        for line in lines(file):
            seen.take(line, f"line {line.number}")
            if raw.tell() > PACKED_FRONT or time.monotonic() > deadline:
                break
        else:
            return _Reading(seen, seen.samples, seen.tokens, True)
        share = size / raw.tell()
    return _Reading(seen, round(seen.samples * share), round(seen.tokens * share), False)


def _table(source: Source, deadline: float) -> _Reading:
    seen, rows = _Seen(), 0
    for number, piece in _pieces(source):
        rows = number + piece.num_rows
        if time.monotonic() > deadline and seen.samples:
            continue
        for at, cells in _some(piece):
            seen.take(Row(number + at + 1, cells), f"row {number + at + 1:,}")
    looked = seen.samples + seen.bad
    if looked == rows:
        return _Reading(seen, seen.samples, seen.tokens, True)
    share = rows / max(looked, 1)
    return _Reading(seen, round(seen.samples * share), round(seen.tokens * share), False)


def _some(piece: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of one record batch: all of a small one, else from `PLACES` places."""
    if isinstance(piece, _Unread):
        return
    names = [name for name in COLUMNS if name in piece.schema.names] or piece.schema.names[:1]
    picked = piece.select(names)
    if piece.num_rows <= FRONT:
        places: Sequence[tuple[int, int]] = ((0, piece.num_rows),)
    else:
        places = [(piece.num_rows * at // PLACES, EACH) for at in range(PLACES)]
    for begin, count in places:
        for at, cells in enumerate(picked.slice(begin, count).to_pylist()):
            yield begin + at, cells


def _pieces(source: Source) -> Iterable[tuple[int, Any]]:
    """Record batches with the number of rows before each. Arrow files are mapped: only the rows that are looked at are read."""
    before = 0
    for path in source.files:
        for piece in _parquet(path) if source.kind == "parquet" else _arrow(path):
            yield before, piece
            before += piece.num_rows


class _Unread:
    """A row group of which only the number of rows is told."""

    def __init__(self, rows: int) -> None:
        self.num_rows = rows


def _arrow(path: str) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(path) as file:
        head = file.read(6)
        file.seek(0)
        if head == b"ARROW1":
            reader = pa.ipc.open_file(file)
            yield from (reader.get_batch(at) for at in range(reader.num_record_batches))
        else:
            yield from pa.ipc.open_stream(file)


def _parquet(path: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        wanted = [name for name in COLUMNS if name in file.schema_arrow.names] or file.schema_arrow.names[:1]
        groups = file.metadata.num_row_groups
        chosen = {groups * at // PLACES for at in range(PLACES)}
        for group in range(groups):
            rows = file.metadata.row_group(group).num_rows
            if group not in chosen:
                yield _Unread(rows)
                continue
            batch = next(file.iter_batches(FRONT, row_groups=[group], columns=wanted), None)
            got = 0 if batch is None else batch.num_rows
            if batch is not None:
                yield batch
            if rows > got:
                yield _Unread(rows - got)


def main(argv: Sequence[str]) -> int:
    """Print the `DataLook` of PATH as JSON."""
    if len(argv) != 2:
        sys.stderr.write("Usage: main([PATH, SECONDS])\n")
        return 2
    sys.stdout.write(json.dumps(encode(look(argv[0], float(argv[1])))) + "\n")
    return 0
