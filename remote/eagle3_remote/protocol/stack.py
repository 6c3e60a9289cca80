"""What every process of the server does right now."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ProcessStack:
    """One process."""

    pid: int
    name: str
    """``scheduler TP1``, ``main`` (it serves HTTP), ``detokenizer`` ..."""
    state: str
    """In words: ``computes``, ``sleeps``, ``waits for a disk or a driver``, ``is halted by a signal (SIGSTOP)``."""
    cpu_percent: float
    """Of one core, over a moment; above 100 where several threads compute."""
    threads: int
    how: str
    """``py-spy``, or ``/proc``: where in the kernel each busy or waiting thread is, and no Python line."""
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class StackReport:
    """All of them."""

    job: str
    sentence: str
    processes: tuple[ProcessStack, ...]
