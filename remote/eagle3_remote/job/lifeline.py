"""A process that ends with the one that asked for it, however that ends: its standard input is a pipe that nobody else holds."""

from __future__ import annotations

import os
import signal
import threading
import time

GRACE = 10.0
"""Seconds to take back what was made, after which the whole process group is killed."""


def hold_on() -> None:
    """From now on the end of standard input interrupts this process (`KeyboardInterrupt`); it leads a process group of its own.

    Called from the main thread, before anything else reads standard input.
    """
    line, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_wait, args=(line,), name="lifeline", daemon=True).start()


def _wait(line: int) -> None:
    while os.read(line, 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GRACE)
    os.killpg(os.getpgrp(), signal.SIGKILL)
