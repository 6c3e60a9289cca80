"""One extraction spread over the tasks of a Slurm job array: one server and one shard a task."""

from __future__ import annotations

import dataclasses
import enum

from eagle3_remote.protocol.extract import ExtractSpec, ExtractStatus
from eagle3_remote.protocol.server import ServerSpec


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """What a person asks for. All paths lie on a file system that the login host and the compute nodes share."""

    server: ServerSpec
    """Its port is only a wish: every task takes one that is free on its node."""
    extract: ExtractSpec
    """Of the whole; `out` is where the merged dataset will be."""
    tasks: int
    at_once: int = 0
    """So many tasks run at the same time; 0: as many as Slurm lets."""
    sbatch_args: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Submission:
    """A submitted array, or one that would be (`job` is empty then)."""

    job: str
    """Slurm's number of the array."""
    folder: str
    """Shards, logs and the script, beside the output."""
    script: str
    """The text of the batch script."""
    argv: tuple[str, ...]
    sentence: str


class TaskState(str, enum.Enum):
    """Where one task is."""

    QUEUED = "queued"
    STARTING = "starting"
    SERVER = "server"
    PROBING = "probing"
    EXTRACTING = "extracting"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    """Slurm knows nothing of it, or it has not been heard of, and it is not finished."""


@dataclasses.dataclass(frozen=True)
class TaskStatus:
    """One task: its own word, corrected by what Slurm says."""

    index: int
    state: TaskState
    sentence: str
    node: str = ""
    attempt: int = 0
    """How often Slurm has started it again."""
    heard_at: float | None = None
    """Unix seconds of its last word, by its node's clock."""
    slurm: str = ""
    """Slurm's own word: ``RUNNING``, ``PENDING``; empty: not known."""
    extract: ExtractStatus | None = None
    log: str = ""
    """What the task itself said."""
    shard: str = ""
    """The dataset of its shard."""


@dataclasses.dataclass(frozen=True)
class ArrayStatus:
    """A whole array."""

    job: str
    folder: str
    out: str
    sentence: str
    total: ExtractStatus
    """The sums over all tasks."""
    tasks: tuple[TaskStatus, ...] = ()
    running: int = 0
    """Tasks that have a node."""
    queued: int = 0
    finished: int = 0
    failed: int = 0
    """Failed, stopped or lost."""
    over: bool = False
    """No task runs or waits any more."""
    slurm_error: str = ""
    """Why Slurm could not be asked."""
