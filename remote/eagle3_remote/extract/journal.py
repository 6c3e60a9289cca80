"""One row a sample in ``.eagle3/journal.sqlite3``: what was read, sent, stored, refused.

A `Journal` may be used from several threads; the reading of the input has one of its own, on the same file. Commits survive a killed
process; after a power loss the last ones may be gone, which is why the files on disk are believed over the journal (see
`dataset.settle`). Nothing here holds the whole input: five million samples are asked for in pieces.

A sample's way: read (known, but not yet in the order of sending) -> waiting -> sent -> checked -> stored; or rejected (bad input), or
failed (no right rows came).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator

from eagle3_remote.extract.input import TOO_LONG, Rules, too_long
from eagle3_remote.extract.intake import Intake
from eagle3_remote.extract.journalfile import next_row
from eagle3_remote.extract.moving import Moving
from eagle3_remote.extract.records import ENTRY, SENT, Counts, Entry, StoredFile, entry_of


class Journal(Intake, Moving):
    """The journal of one dataset."""

    def requeue(self) -> None:
        """What was on its way or had failed when the last run ended waits again.

        Failed ones come last, by their attempts. Those that lost their row when holes were closed get new ones at the end.
        """
        with self._writing() as db:
            top = next_row(db)
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
            f"SELECT {ENTRY} FROM samples WHERE state = 'waiting' ORDER BY attempts, row LIMIT ?", (limit,)
        )
        return [entry_of(row) for row in found]

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
            f"SELECT {ENTRY} FROM samples JOIN temp.present USING (row) WHERE state != 'stored' ORDER BY row"
        )
        return [entry_of(row) for row in found]

    def stored(self) -> Iterator[Entry]:
        """Stored samples in row order."""
        for row in self._db.execute(f"SELECT {ENTRY} FROM samples WHERE state = 'stored' ORDER BY row"):
            yield entry_of(row)

    def stored_ids(self) -> Iterator[str | None]:
        """The samples' own ids, in the order of `stored`; `None` where one has none."""
        for (name,) in self._db.execute("SELECT sample_id FROM samples WHERE state = 'stored' ORDER BY row"):
            yield name

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
