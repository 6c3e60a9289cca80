"""Read the whole input once into the journal, or find that an earlier run did."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from itertools import islice

from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.input import Bad, Rules, Sample, lines, parse
from eagle3_remote.extract.journal import Journal

_JUDGED = 100
_BATCH = 500


class Stopped(Exception):
    """The person stopped the extraction while the input was read."""


def data_digest(path: str, limit: int) -> str:
    """BLAKE2b-256 of the lines that an extraction reads."""
    digest = hashlib.blake2b(digest_size=32)
    with open(path, "rb") as file:
        for _ in islice(lines(file, digest), limit or None):
            pass
    return digest.hexdigest()


def read_input(
    journal: Journal,
    path: str,
    rules: Rules,
    *,
    limit: int,
    on_bad: str,
    stop: threading.Event,
    seen: Callable[[int], None],
) -> str:
    """Check every line and journal it; valid samples get rows in input order. Returns `data_digest`.

    Args:
        seen: told now and then how many samples were read.

    Raises:
        ExtractionError: no valid sample, most of the first 100 bad, or (`on_bad` ``stop``) one bad.
        Stopped: `stop` was set; the next run reads again.
        OSError: the file cannot be read.
    """
    journal.clear_samples()
    digest = hashlib.blake2b(digest_size=32)
    row, count = 0, 0
    bad: list[Bad] = []
    batch: list[Sample | Bad] = []
    with open(path, "rb") as file:
        for line in islice(lines(file, digest), limit or None):
            if stop.is_set():
                raise Stopped
            item = parse(line, rules)
            batch.append(item)
            count += 1
            if isinstance(item, Bad):
                if on_bad == "stop":
                    journal.add(batch, row)
                    raise ExtractionError(
                        f"{path}, {_said(item)}. Correct the file, or let bad samples be skipped (--on-bad skip)."
                    )
                if len(bad) < _JUDGED:
                    bad.append(item)
            if count == _JUDGED and 2 * len(bad) > _JUDGED:
                journal.add(batch, row)
                raise ExtractionError(
                    f"{len(bad)} of the first {_JUDGED} samples of {path} are bad, first {_said(bad[0])}."
                )
            if len(batch) >= _BATCH:
                row = journal.add(batch, row)
                batch = []
                seen(count)
    row = journal.add(batch, row)
    seen(count)
    if row == 0:
        first = f", first {_said(bad[0])}" if bad else ""
        raise ExtractionError(f"{path} has no usable sample: {count} were read, {len(bad)} refused{first}.")
    return digest.hexdigest()


def stat_of(path: str) -> list[int]:
    """Size and modification time in ns: the same for a file that was not touched."""
    seen = os.stat(path)
    return [seen.st_size, seen.st_mtime_ns]


def _said(bad: Bad) -> str:
    return f"line {bad.line}: {bad.reason}"
