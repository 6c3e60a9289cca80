"""Follows one growing file by (inode, offset) and folds what is new. Its middle may be gone, see `eagle3_remote.job.logcap`."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from eagle3_remote.protocol import LogChunk
from eagle3_remote.serverlog import LogState, checkpoint, feed

CHUNK = 1 << 20
MAX_LIMIT = 1 << 20
"""Bytes of one `LogChunk` at most (a message line holds 4 MiB, base64 takes a third more)."""
KEEP_EVERY = 1 << 20
"""Bytes that the next process has to fold again at most."""
_KEEP_MEANWHILE = 64 << 20
"""Bytes after which a long fold is kept before its end."""


class LogTail:
    """The folded state of one log file, brought up to date on demand.

    Args:
        path: the log.
        keep: where the state is kept for the next process, and taken from; `None`: nowhere.
    """

    def __init__(self, path: Path, keep: Path | None = None) -> None:
        self._path = path
        self._keep = keep
        self._inode = 0
        self._offset = 0
        self._kept = 0
        self._state = LogState()

    def update(self, *, keep: bool = False) -> LogState:
        """Fold in what was written since the last call. A replaced or shortened file begins anew.

        Args:
            keep: keep the state now, however little is new.
        """
        try:
            log = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._inode, self._offset, self._kept, self._state = 0, 0, 0, LogState()
            return self._state
        try:
            seen = os.fstat(log)
            if seen.st_ino != self._inode or seen.st_size < self._offset:
                self._inode, self._offset, self._kept, self._state = seen.st_ino, 0, 0, LogState()
                self._take_up(log)
            while self._offset < seen.st_size and self._step(log):
                if self._offset - self._kept >= _KEEP_MEANWHILE:
                    self._save(log)
            if self._offset - self._kept >= (1 if keep else KEEP_EVERY):
                self._save(log)
        finally:
            os.close(log)
        return self._state

    def _step(self, log: int) -> bool:
        """Fold the next piece; False: there is none."""
        chunk = os.pread(log, CHUNK, self._offset)
        there, following = _kept(log, self._offset, len(chunk))  # asked after reading: what is there now was there then
        self._state = feed(self._state, chunk[:there])
        self._offset = following
        if not there:
            self._take_up(log)  # who dropped it has folded it before
        return bool(chunk)

    def _take_up(self, log: int) -> None:
        kept = None if self._keep is None else checkpoint.load(self._keep, log)
        if kept is not None and kept.offset > self._offset:
            self._offset, self._state = kept.offset, kept.state
            self._kept = kept.offset

    def _save(self, log: int) -> None:
        self._take_up(log)  # who is ahead is not put back, but followed
        if self._keep is not None and self._offset > self._kept:
            checkpoint.save(self._keep, log, self._offset, self._state)
        self._kept = self._offset


def read_chunk(path: Path, inode: int, offset: int, limit: int) -> LogChunk:
    """Bytes of a log from `offset` on, at most `limit`; from 0 when it is another file or shorter than that, and from
    behind what was dropped when `offset` lies in it.

    A negative `offset` counts from the end. `inode` 0: whatever file is there.

    Raises:
        OSError: the file cannot be read.
    """
    log = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        seen = os.fstat(log)
        if offset < 0:
            offset = max(0, seen.st_size + offset)
        elif offset > seen.st_size or inode not in (0, seen.st_ino):
            offset = 0
        asked = offset
        while True:
            data = os.pread(log, max(0, min(limit, MAX_LIMIT)), offset)
            there, following = _kept(log, offset, len(data))
            if there or not data:
                break
            offset = following
        # Who has read up to the gap has read the mark before it.
        in_order = offset == asked or (asked > 0 and _kept(log, asked - 1, 2)[0] == 1)
    finally:
        os.close(log)
    return LogChunk(
        inode=seen.st_ino,
        offset=offset,
        data=base64.b64encode(data[:there]).decode("ascii"),
        next_offset=offset + there,
        size=max(seen.st_size, offset + there),
        dropped=0 if in_order else offset - asked,
    )


def _kept(log: int, offset: int, length: int) -> tuple[int, int]:
    """(how many of `length` bytes from `offset` on are there, where the next ones are): what was dropped lies between."""
    try:
        gap = os.lseek(log, offset, os.SEEK_HOLE)
        if gap > offset:
            length = min(length, gap - offset)
        elif (following := os.lseek(log, offset, os.SEEK_DATA)) > offset:
            return 0, following
    except OSError:
        pass  # at the end, or a file system that keeps everything
    return length, offset + length
