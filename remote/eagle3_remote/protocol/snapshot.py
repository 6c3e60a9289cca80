"""Everything a console shows, in one message."""

from __future__ import annotations

import dataclasses

from eagle3_remote.protocol.array import ArrayStatus
from eagle3_remote.protocol.box import Gauges
from eagle3_remote.protocol.extract import ExtractStatus
from eagle3_remote.protocol.foreign import ForeignServer
from eagle3_remote.protocol.server import ServerStatus


@dataclasses.dataclass(frozen=True)
class Steering:
    """The console that steers the box."""

    name: str
    """``user@laptop``."""
    since: float
    """Unix seconds, the box's clock."""
    mine: bool
    """Whether it is the one that asked."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The whole truth in one message."""

    clock: float
    gauges: Gauges
    server: ServerStatus
    extract: ExtractStatus | None = None
    foreign: tuple[ForeignServer, ...] = ()
    """SGLang servers on the box that are no jobs of ours."""
    array: ArrayStatus | None = None
    """The Slurm array, where the last thing that was started is one; `extract` is its sum then."""
    steering: Steering | None = None
    """`None`: nobody does, and the first that changes something will."""
