"""What the journal keeps of a sample and of the reading, and the states of a sample's way."""

from __future__ import annotations

import dataclasses
from typing import Any

READ = "read"
WAITING, SENT, CHECKED, STORED, REJECTED, FAILED = "waiting", "sent", "checked", "stored", "rejected", "failed"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One valid sample as the journal knows it. `bytes` and `crc32` are those of its stored file."""

    line: int
    """Its number in the input, from 1."""
    offset: int
    """Where its record begins in ``samples.bin`` (`spool.read`)."""
    has_mask: bool
    row: int
    """Its place in the dataset."""
    tokens: int
    fingerprint: bytes
    state: str
    attempts: int
    bytes: int | None
    crc32: int | None


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file that lies under its final name."""

    line: int
    row: int
    bytes: int
    crc32: int
    stored_at: float


@dataclasses.dataclass(frozen=True)
class Counts:
    """Absolute counters."""

    total: int = 0
    """Samples read so far, but for those that are not asked for."""
    stored: int = 0
    rejected: int = 0
    failed: int = 0
    waiting: int = 0
    """Waiting, sent or checked."""
    tokens_total: int = 0
    tokens_stored: int = 0
    bytes_stored: int = 0
    cut: int = 0
    no_mask: int = 0
    largest: int = 0
    """Tokens of the longest valid sample."""
    bytes_total: int = 0
    """What the files of all valid samples take, exactly."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How far the input was read; changes together with the samples."""

    number: int = 0
    """Items passed, blank lines included."""
    offset: int = 0
    spool: int = 0
    """Bytes of ``samples.bin`` that count."""
    fraction: float = 0.0
    """Of the bytes of the input."""
    ended: bool = False
    """The source was read to its end."""
    refused: bool = False
    """The input would not do; the next run reads anew."""
    same_ids: int = 0
    """Samples that repeat the ids of an earlier one."""
    same_name: int = 0


ENTRY = "line, offset, has_mask, row, tokens, fingerprint, state, attempts, bytes, crc32"


def entry_of(row: tuple[Any, ...]) -> Entry:
    line, offset, has_mask, *rest = row
    return Entry(line, offset, bool(has_mask), *rest)
