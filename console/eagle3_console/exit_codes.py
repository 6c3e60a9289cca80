"""Exit codes of every command, as documented in the README."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a script may rely on."""

    GOOD = 0
    INTERNAL = 1
    """A fault of this program: please report it."""
    USAGE = 2
    NO_CONNECTION = 3
    LOGIN = 4
    """Login refused, or the host key is unknown or changed."""
    BOX_NOT_FIT = 5
    SERVER_FAILED = 6
    FINISHED_WITH_BAD = 7
    """The run finished, and some samples were rejected or failed, or a dataset has faults."""
    INTERRUPTED = 130
