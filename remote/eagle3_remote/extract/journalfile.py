"""The journal as a file: its tables, transactions, facts, and what a full disk does to it."""

from __future__ import annotations

import contextlib
import errno
import json
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

from eagle3_remote.extract.sqlitefull import raise_if_full

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS samples (
    line INTEGER PRIMARY KEY, row INTEGER, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    offset INTEGER, tokens INTEGER NOT NULL DEFAULT 0, loss_tokens INTEGER NOT NULL DEFAULT 0,
    full_tokens INTEGER NOT NULL DEFAULT 0, has_mask INTEGER NOT NULL DEFAULT 0, fingerprint BLOB, sample_id TEXT,
    kind TEXT, reason TEXT, bytes INTEGER, crc32 INTEGER, stored_at REAL, target INTEGER
);
CREATE INDEX IF NOT EXISTS by_row ON samples(row);
CREATE INDEX IF NOT EXISTS waiting ON samples(attempts, row) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS moving ON samples(row) WHERE target IS NOT NULL;
"""
FORMAT = 2
PATIENCE = 60.0
"""Seconds that a change waits for another program to let go of the file."""
_CHUNK = 20_000
"""Rows changed in one transaction where the whole table is gone through."""


class JournalFile:
    """One connection, which several threads may use.

    Raises:
        OSError: ENOSPC or EDQUOT where the disk or the quota is full, EBUSY where another program holds the file: nothing of the
            change was kept, and it may be tried again.
        sqlite3.Error: the file is damaged.
    """

    def __init__(self, path: str, patience: float | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        timeout = PATIENCE if patience is None else patience
        self._db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        try:
            with self._writing():
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _writing(self, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction, kept whole or not at all; `durable`: also through a power loss."""
        with self._lock:
            try:
                if self._db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                    self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    if "database is locked" in str(error):
                        raise OSError(errno.EBUSY, f"another program holds {self._path}") from None
                    raise_if_full(error, self._path)
                raise

    def _ask(self, question: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All of an answer, while no other thread writes here.

        A question that is half answered holds this connection to what it saw then; where another connection wrote meanwhile,
        SQLite refuses the next change of this one at once ("database is locked").
        """
        with self._lock:
            return self._db.execute(question, values).fetchall()

    # facts

    def get(self, key: str) -> Any:
        """A fact, or `None`."""
        found = self._ask("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(found[0][0]) if found else None

    def facts(self) -> list[tuple[str, str]]:
        """Every fact as its JSON text, by key."""
        return self._ask("SELECT key, value FROM meta ORDER BY key")

    def group(self, prefix: str) -> list[Any]:
        """The facts whose keys begin so."""
        found = self._ask("SELECT value FROM meta WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))
        return [json.loads(value) for (value,) in found]

    def put(self, key: str, value: Any) -> None:
        """Keep a fact (any JSON value)."""
        with self._writing() as db:
            put_fact(db, key, value)

    def _chunks(self, table: str) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """(rows before it, rows) of a temporary table, in pieces, in its order."""
        at = 0
        while chunk := self._ask(f"SELECT * FROM temp.{table} WHERE rowid > ? ORDER BY rowid LIMIT ?", (at, _CHUNK)):
            yield at, chunk
            at += len(chunk)


def put_fact(db: sqlite3.Connection, key: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def next_row(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(row), -1) + 1 FROM samples").fetchone()[0])
