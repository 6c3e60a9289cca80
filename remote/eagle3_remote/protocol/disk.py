"""What extractions left on the box's disks, and long pieces of work on them."""

from __future__ import annotations

import dataclasses
import enum

from eagle3_remote.protocol.box import Mount
from eagle3_remote.protocol.jobs import JobStatus


@dataclasses.dataclass(frozen=True)
class SpaceQuery:
    """Where to look. Nothing named: the outputs and dump directories of this box's jobs, and their file systems."""

    paths: tuple[str, ...] = ()
    depth: int = 6
    """Folders below a starting point."""
    seconds: float = 20.0


@dataclasses.dataclass(frozen=True)
class Found:
    """One folder that an extraction made, ours or somebody else's."""

    path: str
    """Without links."""
    kind: str
    """``dataset``, ``dumps``, ``speculators``, ``speculators-v1``, ``specforge``, ``modelopt``, ``hand-made``, or of our own exports
    ``export-`` and the format."""
    ours: bool
    """Whether this project wrote it."""
    bytes: int
    """What removing it gives back, in allocated bytes; only what is recognised counts."""
    files: int
    exact: bool
    """False: time ran out, at least so much was seen."""
    device: int
    inode: int
    modified_at: float
    """Unix seconds of the newest change seen in its top folders."""
    shared_bytes: int = 0
    """In files that have a name (hard link) elsewhere too: removing them here gives nothing back."""
    strangers: int = 0
    """Entries inside that no extraction makes; they would stay."""
    owner: int = 0
    """User id."""
    complete: bool | None = None
    """Of a dataset or an export of ours; `None`: it does not tell."""
    samples: int | None = None
    model: str = ""
    boundaries: tuple[int, ...] = ()
    final: str = ""
    holder: str = ""
    """Who uses it now, in words; empty: nobody that can be seen."""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class SpaceReport:
    """What was found, largest first, and how far the look went."""

    found: tuple[Found, ...]
    mounts: tuple[Mount, ...]
    """The file systems that were looked at."""
    looked_in: tuple[str, ...]
    folders: int
    not_reached: int
    """Folders not looked into because time ran out."""
    too_deep: int
    """Folders not looked into because they lie deeper than asked."""
    seconds: float


@dataclasses.dataclass(frozen=True)
class ReclaimSpec:
    """One folder of the last `SpaceReport` to be removed."""

    path: str
    confirm: str
    """The folder's own name, as the person typed it."""


@dataclasses.dataclass(frozen=True)
class MergeSpec:
    """Shards to be joined into one dataset."""

    out: str
    shards: tuple[str, ...] = ()
    """Empty: those of the array that was submitted for `out`."""
    by: str = "hard-link"
    """``hard-link``, ``rename`` (uses the shards up) or ``symlink`` (they must stay where they are)."""
    python: str = ""
    """The Python with pyarrow; empty: that of the array, else the last extraction's."""


class WorkState(str, enum.Enum):
    """Where a long piece of work is."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class WorkStatus:
    """How far a detached piece of work (removing, joining) is."""

    state: WorkState
    sentence: str
    job: JobStatus | None = None
    done: int = 0
    """Files."""
    total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    elapsed: float = 0.0
    eta: float | None = None
