"""``killed_at(n, work)`` runs `work` in a process of its own that dies at the n-th step that changes the disk or the journal.

A step is a rename, link, unlink, fsync, write, directory removal or SQLite commit. SIGKILL comes before or after it (odd: after).
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import traceback
from collections.abc import Callable
from typing import Any

from eagle3_remote.extract import journalfile as journal_module

_count = 0
_write = os.write


def killed_at(number: int, work: Callable[[], None]) -> int | None:
    """Fork, do `work`, and die by SIGKILL at point `number`. Returns how many points there are if it was not reached.

    Raises:
        AssertionError: `work` failed by itself.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _arm(number)
            work()
            _write(writing, str(_count).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reading) as pipe:
        passed = pipe.read()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert os.WEXITSTATUS(status) == 0, "the work failed; its traceback is above"
    return int(passed)


def _arm(number: int) -> None:
    """Die at point `number`; every step has two points."""

    def point() -> None:
        global _count
        _count += 1
        if _count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            point()
            value = real(*args, **named)
            point()
            return value

        return step

    for name in ("rename", "replace", "unlink", "fsync", "write", "link", "symlink"):
        setattr(os, name, watched(getattr(os, name)))
    shutil.rmtree = watched(shutil.rmtree)  # type: ignore[assignment]

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
            commit = statement in ("BEGIN", "COMMIT")
            if commit:
                point()
            value = super().execute(statement, *args)
            if commit:
                point()
            return value

    real_connect = sqlite3.connect

    def connect(*args: Any, **named: Any) -> sqlite3.Connection:
        return real_connect(*args, **named, factory=Connection)

    journal_module.sqlite3.connect = connect  # type: ignore[attr-defined]
