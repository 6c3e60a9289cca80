"""Follows one growing file by (inode, offset) and folds what is new."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from eagle3_remote.protocol import LogChunk
from eagle3_remote.serverlog import LogState, feed

CHUNK = 1 << 20
MAX_LIMIT = 1 << 20
"""Bytes of one `LogChunk` at most (a message line holds 4 MiB, base64 takes a third more)."""


class LogTail:
    """The folded state of one log file, brought up to date on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._state = LogState()

    def update(self) -> LogState:
        """Fold in what was written since the last call. A replaced or shortened file begins anew."""
        try:
            with open(self._path, "rb") as file:
                seen = os.fstat(file.fileno())
                if seen.st_ino != self._inode or seen.st_size < self._offset:
                    self._inode, self._offset, self._state = seen.st_ino, 0, LogState()
                file.seek(self._offset)
                while self._offset < seen.st_size and (chunk := file.read(CHUNK)):
                    self._state = feed(self._state, chunk)
                    self._offset += len(chunk)
        except FileNotFoundError:
            self._inode, self._offset, self._state = 0, 0, LogState()
        return self._state


def read_chunk(path: Path, inode: int, offset: int, limit: int) -> LogChunk:
    """Bytes of a log from `offset` on, at most `limit`; from 0 when it is another file or shorter than that.

    A negative `offset` counts from the end. `inode` 0: whatever file is there.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        seen = os.fstat(file.fileno())
        if offset < 0:
            offset = max(0, seen.st_size + offset)
        elif offset > seen.st_size or inode not in (0, seen.st_ino):
            offset = 0
        file.seek(offset)
        data = file.read(max(0, min(limit, MAX_LIMIT)))
    return LogChunk(
        inode=seen.st_ino,
        offset=offset,
        data=base64.b64encode(data).decode("ascii"),
        next_offset=offset + len(data),
        size=max(seen.st_size, offset + len(data)),
    )
