"""Keeps the log of a running job from filling the disk, and what it says folded: one thread of the job's supervisor.

The job writes ``out.log`` itself, so that it neither waits for its supervisor nor dies with it. Such a file cannot be
renamed away from under it, and copying it and cutting it loses what is written between the two. So the middle of the file
is given back to the file system (``fallocate``, punch hole). The job notices nothing, what it writes is never touched,
and every offset means what it meant, so that readers go on where they are.

Of a log that takes more than the cap, the first eighth of the cap stays for ever (the start-up, and the patch's marker
lines), and the newest half; a line of ours stands where the gap begins. What is lost: whole lines in the gap, and only for
who reads more than half the cap behind. A server's log is folded up to its end before anything is dropped, so that who
attaches later knows all that was known (`eagle3_remote.serverlog.checkpoint`); a release whose fold differs folds what is
left. Where the file system cannot do it (NFS before 4.2, some of FUSE), one line of the log says so, and it grows. What
else goes wrong may pass: it is said once and tried again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from eagle3_remote.serverlog.logtail import LogTail

CAP_ENV = "EAGLE3_LOG_MIB"
"""MiB of one log at most; 0: no limit."""
CAP_MIB = 1024
EVERY = 2.0
"""Seconds between two looks at the log."""
_MIB = 1 << 20
_NEVER = (errno.EOPNOTSUPP, errno.ENOSYS)
"""The file system cannot give space back from the middle of a file."""
_UNFOLDED = 5
"""So many looks in a row a log that cannot be folded is left whole; then the disk comes first."""
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02
_MAX_BLOCK = 128 * 1024
_LONGEST_LINE = 1 << 20


def cap_of(env: Mapping[str, str]) -> int:
    """Bytes that a log may take, by the job's environment; 0: no limit."""
    text = env.get(CAP_ENV, "")
    return (int(text) if text.isdecimal() else CAP_MIB) * _MIB


def trim(path: Path, cap: int) -> bool:
    """Drop the middle of a log that takes more than `cap` bytes on the disk; whether that was so.

    Raises:
        OSError: the file system cannot do it, or the log cannot be opened.
    """
    log = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # without O_APPEND: the mark is written where the gap begins
    try:
        seen = os.fstat(log)
        if seen.st_blocks * 512 <= cap:
            return False
        block = min(max(seen.st_blksize, 4096), _MAX_BLOCK)
        head, tail = _line_at(log, cap // 8), _line_at(log, seen.st_size - cap // 2)
        mark = (
            f"\neagle3: {tail - head} bytes of this log were dropped here, so that it does not fill the disk.".encode()
        )
        start, end = -(-(head + len(mark) + 1) // block) * block, tail // block * block
        if end <= start:
            return False
        _punch(log, start, end - start)
        os.pwrite(log, mark.ljust(start - head - 1) + b"\n", head)
        if end < tail:
            os.pwrite(log, b"\n".rjust(tail - end), end)
        return True
    finally:
        os.close(log)


class LogKeeper:
    """Looks at one job's log for as long as its supervisor lives.

    Args:
        run_dir: the job's.
        cap: bytes; 0: no limit.
        folded: whether it is a server's, so that what it says is folded and kept.
    """

    def __init__(self, run_dir: Path, cap: int, *, folded: bool) -> None:
        self._path = run_dir / "out.log"
        self._cap = cap
        self._tail = LogTail(self._path, keep=run_dir) if folded else None
        self._failed_folds = 0
        self._said: set[str] = set()

    def start(self) -> None:
        """In a thread of its own: a log that grows fast does not delay the word of how the job ended."""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def look(self) -> None:
        """Fold what is new, then drop what is too much. What goes wrong is said in the log.

        Raises:
            OSError: the log cannot be looked at.
        """
        full = self._cap > 0 and self._path.stat().st_blocks * 512 > self._cap
        folded = self._fold(keep=full)
        if full and (folded or self._failed_folds >= _UNFOLDED):
            self._trim()

    def _fold(self, *, keep: bool) -> bool:
        try:
            if self._tail is not None:
                self._tail.update(keep=keep)
        except Exception as error:  # whatever it is: the job's log still must not fill the disk
            self._failed_folds += 1
            self._say(f"this log cannot be folded, which is tried again: {error!r}")
            return False
        self._failed_folds = 0
        return True

    def _trim(self) -> None:
        try:
            trim(self._path, self._cap)
        except FileNotFoundError:
            pass  # put aside for a restart
        except OSError as error:
            if error.errno in _NEVER:
                self._cap = 0
                self._say(f"the middle of this log cannot be dropped, so that it grows: {error}")
            else:
                self._say(f"the middle of this log cannot be dropped, which is tried again: {error}")

    def _say(self, what: str) -> None:
        """Each sentence once: what is said is itself written into the log."""
        if what not in self._said:
            self._said.add(what)
            with contextlib.suppress(OSError):  # a full disk
                os.write(2, f"eagle3: {what}\n".encode())

    def _run(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # put aside for a restart; or a hiccup, which is waited out
                self.look()
            time.sleep(EVERY)


def _line_at(log: int, offset: int) -> int:
    """Where the first line begins that begins at `offset` or behind it; `offset` where it is too far."""
    place = os.pread(log, _LONGEST_LINE, offset).find(b"\n")
    return offset + place + 1


def _punch(log: int, start: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = [ctypes.c_int64(number) for number in (start, length)]
    if libc.fallocate(log, _KEEP_SIZE_PUNCH_HOLE, *numbers) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
