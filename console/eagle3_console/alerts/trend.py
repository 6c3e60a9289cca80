"""Points in time of one box, and what they say about the time to come. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from eagle3_remote.protocol import ExtractState, Mount, Snapshot

SLOPE_WINDOW = 60.0
"""Seconds over which the filling of the dump directory is measured; it breathes with every batch."""
DISK_WINDOW = 300.0
"""Seconds over which the other disks are measured: writes reach them in gulps."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One point of the plots, flat numbers alone: recordings keep it as a list. `None`: not known."""

    t: float
    """Unix seconds of the box."""
    samples_per_s: float
    bytes_per_s: float
    dump_used_fraction: float
    running: bool = False
    """The extraction sends, neither paused nor planning."""
    done: int = 0
    """Samples stored, rejected or failed."""
    bad: int = 0
    """Of them those rejected or failed."""
    output_free: int | None = None
    """Bytes."""
    output_inodes: int | None = None
    """Free ones."""
    home_free: int | None = None
    home_inodes: int | None = None
    dump_inodes: int | None = None


def sample_of(snapshot: Snapshot) -> Sample:
    """The point that a snapshot is."""
    extract = snapshot.extract
    mounts = {mount.label: mount for mount in snapshot.gauges.mounts}
    output, home, dump = mounts.get("output"), mounts.get("home"), mounts.get("dump")
    return Sample(
        t=snapshot.clock,
        samples_per_s=extract.samples_per_s if extract is not None else 0.0,
        bytes_per_s=extract.bytes_per_s if extract is not None else 0.0,
        dump_used_fraction=used_fraction(dump) if dump is not None else 0.0,
        running=extract is not None and extract.state is ExtractState.RUNNING,
        done=extract.stored + extract.rejected + extract.failed if extract is not None else 0,
        bad=extract.rejected + extract.failed if extract is not None else 0,
        output_free=output.free if output is not None else None,
        output_inodes=output.inodes_free if output is not None else None,
        home_free=home.free if home is not None else None,
        home_inodes=home.inodes_free if home is not None else None,
        dump_inodes=dump.inodes_free if dump is not None else None,
    )


def used_fraction(mount: Mount) -> float:
    """Between 0 and 1; an empty file system of no size counts as full."""
    return 1.0 - mount.free / mount.total if mount.total > 0 else 1.0


def since(history: Sequence[Sample], seconds: float) -> Sequence[Sample]:
    """The points of the last so many seconds."""
    if not history:
        return ()
    start = len(history) - 1
    while start > 0 and history[start - 1].t >= history[-1].t - seconds:
        start -= 1
    return history[start:]


def dump_slope(history: Sequence[Sample]) -> float:
    """Fraction of the dump directory's file system filled each second over `SLOPE_WINDOW`; 0 with too little history."""
    recent = since(history, SLOPE_WINDOW)
    span = recent[-1].t - recent[0].t if recent else 0.0
    return (recent[-1].dump_used_fraction - recent[0].dump_used_fraction) / span if span >= SLOPE_WINDOW / 3 else 0.0


def falling(history: Sequence[Sample], name: str) -> float:
    """How much of the field `name` is lost each second over `DISK_WINDOW`; 0 where it rises, or with too little history."""
    known = [
        (sample.t, value) for sample in since(history, DISK_WINDOW) if (value := getattr(sample, name)) is not None
    ]
    span = known[-1][0] - known[0][0] if known else 0.0
    return max(0.0, (known[0][1] - known[-1][1]) / span) if span >= DISK_WINDOW / 3 else 0.0
