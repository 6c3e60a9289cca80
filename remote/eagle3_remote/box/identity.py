"""Which process a number means: boot id, pid and start time together name one process for ever.

A pid alone is reused; a pid with its start time (field 22 of ``/proc/<pid>/stat``, in clock ticks since boot) is not
within one boot, and the boot id tells boots apart. Linux only.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

JOB_ENV = "EAGLE3_JOB"
"""Set in every process of a job; carries the job's id."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class Identity:
    """One process, provably."""

    boot_id: str
    pid: int
    start_time: int
    """Clock ticks since boot."""


@dataclasses.dataclass(frozen=True)
class ProcessStat:
    """What ``/proc/<pid>/stat`` says of one process."""

    pid: int
    name: str
    state: str
    """``R``, ``S``, ``D``, ``Z`` ..."""
    ppid: int
    pgid: int
    sid: int
    start_time: int
    cpu_ticks: int
    """User and system time of all its threads."""
    threads: int
    ended_with: int
    """A zombie's exit code, negative: the signal that ended it; 0 while it lives and where it may not be seen."""


@dataclasses.dataclass(frozen=True)
class Look:
    """One look at every process, which several questions share: each look reads all of /proc."""

    stats: tuple[ProcessStat, ...]
    carriers: Mapping[str, frozenset[int]]
    """Job id -> pids of those whose environment names it. Where it cannot be read, the process is none's."""

    def carries(self, pid: int, job_id: str) -> bool:
        """As `carries_job`."""
        return pid in self.carriers.get(job_id, ())


def boot_id() -> str:
    """The id of this boot; empty where the kernel does not tell (then nothing is ever taken for ours)."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def stat_of(pid: int) -> ProcessStat | None:
    """The process behind `pid` right now; `None` when there is none (or it cannot be read)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    # The name in parentheses may hold spaces and parentheses itself: cut at the last one.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 50:
        return None
    status = int(fields[49])
    return ProcessStat(
        pid=pid,
        name=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        start_time=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        ended_with=0 if fields[0] != "Z" else -(status & 0x7F) or status >> 8,
    )


def identify(pid: int) -> Identity | None:
    """The identity of a living (or not yet reaped) process."""
    stat = stat_of(pid)
    return None if stat is None else Identity(boot_id(), pid, stat.start_time)


def same_process(identity: Identity) -> bool:
    """Whether the process so named still lives: same boot, same pid, same start time, not a zombie."""
    if not identity.boot_id or identity.boot_id != boot_id():
        return False
    stat = stat_of(identity.pid)
    return stat is not None and stat.start_time == identity.start_time and stat.state not in ("Z", "X")


def age(identity: Identity) -> float:
    """Seconds since the process was started, by the kernel's own clock: a wall clock that jumps does not matter."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - identity.start_time / os.sysconf("SC_CLK_TCK"))


def carries_job(pid: int, job_id: str) -> bool:
    """Whether the process's environment says that it belongs to job `job_id`. False where it cannot be read."""
    return f"{JOB_ENV}={job_id}".encode() in (_environ(pid) or b"").split(b"\0")


def environment(pid: int) -> dict[str, str] | None:
    """The environment that a process was started with; `None`: it may not be read by this user, or the process is gone."""
    raw = _environ(pid)
    if raw is None:
        return None
    pairs = (entry.partition("=") for entry in raw.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, _, value in pairs if name}


def _environ(pid: int) -> bytes | None:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None


def everything() -> list[ProcessStat]:
    """Every process of this box (of this container), zombies too."""
    stats = (stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [stat for stat in stats if stat is not None]


def look() -> Look:
    """Every process, and which job each belongs to by its own words."""
    stats = tuple(everything())
    mark = f"{JOB_ENV}=".encode()
    carriers: defaultdict[str, set[int]] = defaultdict(set)
    for stat in stats:
        for entry in (_environ(stat.pid) or b"").split(b"\0"):
            if entry.startswith(mark):
                carriers[entry[len(mark) :].decode("utf-8", "surrogateescape")].add(stat.pid)
    return Look(stats, {job: frozenset(pids) for job, pids in carriers.items()})


def living() -> list[ProcessStat]:
    """Every process that is not a zombie."""
    return [stat for stat in everything() if stat.state not in ("Z", "X")]


def signal_process(identity: Identity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False when it is gone. Never reaches a process that reused the pid.

    Raises:
        PermissionError: the process belongs to somebody else.
    """
    try:
        # The descriptor pins the process: what is checked after it was opened is what is signalled.
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # kernels before 5.3, a sandbox that forbids it, an old C library
        return _signal_by_number(identity, number)
    try:
        if not same_process(identity):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def _signal_by_number(identity: Identity, number: signal.Signals) -> bool:
    if not same_process(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    return True
