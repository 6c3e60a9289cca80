"""Small files written so that a reader sees the old or the new content, never a half."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any


def write_atomic(path: Path, data: bytes) -> None:
    """Write by temporary file, fsync and rename in the same directory.

    Raises:
        OSError: no space, no permission; the old content stays.
    """
    tmp = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        descriptor = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            tmp.unlink()
        raise


def locked(path: str | Path) -> bool:
    """Whether somebody holds a file alone (``flock``). False where it is not there.

    Raises:
        OSError: it may not be opened, or the file system has no locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; `None` when it is not there, not readable or not an object."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # the last: brackets without end
        return None
    return value if isinstance(value, dict) else None
