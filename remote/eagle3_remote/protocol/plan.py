"""What an extraction will take, before it is started."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Space:
    """One file system as the extraction will use it. Bytes."""

    path: str
    filesystem: str
    free: int
    need: int
    inodes: int | None
    """Free; `None` where they are not counted."""
    files: int
    """Files that are still to be written there."""


@dataclasses.dataclass(frozen=True)
class SmokeRate:
    """What the last forecast with a model measured."""

    samples: int = 0
    """Real requests; 0: it was never measured."""
    tokens_per_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """The forecast of one extraction."""

    samples: int
    """Valid ones that are still to be extracted."""
    tokens: int
    bytes: int
    """Of the files of states that are still to be written."""
    longest: int
    """Tokens of the longest sample that was read."""
    rejected: int
    read: float
    """How much of the input was read for this, 0 to 1; the rest is taken to be like it."""
    output: Space
    dump: Space
    rename: bool
    """Dumps are renamed into the dataset; else they are copied."""
    smoke_samples: int = 0
    """Real requests that the rate was measured with; 0: none were sent."""
    tokens_per_s: float = 0.0
    eta: float | None = None
    """Seconds; `None`: not measured."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why an extraction would not start."""
