"""When no progress is a fault: how long each phase may be silent, as data, and the judgement over it. Pure.

A server is stuck where its log has said nothing new for longer than its phase is given and its processes do nothing,
or for much longer whatever they do: ranks that wait for one another in NCCL compute for ever. A bar that moves, however
slowly, is news; weights that are being read from a slow disk are work.
"""

from __future__ import annotations

import dataclasses

from eagle3_remote.protocol import Phase
from eagle3_remote.server.processes import Process


@dataclasses.dataclass(frozen=True)
class Patience:
    """Seconds without a new line in the log."""

    resting: float
    """While its processes neither compute nor read."""
    working: float
    """While they do."""


DEFAULT = Patience(300.0, 1800.0)
PATIENCE: dict[str, Patience] = {
    Phase.SPAWNING.value: Patience(180.0, 1800.0),  # imports from a slow file system
    Phase.INITIALISING.value: Patience(180.0, 1200.0),  # torch's own limit for the first collective is 600 s
    Phase.DOWNLOADING.value: Patience(600.0, 3600.0),  # SGLang shows no bar for what it fetches from the hub
    Phase.LOADING_WEIGHTS.value: Patience(300.0, 3600.0),
    # The bar counts reads; what follows at 100 % may be an hour of copying (sglang#17970).
    Phase.FINISHING_WEIGHTS.value: Patience(600.0, 7200.0),
    Phase.ALLOCATING_KV_CACHE.value: Patience(180.0, 1200.0),
    Phase.WARMING_KERNELS.value: Patience(
        600.0, 3600.0
    ),  # the first time takes longer than its watchdog (sglang PR#34586)
    Phase.CAPTURING.value: Patience(600.0, 3600.0),
    Phase.HTTP_UP.value: Patience(120.0, 1800.0),
    Phase.WARMING_UP.value: Patience(120.0, 1800.0),
}
SERVING = Patience(20.0, 1200.0)
"""For schedulers that do not answer: the first batch may compile kernels for as long as a warm-up may."""
DIED_ADVICE = (
    "Stop the server, which ends what is left of it, and start it again. Killed by signal 9 without anybody's doing, it "
    "was most likely the kernel, for host memory: see `dmesg -T | grep -i oom` and the container's memory limit."
)
HALTED = 10.0
"""Seconds of silence after which a process that a signal halted is not taken for one that goes on in a moment."""


@dataclasses.dataclass(frozen=True)
class Signs:
    """What was seen besides log, health and exit code."""

    silent_for: float = 0.0
    """Seconds since the log's last line of its own (lines about HTTP requests do not count)."""
    deaf_for: float = 0.0
    """Seconds for which the schedulers have not answered a question that they answer between two batches."""
    resting: bool = False
    """Their processes were looked at, and none computed, read, or waited for a disk."""
    halted: tuple[Process, ...] = ()
    dead: tuple[Process, ...] = ()
    doing: str = ""
    """What the processes do, in words."""


def due(phase: Phase, signs: Signs) -> bool:
    """Whether the processes should be looked at closely, which takes a moment: their phase has been silent for longer than
    resting ones may be. A ready server may be silent for days; of it only what its schedulers answer counts."""
    if phase is Phase.READY:
        return signs.deaf_for > SERVING.resting
    return signs.silent_for > PATIENCE.get(phase.value, DEFAULT).resting


def starting(phase: Phase, signs: Signs, last_line: str) -> str | None:
    """Why a server that is coming up is stuck; `None`: it is not."""
    patience = PATIENCE.get(phase.value, DEFAULT)
    too_long = signs.silent_for > (patience.resting if signs.resting else patience.working)
    if not too_long and not (signs.halted and signs.silent_for > HALTED):
        return None
    last = f" The last line: {last_line}" if last_line else " Its log is empty."
    return f"The server is stuck in {phase.value}: nothing new for {span(signs.silent_for)}. {_processes(signs)}{last}"


def serving(signs: Signs) -> str | None:
    """Why a server whose HTTP side answers is stuck all the same; `None`: it is not."""
    limit = SERVING.resting if signs.resting else SERVING.working
    if not signs.halted and signs.deaf_for <= limit:
        return None
    since = f" for {span(signs.deaf_for)}" if signs.deaf_for else ""
    return f"The server is stuck: its HTTP side answers, its schedulers do not{since}. {_processes(signs)}"


def died(dead: tuple[Process, ...]) -> str:
    """What happened to schedulers that are gone while the HTTP side lives."""
    words = ", ".join(f"{one.name} {_ended(one.ended_with)}" for one in dead)
    return f"{words}; its HTTP side still answers, but nothing is computed any more."


def _ended(code: int | None) -> str:
    if code is None:
        return "is gone"
    if code == -9:
        return "was killed (signal 9)"
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _processes(signs: Signs) -> str:
    halted = ", ".join(one.name for one in signs.halted)
    if halted:
        pids = " ".join(str(one.pid) for one in signs.halted)
        return f"Halted by a signal: {halted}; `kill -CONT {pids}` lets it go on."
    what = f"What they do: {signs.doing}. " if signs.doing else ""
    return f"{what}`server stack` shows where each process is."


def span(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
