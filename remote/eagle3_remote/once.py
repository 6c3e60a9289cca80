"""A call that changes the box is done once, though its answer was lost and the console asks again.

The console gives such a call a key. While it is done its key is locked, and its result is kept for a day: whoever asks again
with the same key, through whatever agent, waits for the first and is given its answer. What was refused is not kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle3_remote.files import read_json, write_atomic

KEPT_SECONDS = 86400.0
_KEY = re.compile(r"[0-9a-f]{16,64}")


def once(home: Path, key: str, call: Callable[[], Any]) -> Any:
    """The result of `call`, or the one that an earlier call of this key had.

    Raises:
        Whatever `call` raises.
    """
    folder = home / "calls"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget(folder)
        lock = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return call()  # a full or read-only home: the call itself will say so, or needs no room there
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = read_json(folder / f"{key}.json")
        if kept is not None:
            return kept["result"]
        result = call()
        with contextlib.suppress(OSError):
            write_atomic(folder / f"{key}.json", json.dumps({"result": result}).encode())
        return result
    finally:
        os.close(lock)


def is_key(value: object) -> bool:
    """Whether a key is usable as a file's name."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def _forget(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()
