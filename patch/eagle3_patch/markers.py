"""What the patch says in the server's log, one line at a time. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from eagle3_patch import layout


class Refused(RuntimeError):
    """The patch cannot be sure of right rows on this server; the server must not start with it."""


def ready(facts: dict[str, Any]) -> None:
    """Say that this rank is configured; `facts` are those named at `layout.MARKER_READY`."""
    _line(layout.MARKER_READY + json.dumps(facts))


def checked(facts: dict[str, Any]) -> None:
    """Say that the rows of a batch were found right; `facts` are those named at `layout.MARKER_CHECKED`."""
    _line(layout.MARKER_CHECKED + json.dumps(facts))


def refuse(reason: str) -> Refused:
    """Say why this server cannot be patched, and return the exception to raise."""
    _line(layout.MARKER_REFUSED + json.dumps({"reason": reason}))
    return Refused(reason)


def warn(text: str) -> None:
    """Say something that does not stop the server, not even where the log itself cannot be written any more."""
    with contextlib.suppress(OSError, ValueError):
        _line("eagle3-patch: " + text)


def _line(text: str) -> None:
    """Write one line in one write.

    It starts with a line break of its own: SGLang's progress bars (0.5.10 and newer) leave the cursor behind the bar.
    """
    sys.stdout.flush()
    os.write(sys.stdout.fileno(), ("\n" + text.replace("\n", " ") + "\n").encode("utf-8", "backslashreplace"))
