"""Detached jobs and their logs."""

from __future__ import annotations

import dataclasses
import enum


class JobState(str, enum.Enum):
    """The four honest states of a detached job, and the moment before the first."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    KILLED = "killed"
    REBOOTED = "rebooted"


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """One detached job, judged from its run directory and the process table."""

    id: str
    kind: str
    """``server``, ``extract``, ``verify``, ``reclaim``, ``merge`` or ``export``."""
    state: JobState
    pid: int | None
    rc: int | None
    started_at: float | None
    ended_at: float | None
    run_dir: str
    log_path: str
    log_size: int
    log_inode: int


@dataclasses.dataclass(frozen=True)
class LogChunk:
    """Bytes of a log. `offset` is where `data` starts; a changed `inode` or a smaller file restarts at 0."""

    inode: int
    offset: int
    data: str
    """Base64 of the raw bytes."""
    next_offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class StopReport:
    """What was stopped and what, if anything, is left."""

    job: str
    stopped: bool
    sentence: str
    leftovers: tuple[str, ...] = ()
