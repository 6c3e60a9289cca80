"""What SQLite says when the disk or the quota is full, as the `OSError` that the rest of the extraction waits for."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3


def raise_if_full(error: sqlite3.OperationalError, path: str) -> None:
    """Returns where the error of the database at `path` has another reason than the file system's.

    Raises:
        OSError: what the file system says, ENOSPC or EDQUOT for example.
    """
    if "disk is full" in str(error):
        raise OSError(errno.ENOSPC, f"no space for {path}") from None
    _try_to_write(f"{path}.trial")  # SQLite calls a used-up quota "disk I/O error", or "unable to open database file"


def _try_to_write(path: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.pwrite(fd, bytes(4096), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
