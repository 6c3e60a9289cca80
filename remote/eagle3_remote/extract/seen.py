"""Which ids and names came before: 8-byte hashes in a file of their own, so that memory stays flat however long the input is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterable


class Seen:
    """Hashes, each with the line that it came with first.

    The file is never durable: whoever goes on with the reading makes it anew from the journal (`remember`).
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._remove()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("CREATE TABLE seen (hash INTEGER PRIMARY KEY, line INTEGER NOT NULL)")

    def add(self, names: Iterable[tuple[bytes, int]]) -> list[int | None]:
        """Add (name, line) each; for each the line where that hash came first, or `None` where it is new."""
        self._db.execute("BEGIN")
        found = [self._add(name, line) for name, line in names]
        self._db.execute("COMMIT")
        return found

    def remember(self, samples: Iterable[tuple[int, bytes, str | None]]) -> None:
        """Take in what an earlier run read: (line, fingerprint, id) each."""
        self.add(
            (name, line)
            for line, fingerprint, sample_id in samples
            for name in ([fingerprint] if sample_id is None else [fingerprint, name_of(sample_id)])
        )

    def _add(self, name: bytes, line: int) -> int | None:
        key = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big", signed=True)
        if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, line)).rowcount:
            return None
        return int(self._db.execute("SELECT line FROM seen WHERE hash = ?", (key,)).fetchone()[0])

    def close(self) -> None:
        self._db.close()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


def name_of(sample_id: str) -> bytes:
    """The id of a sample as a name: never that of ids, which are 16 bytes."""
    return b"the id of a sample: " + sample_id.encode()
