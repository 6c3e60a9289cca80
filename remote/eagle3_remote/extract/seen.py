"""Which ids and names came before: their hashes in a file of their own, so that memory stays flat however long the input is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator

from eagle3_remote.extract.sqlitefull import raise_if_full

_ASKED = 500
"""Hashes in one question; SQLite before 3.32 takes 999."""


Named = tuple[int, bytes, str | None]
"""Line, fingerprint, id."""


class Seen:
    """Hashes, each with the line that it came with first. `remember` comes first of all.

    The file is never durable: whoever goes on with the reading makes it anew from the journal (`remember`).
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._remove()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=MEMORY")
        self._db.execute("PRAGMA synchronous=OFF")

    def add(self, names: Iterable[tuple[bytes, int]]) -> list[int | None]:
        """Add (name, line) each; for each the line where that hash came first, or `None` where it is new."""
        rows = [(*_key(name), line) for name, line in names]
        found: list[int | None] = []
        with self._writing():
            self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", rows)
        for at in range(0, len(rows), _ASKED):
            part = rows[at : at + _ASKED]
            marks = ",".join("?" * len(part))
            asked = [key for key, _, _ in part]
            first = {
                key: (rest, line)
                for key, rest, line in self._db.execute(f"SELECT * FROM seen WHERE hash IN ({marks})", asked)
            }
            found += [
                first[key][1] if first[key][0] == rest and first[key][1] != line else None for key, rest, line in part
            ]
        return found

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN")
            yield
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise_if_full(error, self._path)
            raise

    def remember(self, samples: Iterable[Named]) -> None:
        """Take in what an earlier run read."""
        with self._writing():
            self._db.execute(
                "CREATE TABLE seen (hash INTEGER PRIMARY KEY, rest INTEGER NOT NULL, line INTEGER NOT NULL)"
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO seen VALUES (?, ?, ?)",
                (
                    (*_key(name), line)
                    for line, fingerprint, sample_id in samples
                    for name in ([fingerprint] if sample_id is None else [fingerprint, name_of(sample_id)])
                ),
            )

    def close(self) -> None:
        self._db.close()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


def _key(name: bytes) -> tuple[int, int]:
    """The two halves of a hash: by the first it is found, with the second it is the same."""
    both: tuple[int, int] = struct.unpack(">qq", hashlib.blake2b(name, digest_size=16).digest())
    return both


def name_of(sample_id: str) -> bytes:
    """The id of a sample as a name: never that of ids, which are 16 bytes."""
    return b"the id of a sample: " + sample_id.encode()
