"""What the processes of a server job are and what they do, from ``/proc`` alone.

SGLang names its processes: ``sglang::scheduler_DP0_TP1``, ``sglang::detokenizer`` (``managers/scheduler.py``, 0.5.4 to
0.5.23; a part of the rank only where that size is above 1). The kernel keeps the first 15 letters of it for a zombie.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from eagle3_remote.box import identity
from eagle3_remote.files import read_json
from eagle3_remote.job import jobs, stopping

SEEN_FILE = "seen.json"
"""In the run directory: every scheduler that the supervisor saw, so that one which is gone without a trace is missed."""
SAMPLE = 0.4
"""Seconds between the two looks that tell whether a process works."""

_TITLE = re.compile(r"sglang::(?P<role>[a-z_]+?)(?P<rank>(?:_[A-Z][A-Z_]*\d+)*)(?::\d+)?\s*$")
_CUT = {"sglang::schedul": "scheduler", "sglang::detoken": "detokenizer", "sglang::data_pa": "data_parallel_controller"}
_WORKS = 0.05
"""Part of one core from which on a process counts as working."""
_READS = 64 * 1024
"""Bytes a second from which on a process counts as reading."""


@dataclasses.dataclass(frozen=True)
class Process:
    """One process of a server job."""

    pid: int
    start_time: int
    role: str
    """``main`` (the first process, which serves HTTP), ``scheduler``, ``detokenizer`` ..., ``helper``."""
    rank: str
    """``TP1`` or ``DP0 TP1``; empty where there is one rank only, and where it is not known."""
    title: str
    state: str
    cpu: float
    """Seconds of all its threads."""
    read: int
    """Bytes it has read so far."""
    ended_with: int | None = None
    """Exit code (negative: signal) of one that is dead; `None` while it lives, and where that is not known."""

    @property
    def name(self) -> str:
        """``scheduler TP1 (pid N)``."""
        return " ".join(filter(None, (self.role, self.rank))) + f" (pid {self.pid})"


@dataclasses.dataclass(frozen=True)
class Look:
    """One look at a job's processes."""

    alive: tuple[Process, ...] = ()
    dead: tuple[Process, ...] = ()
    """Schedulers that have ended while the first process lives."""

    def role(self, name: str) -> tuple[Process, ...]:
        """The living ones of one role."""
        return tuple(one for one in self.alive if one.role == name)

    @property
    def halted(self) -> tuple[Process, ...]:
        """Those that a signal (SIGSTOP, SIGTSTP) stopped. One under a debugger or py-spy is in state ``t``: not meant."""
        return tuple(one for one in self.alive if one.state == "T")


def look(job: jobs.Job) -> Look:
    """Every process that is provably the job's, and its schedulers that are dead."""
    everything = identity.look()
    members = stopping.members(job, everything)
    leader = job.leader
    alive = tuple(from_stat(stat, leader) for stat in members)
    if leader is None or all(one.pid != leader.pid for one in alive):
        return Look(alive)  # nothing can be missed once the first process is gone
    pids = {one.pid for one in alive}
    dead = [
        dataclasses.replace(from_stat(stat, leader), ended_with=stat.ended_with)
        for stat in everything.stats
        if stat.state in ("Z", "X") and stat.ppid in pids and _CUT.get(stat.name) == "scheduler"
    ]
    known = {(one.pid, one.start_time) for one in (*alive, *dead)}
    dead += [one for one in seen(job) if (one.pid, one.start_time) not in known]
    return Look(alive, tuple(_with_rank(one, alive, dead, job) for one in dead))


def seen(job: jobs.Job) -> list[Process]:
    """The schedulers that the supervisor saw in the job's present incarnation."""
    record = read_json(job.run_dir / SEEN_FILE) or {}
    leader = job.leader
    if leader is None or record.get("leader") != leader.pid:
        return []
    try:
        return [
            Process(int(one["pid"]), int(one["start_time"]), "scheduler", str(one["rank"]), "", "X", 0.0, 0)
            for one in record["schedulers"]
        ]
    except (KeyError, TypeError, ValueError):
        return []


def working(before: Iterable[Process], after: Iterable[Process], seconds: float) -> list[Process]:
    """Those of `after` that computed, read, or waited for a disk since `before`, `seconds` earlier."""
    old = {(one.pid, one.start_time): one for one in before}
    found = []
    for one in after:
        was = old.get((one.pid, one.start_time))
        if (
            was is None  # it is new: somebody made it
            or one.state == "D"
            or one.cpu - was.cpu > _WORKS * seconds
            or one.read - was.read > _READS * seconds
        ):
            found.append(one)
    return found


def watch(job: jobs.Job, seconds: float = SAMPLE) -> tuple[Look, list[Process]]:
    """A look, and which processes work; takes `seconds`."""
    before = look(job)
    time.sleep(seconds)
    after = look(job)
    return after, working(before.alive, after.alive, seconds)


def doing(now: Look, busy: Iterable[Process]) -> str:
    """What the schedulers (before there are any: all processes) do, in words."""
    works = {one.pid for one in busy}
    shown = now.role("scheduler") or now.alive
    words = [f"{one.name} {verb(one, one.pid in works)}" for one in shown[:4]]
    if len(shown) > 4:
        words.append(f"and {len(shown) - 4} more")
    return ", ".join(words) or "none of its processes is seen"


def verb(process: Process, works: bool) -> str:
    """What one process does, in words."""
    if process.state == "T":
        return "is halted by a signal (SIGSTOP)"
    if process.state == "D":
        return "waits for a disk or a driver"
    return "computes" if works else "sleeps"


def from_stat(stat: identity.ProcessStat, leader: identity.Identity | None) -> Process:
    """One process, named. `leader`: the job's first process."""
    title = title_of(stat.pid)
    match = _TITLE.match(title)
    if match is not None:
        role, rank = match["role"], match["rank"].strip("_")
    elif leader is not None and stat.pid == leader.pid:
        role, rank = "main", ""
    else:
        role, rank = _CUT.get(stat.name, "helper"), ""
    ticks = os.sysconf("SC_CLK_TCK")
    rank = re.sub(r"(?<=\d)_", " ", rank)
    return Process(
        stat.pid, stat.start_time, role, rank, title or stat.name, stat.state, stat.cpu_ticks / ticks, _read(stat.pid)
    )


def title_of(pid: int) -> str:
    """The command line of a process, or what it calls itself; empty for a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _read(pid: int) -> int:
    """Bytes read by calls and from the disk (mapped files are only in the latter)."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        return int(values.get("rchar", 0)) + int(values.get("read_bytes", 0))
    except ValueError:
        return 0


def _with_rank(one: Process, alive: Iterable[Process], dead: list[Process], job: jobs.Job) -> Process:
    """A zombie has lost its title: its rank is what the supervisor noted, else the one that no living scheduler has."""
    if one.rank:
        return one
    noted = next((old.rank for old in seen(job) if (old.pid, old.start_time) == (one.pid, one.start_time)), "")
    if not noted and len(dead) == 1:
        ranks = {process.rank for process in alive if process.role == "scheduler"}
        wanted = {f"TP{rank}" for rank in range(int(job.spec["message"].get("tp", 1)))} if ranks else {""}
        noted = next(iter(wanted - ranks), "") if len(wanted - ranks) == 1 else ""
    return dataclasses.replace(one, rank=noted)
