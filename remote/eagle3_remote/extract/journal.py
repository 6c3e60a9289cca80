"""One row a sample in ``.eagle3/journal.sqlite3``: what was read, sent, stored, refused.

A `Journal` may be used from several threads; the reading of the input has one of its own, on the same file. Commits survive a killed
process; after a power loss the last ones may be gone, which is why the files on disk are believed over the journal (see
`dataset.settle`). Nothing here holds the whole input: five million samples are asked for in pieces.

A sample's way: read (known, but not yet in the order of sending) -> waiting -> sent -> checked -> stored; or rejected (bad input), or
failed (no right rows came).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eagle3_remote.extract.input import TOO_LONG, Bad, Rules, Sample, too_long
from eagle3_remote.extract.sqlitefull import raise_if_full

READ = "read"
WAITING, SENT, CHECKED, STORED, REJECTED, FAILED = "waiting", "sent", "checked", "stored", "rejected", "failed"

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
_CHUNK = 20_000
"""Rows changed in one transaction where the whole table is gone through."""
_MOVES = 1000
_EVERYWHERE = 2**63 - 1


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


_SAMPLE = "line, offset, sample_id, tokens, loss_tokens, full_tokens, has_mask, fingerprint"
_ENTRY = "line, offset, has_mask, row, tokens, fingerprint, state, attempts, bytes, crc32"


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


class Journal:
    """The journal of one dataset.

    Raises:
        OSError: ENOSPC or EDQUOT where the disk or the quota is full: nothing of the change was kept, and it may be tried again.
        sqlite3.Error: the file is damaged.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        with self._writing():
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)

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
            _put(db, key, value)

    # reading the input

    def reading(self) -> Reading:
        """How far the input was read."""
        return Reading(**(self.get("reading") or {}))

    def clear_samples(self) -> None:
        """Forget what was read, to begin anew."""
        with self._writing() as db:
            db.execute("DELETE FROM samples")
            db.execute("DELETE FROM meta")

    def add(self, items: Iterable[tuple[Sample | Bad, int]], reading: Reading, *, ordered: bool) -> None:
        """Add what was read, each with its sample's offset in ``samples.bin``, and how far that is.

        Samples wait at once, in the rows after the last one, where the order of the input is the order of sending (`ordered`);
        else `give_rows` gives them theirs.
        """
        good = [_values(item, at) for item, at in items if isinstance(item, Sample)]
        bad = [
            (
                item.kind,
                item.reason,
                *(_values(item.sample, at) if item.sample else (item.line, None, None, 0, 0, 0, False, None)),
            )
            for item, at in items
            if isinstance(item, Bad)
        ]
        with self._writing() as db:
            row = _next_row(db) if ordered else None
            state = WAITING if ordered else READ
            db.executemany(
                f"INSERT INTO samples (state, kind, reason, {_SAMPLE}) VALUES ('rejected', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                bad,
            )
            db.executemany(
                f"INSERT INTO samples (row, state, {_SAMPLE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(None if row is None else row + at, state, *one) for at, one in enumerate(good)],
            )
            _put(db, "reading", dataclasses.asdict(reading))

    def give_rows(
        self, limit: int, seed: int | None, file_bytes: Callable[[int], int] = lambda tokens: 0
    ) -> Iterator[Counts]:
        """Samples that were only read get the rows after the last one and wait: in the order of the input, or shuffled by `seed`.

        `limit`: only the first so many lines of the whole input in that order, those of other shards and refused ones counted; 0:
        all. Yields what each step adds to the counters.
        """
        with self._writing() as db:
            first, last = _next_row(db), self._last_place(limit, seed)
            db.execute("DROP TABLE IF EXISTS temp.places")
            # A table of its own, so that SQLite sorts on disk.
            db.execute(
                "CREATE TEMP TABLE places AS SELECT line, tokens, full_tokens > tokens, has_mask FROM samples"
                " WHERE state = 'read' AND (? OR place(line) <= ?) ORDER BY place(line), line",
                (last == _EVERYWHERE, last),
            )
        for at, chunk in self._chunks("places"):
            with self._writing() as db:
                db.executemany(
                    "UPDATE samples SET row = ?, state = 'waiting' WHERE line = ?",
                    [(first + at + i, line) for i, (line, *_) in enumerate(chunk)],
                )
            lengths = [tokens for _, tokens, _, _ in chunk]
            yield Counts(
                total=len(chunk),
                waiting=len(chunk),
                tokens_total=sum(lengths),
                cut=sum(cut for _, _, cut, _ in chunk),
                no_mask=sum(not mask for *_, mask in chunk),
                largest=max(lengths),
                bytes_total=sum(map(file_bytes, lengths)),
            )

    def take_rows(self, limit: int, seed: int | None) -> None:
        """What waits beyond `limit` (see `give_rows`) is not asked for any more; 0: nothing is beyond."""
        if limit:
            with self._writing() as db:
                db.execute(
                    "UPDATE samples SET state = 'read', row = NULL WHERE state = 'waiting' AND place(line) > ?",
                    (self._last_place(limit, seed),),
                )

    def _last_place(self, limit: int, seed: int | None) -> int:
        """The place of the `limit`-th of all lines that were read; the function ``place`` orders by `seed` from here on."""
        self._db.create_function("place", 1, lambda line: place(line, seed), deterministic=True)
        if not limit or seed is None:
            return limit or _EVERYWHERE
        found = self._ask(
            "WITH RECURSIVE lines(line) AS (SELECT 1 UNION ALL SELECT line + 1 FROM lines WHERE line < ?)"
            " SELECT place(line) AS at FROM lines ORDER BY at LIMIT 1 OFFSET ?",
            (self.reading().number, limit - 1),
        )
        return int(found[0][0]) if found else _EVERYWHERE

    def _chunks(self, table: str) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """(rows before it, rows) of a temporary table, in pieces, in its order."""
        at = 0
        while chunk := self._ask(f"SELECT * FROM temp.{table} WHERE rowid > ? ORDER BY rowid LIMIT ?", (at, _CHUNK)):
            yield at, chunk
            at += len(chunk)

    # sending and storing

    def requeue(self) -> None:
        """What was on its way or had failed when the last run ended waits again.

        Failed ones come last, by their attempts. Those that lost their row when holes were closed get new ones at the end.
        """
        with self._writing() as db:
            top = _next_row(db)
            rowless = db.execute("SELECT line FROM samples WHERE state = 'failed' AND row IS NULL ORDER BY line")
            db.executemany(
                "UPDATE samples SET row = ? WHERE line = ?",
                [(at, line) for at, (line,) in enumerate(rowless.fetchall(), top)],
            )
            db.execute(
                "UPDATE samples SET state = 'waiting', kind = NULL, reason = NULL"
                " WHERE state IN ('sent', 'checked', 'failed')"
            )
            # An earlier server took less; `refuse_longer` judges anew by this one's limits, and `give_rows` gives the rest rows.
            db.execute(
                "UPDATE samples SET state = 'read', kind = NULL, reason = NULL"
                " WHERE state = 'rejected' AND kind = ? AND offset IS NOT NULL",
                (TOO_LONG,),
            )

    def refuse_longer(self, rules: Rules) -> int:
        """Reject samples that wait and are longer than the server takes now; returns how many."""
        with self._writing() as db:
            longer = db.execute(
                "SELECT line, tokens FROM samples WHERE state IN ('waiting', 'read') AND tokens > ?",
                (rules.max_tokens,),
            ).fetchall()
            db.executemany(
                "UPDATE samples SET state = 'rejected', kind = ?, reason = ?, row = NULL WHERE line = ?",
                [(TOO_LONG, too_long(tokens, rules), line) for line, tokens in longer],
            )
        return len(longer)

    def waiting(self, limit: int) -> list[Entry]:
        """The next samples to send: untried ones in row order, then those that were tried before."""
        found = self._ask(
            f"SELECT {_ENTRY} FROM samples WHERE state = 'waiting' ORDER BY attempts, row LIMIT ?", (limit,)
        )
        return [_entry(row) for row in found]

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

    def set_present(self, files: Iterable[tuple[int, int]]) -> int:
        """Compare with (row, bytes) of the files on disk: stored samples without theirs wait again. Returns how many.

        `found` knows the files from then on.
        """
        with self._writing() as db:
            db.execute("DROP TABLE IF EXISTS temp.present")
            db.execute("CREATE TEMP TABLE present (row INTEGER PRIMARY KEY, size INTEGER)")
            db.executemany("INSERT OR REPLACE INTO temp.present VALUES (?, ?)", files)
            return db.execute(
                "UPDATE samples SET state = 'waiting', bytes = NULL, crc32 = NULL, stored_at = NULL, target = NULL"
                " WHERE state = 'stored' AND NOT EXISTS"
                " (SELECT 1 FROM temp.present p WHERE p.row = samples.row AND p.size = samples.bytes)"
            ).rowcount

    def found(self) -> list[Entry]:
        """Valid samples that are not stored but have a file by `set_present`; few, for files are journalled at once."""
        found = self._ask(
            f"SELECT {_ENTRY} FROM samples JOIN temp.present USING (row) WHERE state != 'stored' ORDER BY row"
        )
        return [_entry(row) for row in found]

    # closing the holes

    def plan_moves(self) -> None:
        """Give every stored sample that is not in its place that place, without holes, and take the row from failed ones."""
        with self._writing(durable=True) as db:
            db.execute("UPDATE samples SET row = NULL WHERE state = 'failed'")
            db.execute("DROP TABLE IF EXISTS temp.places")
            db.execute(
                "CREATE TEMP TABLE places AS SELECT place, line FROM (SELECT line, row,"
                " row_number() OVER (ORDER BY row) - 1 AS place FROM samples WHERE state = 'stored')"
                " WHERE place != row ORDER BY place"
            )
        for _, chunk in self._chunks("places"):
            with self._writing(durable=True) as db:
                db.executemany("UPDATE samples SET target = ? WHERE line = ?", chunk)

    def moves(self) -> list[tuple[Entry, int]]:
        """The next stored samples whose file moves (or has moved) to another row, ascending, each with that row."""
        found = self._ask(
            f"SELECT {_ENTRY}, target FROM samples WHERE target IS NOT NULL ORDER BY row LIMIT ?", (_MOVES,)
        )
        return [(_entry(row[:-1]), row[-1]) for row in found]

    def moved(self, lines: Iterable[int]) -> None:
        """The files of these samples lie at their planned rows."""
        with self._writing() as db:
            db.executemany(
                "UPDATE samples SET row = target, target = NULL WHERE line = ? AND target IS NOT NULL",
                [(line,) for line in lines],
            )

    # asking

    def stored(self) -> Iterator[Entry]:
        """Stored samples in row order."""
        for row in self._db.execute(f"SELECT {_ENTRY} FROM samples WHERE state = 'stored' ORDER BY row"):
            yield _entry(row)

    def stored_ids(self) -> Iterator[str | None]:
        """The samples' own ids, in the order of `stored`; `None` where one has none."""
        for (name,) in self._db.execute("SELECT sample_id FROM samples WHERE state = 'stored' ORDER BY row"):
            yield name

    def unstored_rows(self) -> Iterator[int]:
        """Rows of valid samples without a stored file."""
        for (row,) in self._db.execute("SELECT row FROM samples WHERE row IS NOT NULL AND state != 'stored'"):
            yield row

    def has_samples(self) -> bool:
        """Whether there is any sample that was not refused."""
        return bool(self._ask("SELECT 1 FROM samples WHERE state NOT IN ('rejected', 'read') LIMIT 1"))

    def names(self) -> Iterator[tuple[int, bytes, str | None]]:
        """(line, fingerprint, id) of every sample that was not refused, or for its length alone, in input order."""
        yield from self._db.execute(
            "SELECT line, fingerprint, sample_id FROM samples WHERE fingerprint IS NOT NULL ORDER BY line"
        )

    def problems(self, limit: int) -> list[tuple[int, str, str, str]]:
        """(line, state, kind, reason) of refused and failed samples, in input order."""
        return self._ask(
            "SELECT line, state, coalesce(kind, ''), coalesce(reason, '') FROM samples WHERE state IN ('rejected', 'failed')"
            " ORDER BY line LIMIT ?",
            (limit,),
        )

    def counts(self, file_bytes: Callable[[int], int] = lambda tokens: 0) -> Counts:
        """The counters, from the table; `file_bytes` is what the file of so many tokens takes."""
        (row,) = self._ask(
            """SELECT count(*), total(state = 'stored'), total(state = 'rejected'), total(state = 'failed'),
                total(state IN ('waiting', 'sent', 'checked')), total(tokens * (state != 'rejected')),
                total(tokens * (state = 'stored')), total(bytes * (state = 'stored')),
                total(state != 'rejected' AND full_tokens > tokens), total(state != 'rejected' AND has_mask = 0),
                coalesce(max(tokens * (state != 'rejected')), 0) FROM samples WHERE state != 'read'"""
        )
        lengths = self._ask(
            "SELECT tokens, count(*) FROM samples WHERE state NOT IN ('read', 'rejected') GROUP BY tokens"
        )
        size = sum(file_bytes(tokens) * number for tokens, number in lengths)
        return dataclasses.replace(Counts(*(int(value) for value in row)), bytes_total=size)


def open_readonly(path: str) -> Journal:
    """The journal for a look, while an extraction may be writing it.

    Raises:
        FileNotFoundError: there is none.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    journal = Journal.__new__(Journal)
    journal._lock = threading.RLock()
    # Not mode=ro: reading a WAL journal after a crash needs its shared-memory file, which is made on the fly.
    journal._db = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        journal._db.execute("SELECT 1 FROM meta LIMIT 1")
    except sqlite3.OperationalError:
        if os.path.exists(f"{path}-wal"):
            raise
        journal._db.close()
        # Where nothing can be made beside it (a read-only mount, another user's folder), nobody writes it either.
        uri = f"{pathlib.Path(path).absolute().as_uri()}?immutable=1"
        journal._db = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
    journal._db.execute("PRAGMA query_only=ON")
    return journal


def _values(sample: Sample, offset: int) -> tuple[Any, ...]:
    """As `_SAMPLE` names them."""
    return (
        sample.line,
        offset,
        sample.sample_id,
        sample.tokens,
        sample.loss_tokens,
        sample.full_tokens,
        sample.has_mask,
        sample.fingerprint,
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    line, offset, has_mask, *rest = row
    return Entry(line, offset, bool(has_mask), *rest)


def _put(db: sqlite3.Connection, key: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def _next_row(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(row), -1) + 1 FROM samples").fetchone()[0])


def place(line: int, seed: int | None) -> int:
    """What samples are ordered by: their line, or 63 bits of BLAKE2b over seed and line; the same on every machine and shard."""
    if seed is None:
        return line
    return int.from_bytes(hashlib.blake2b(f"{seed}:{line}".encode(), digest_size=8).digest(), "big") >> 1
