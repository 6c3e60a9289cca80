"""One row a sample in ``.eagle3/journal.sqlite3``: what was read, sent, stored, refused.

Not safe for use from two threads at once; the extraction uses it from one at a time. Commits survive a killed process; after a power
loss the last ones may be gone, which is why the files on disk are believed over the journal (see `dataset.settle`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from eagle3_remote.extract.input import Bad, Sample

WAITING, SENT, CHECKED, STORED, REJECTED, FAILED = "waiting", "sent", "checked", "stored", "rejected", "failed"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS samples (
    line INTEGER PRIMARY KEY, offset INTEGER NOT NULL, size INTEGER NOT NULL,
    row INTEGER, target INTEGER, sample_id TEXT,
    tokens INTEGER NOT NULL DEFAULT 0, loss_tokens INTEGER NOT NULL DEFAULT 0, full_tokens INTEGER NOT NULL DEFAULT 0,
    has_mask INTEGER NOT NULL DEFAULT 0, fingerprint BLOB,
    state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, kind TEXT, reason TEXT,
    bytes INTEGER, crc32 INTEGER, stored_at REAL
);
CREATE INDEX IF NOT EXISTS by_row ON samples(row);
CREATE INDEX IF NOT EXISTS waiting ON samples(attempts, row) WHERE state = 'waiting';
"""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One valid sample as the journal knows it. `bytes` and `crc32` are those of its stored file."""

    line: int
    offset: int
    size: int
    row: int
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


_ENTRY = "line, offset, size, row, tokens, fingerprint, state, attempts, bytes, crc32"


class Journal:
    """The journal of one dataset.

    Raises:
        OSError: ENOSPC where the disk is full: nothing of the change was kept, and it may be tried again.
        sqlite3.Error: the file is damaged.
    """

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        with self._writing():
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, kept whole or not at all."""
        try:
            if self._db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("BEGIN")
            yield self._db
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError) and "disk is full" in str(error):
                raise OSError(errno.ENOSPC, "no space for the journal") from None
            raise

    # facts

    def get(self, key: str) -> Any:
        """A fact, or `None`."""
        found = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else json.loads(found[0])

    def put(self, key: str, value: Any) -> None:
        """Keep a fact (any JSON value)."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    # reading the input

    def clear_samples(self) -> None:
        """Forget a reading that did not come to its end."""
        with self._writing() as db:
            db.execute("DELETE FROM samples")

    def add(self, batch: Iterable[Sample | Bad], next_row: int) -> int:
        """Add read lines; valid ones get the rows from `next_row` on. Returns the next free row."""
        good, bad = [], []
        for item in batch:
            if isinstance(item, Bad):
                bad.append((item.line, item.offset, item.size, item.kind, item.reason))
                continue
            head = (item.line, item.offset, item.size, next_row, item.sample_id)
            good.append((*head, item.tokens, item.loss_tokens, item.full_tokens, item.has_mask, item.fingerprint))
            next_row += 1
        with self._writing() as db:
            db.executemany(
                "INSERT INTO samples (line, offset, size, state, kind, reason) VALUES (?, ?, ?, 'rejected', ?, ?)", bad
            )
            db.executemany(
                "INSERT INTO samples (line, offset, size, row, sample_id, tokens, loss_tokens, full_tokens, has_mask,"
                " fingerprint, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'waiting')",
                good,
            )
        return next_row

    # sending and storing

    def requeue(self) -> None:
        """What was on its way or had failed when the last run ended waits again.

        Failed ones come last, by their attempts. Those that lost their row when holes were closed get new ones at the end.
        """
        with self._writing() as db:
            top = db.execute("SELECT coalesce(max(row), -1) FROM samples").fetchone()[0]
            rowless = db.execute(
                "SELECT line FROM samples WHERE state = 'failed' AND row IS NULL ORDER BY line"
            ).fetchall()
            db.executemany(
                "UPDATE samples SET row = ? WHERE line = ?", [(at, line) for at, (line,) in enumerate(rowless, top + 1)]
            )
            db.execute(
                "UPDATE samples SET state = 'waiting', kind = NULL, reason = NULL"
                " WHERE state IN ('sent', 'checked', 'failed')"
            )

    def waiting(self, limit: int) -> list[Entry]:
        """The next samples to send: untried ones in row order, then those that were tried before."""
        found = self._db.execute(
            f"SELECT {_ENTRY} FROM samples WHERE state = 'waiting' ORDER BY attempts, row LIMIT ?", (limit,)
        ).fetchall()
        return [Entry(*row) for row in found]

    def set_state(self, line: int, state: str) -> None:
        """Note a step; `sent` also counts an attempt."""
        step = 1 if state == SENT else 0
        with self._writing() as db:
            db.execute("UPDATE samples SET state = ?, attempts = attempts + ? WHERE line = ?", (state, step, line))

    def set_failed(self, line: int, state: str, kind: str, reason: str) -> None:
        """Note why an attempt failed; `state` is `waiting` (to be tried again) or `failed`."""
        with self._writing() as db:
            db.execute(
                "UPDATE samples SET state = ?, kind = ?, reason = ? WHERE line = ?", (state, kind, reason[:1000], line)
            )

    def set_stored(self, files: Iterable[StoredFile]) -> None:
        """Note files that lie under their final names, in one transaction."""
        with self._writing() as db:
            db.executemany(
                "UPDATE samples SET state = 'stored', row = ?, bytes = ?, crc32 = ?, stored_at = ?, kind = NULL,"
                " reason = NULL WHERE line = ?",
                [(f.row, f.bytes, f.crc32, f.stored_at, f.line) for f in files],
            )

    def set_missing(self, lines: Iterable[int]) -> None:
        """Stored samples whose file is not there any more wait again."""
        with self._writing() as db:
            db.executemany(
                "UPDATE samples SET state = 'waiting', bytes = NULL, crc32 = NULL, stored_at = NULL, target = NULL"
                " WHERE line = ?",
                [(line,) for line in lines],
            )

    # closing the holes

    def plan_moves(self) -> None:
        """Give every stored sample its place without holes, and take the row from failed ones."""
        with self._writing() as db:
            db.execute("UPDATE samples SET row = NULL WHERE state = 'failed'")
            stored = db.execute("SELECT line FROM samples WHERE state = 'stored' ORDER BY row").fetchall()
            places = [(at, line) for at, (line,) in enumerate(stored)]
            db.executemany("UPDATE samples SET target = ? WHERE line = ?", places)

    def moves(self) -> list[tuple[Entry, int]]:
        """Stored samples whose file moves (or has moved) to another row, ascending, each with that row."""
        found = self._db.execute(
            f"SELECT {_ENTRY}, target FROM samples WHERE state = 'stored' AND target != row ORDER BY row"
        ).fetchall()
        return [(Entry(*row[:-1]), row[-1]) for row in found]

    def moves_done(self) -> None:
        """Every file lies at its planned row."""
        with self._writing() as db:
            db.execute("UPDATE samples SET row = target, target = NULL WHERE target IS NOT NULL")

    # asking

    def stored(self) -> Iterator[Entry]:
        """Stored samples in row order."""
        for row in self._db.execute(f"SELECT {_ENTRY} FROM samples WHERE state = 'stored' ORDER BY row"):
            yield Entry(*row)

    def unstored_rows(self) -> dict[int, Entry]:
        """Valid samples without a stored file, by row."""
        found = self._db.execute(f"SELECT {_ENTRY} FROM samples WHERE row IS NOT NULL AND state != 'stored'")
        return {row[3]: Entry(*row) for row in found}

    def problems(self, limit: int) -> list[tuple[int, str, str, str]]:
        """(line, state, kind, reason) of refused and failed samples, in input order."""
        return self._db.execute(
            "SELECT line, state, coalesce(kind, ''), coalesce(reason, '') FROM samples WHERE state IN ('rejected', 'failed')"
            " ORDER BY line LIMIT ?",
            (limit,),
        ).fetchall()

    def duplicates(self) -> dict[str, int]:
        """How many valid samples repeat the ids, and how many the id, of an earlier one."""
        row = self._db.execute(
            "SELECT count(fingerprint) - count(DISTINCT fingerprint), count(sample_id) - count(DISTINCT sample_id) FROM samples"
        ).fetchone()
        return {"input_ids": row[0], "id": row[1]}

    def counts(self) -> Counts:
        """The counters, from the table."""
        row = self._db.execute(
            """SELECT count(*), total(state = 'stored'), total(state = 'rejected'), total(state = 'failed'),
                total(state IN ('waiting', 'sent', 'checked')), total(tokens), total(tokens * (state = 'stored')),
                total(bytes * (state = 'stored')), total(full_tokens > tokens), total(state != 'rejected' AND has_mask = 0),
                coalesce(max(tokens), 0) FROM samples"""
        ).fetchone()
        return Counts(*(int(value) for value in row))


def open_readonly(path: str) -> Journal:
    """The journal for a look, while an extraction may be writing it.

    Raises:
        FileNotFoundError: there is none.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    journal = Journal.__new__(Journal)
    # Not mode=ro: reading a WAL journal after a crash needs its shared-memory file, which is made on the fly.
    journal._db = sqlite3.connect(path, timeout=30, isolation_level=None)
    journal._db.execute("PRAGMA query_only=ON")
    return journal
