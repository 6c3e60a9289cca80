"""Detached jobs and their logs."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


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
class JobRecord:
    """One line of the list of jobs."""

    status: JobStatus
    words: str
    """How it is, in words: ``running``, ``finished (exit code 0)``, ``killed by signal 9`` ..."""
    size: int
    """Bytes of its run folder, the log among them."""
    release: str
    """Name of the release folder that it was started from; the whole path where that lies elsewhere."""
    needed: str = ""
    """Why cleaning leaves it, a clause; empty: it may go."""


@dataclasses.dataclass(frozen=True)
class JobDetail:
    """Everything about one job. Secrets read `eagle3_remote.protocol.secret.HIDDEN`."""

    record: JobRecord
    argv: tuple[str, ...]
    env: dict[str, str]
    """What was set on top of the environment that the agent had."""
    cwd: str
    release: str
    ended: str
    """How it ended, a sentence; of one that has not, how it is."""
    message: dict[str, Any]
    """What was asked for."""
    last_lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CleanSpec:
    """Which ended jobs' run folders are to go, and whether they are to go now. What is needed or lives never goes."""

    ids: tuple[str, ...] = ()
    """Only these; empty: by the two rules below, which both must hold."""
    older_than: float = 0.0
    """Seconds since the end."""
    keep: int = 0
    """So many of each kind stay, the newest."""
    go: bool = False
    """False: only say what would go."""


@dataclasses.dataclass(frozen=True)
class CleanReport:
    """What went (or would go)."""

    gone: bool
    """Whether it was done."""
    jobs: tuple[JobRecord, ...]
    kept: tuple[JobRecord, ...]
    """Those that a rule or an id named and that stay because they are `JobRecord.needed`."""
    releases: tuple[str, ...]
    """Release folders that no job and no agent uses."""
    bytes: int
    """Of the run folders and releases together."""
    problems: tuple[str, ...] = ()
    """Sentences: what could not be removed."""
    unfinished: tuple[str, ...] = ()
    """Run folders of jobs that never started: whoever wrote them was killed before they were whole."""


@dataclasses.dataclass(frozen=True)
class LogChunk:
    """Bytes of a log. `offset` is where `data` starts; a changed `inode` or a smaller file restarts at 0."""

    inode: int
    offset: int
    data: str
    """Base64 of the raw bytes."""
    next_offset: int
    size: int
    dropped: int = 0
    """Bytes right before `offset` that were asked for and are not kept any more: the middle of a log that grew too large."""


@dataclasses.dataclass(frozen=True)
class StopReport:
    """What was stopped and what, if anything, is left."""

    job: str
    stopped: bool
    sentence: str
    leftovers: tuple[str, ...] = ()
