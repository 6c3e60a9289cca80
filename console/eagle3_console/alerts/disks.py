"""Disks, inodes and the dump directory: by how full they are, and by when they will be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from eagle3_console import units
from eagle3_console.alerts.extraction import EXTRACTING
from eagle3_console.alerts.trend import DISK_WINDOW, Sample, dump_slope, falling, since, used_fraction
from eagle3_console.events import Alert, Level
from eagle3_remote.protocol import ExtractStatus, Mount, Snapshot

SOON = 1800.0
"""Seconds to full that are worth waking somebody for."""
_FAR = 86_400.0
"""Seconds to full beyond which a trend says nothing."""
_MATTERS = 0.1
"""Share of what is free that a run must still write for the time to full to be worth a word, where that is far."""
_MIN_INODES = 1000

_NAMES = {"output": "output disk", "dump": "dump directory", "home": "box folder's disk"}
_CURES = {
    "output": "make room there, or stop ({stop}) and start again with another output directory: what is stored stays",
    "dump": "remove files there that are not this run's; the extraction waits while the dump directory is full",
    "home": "make room there: logs and releases are written to it",
}


@dataclasses.dataclass(frozen=True)
class Pressure:
    """How full one file system is, and when it will be."""

    mount: Mount
    used_fraction: float
    needed: int
    """Bytes that the run will still write there; 0 where that is not known."""
    full_in: float | None
    """Seconds; `None` when nothing fills it."""
    level: Level
    """``info``: it will do."""
    verdict: str
    """``ok``, ``low``, ``almost full``, ``too small``, ``filling``: the word beside the colour."""


def pressure(mount: Mount, extract: ExtractStatus | None, history: Sequence[Sample] = ()) -> Pressure:
    """Judge one file system by its level, by its time to full, and by what the run still needs."""
    fraction = used_fraction(mount)
    needed, full_in, filling = 0, None, False
    if mount.label == "output" and extract is not None and extract.state in EXTRACTING:
        needed = max(0, extract.bytes_total - extract.bytes_stored)
        rate = max(falling(history, "output_free"), extract.bytes_per_s)
        full_in = mount.free / rate if rate > 0 else None
        if needed:  # it will do, unless somebody else writes there too
            filling = needed + others(history) * (extract.eta or 0.0) > mount.free
        else:
            filling = full_in is not None and full_in < SOON
        if needed < _MATTERS * mount.free and not filling and (full_in or 0.0) > SOON:
            full_in = None  # the run ends long before
    elif mount.label == "dump":
        slope = dump_slope(history)
        full_in = (1.0 - fraction) / slope if slope * _FAR > 1.0 - fraction else None
        filling = full_in is not None and full_in < 60 and fraction > 0.3
    elif mount.label in ("output", "home"):
        rate = falling(history, f"{mount.label}_free")
        full_in = mount.free / rate if rate * _FAR > mount.free else None
        filling = full_in is not None and full_in < SOON
    level, verdict = _judge(mount, fraction, needed, filling)
    return Pressure(mount, fraction, needed, full_in, level, verdict)


def others(history: Sequence[Sample]) -> float:
    """Bytes a second that somebody else writes to the output disk; a tenth of what we write may be the disk's own."""
    points = since(history, DISK_WINDOW)
    ours = sum(point.bytes_per_s for point in points) / len(points) if points else 0.0
    rate = falling(history, "output_free")
    return rate - ours if rate > 1.1 * ours else 0.0


def _judge(mount: Mount, fraction: float, needed: int, filling: bool) -> tuple[Level, str]:
    if needed > mount.free:
        return "error", "too small"
    warn_at, alarm_at = (0.80, 0.95) if mount.label == "dump" else (0.95, 0.98)
    if fraction >= alarm_at:
        return "error", "almost full"
    if filling:
        return "warning", "filling"
    if fraction >= warn_at:
        return "warning", "low"
    return "info", "ok"


def disks(snapshot: Snapshot, history: Sequence[Sample], keys: Mapping[str, str]) -> Iterator[Alert]:
    """What is wrong with the file systems of a box."""
    for mount in snapshot.gauges.mounts:
        name = f"{_NAMES.get(mount.label, mount.label)} {mount.path}"
        cure = _CURES.get(mount.label, "make room there").format(stop=keys["stop"])
        state = pressure(mount, snapshot.extract, history)
        when = f", full in {units.duration(state.full_in)}" if state.full_in is not None else ""
        if state.verdict == "too small":
            missing = units.gb_and_gib(state.needed - mount.free)
            text = f"{name} will not hold the run: {missing} too little{when}"
            yield Alert(0.0, "error", f"{mount.label}-too-small", text, cure)
        elif state.level != "info":
            text = f"{name} {state.verdict}: {units.gb_and_gib(mount.free)} free{when}"
            if state.verdict == "filling" and state.needed and snapshot.extract is not None:
                rate = units.bytes_rate(others(history))
                text += f"; something else writes {rate} there, and the extraction needs {units.duration(snapshot.extract.eta)}"
            yield Alert(0.0, state.level, f"{mount.label}-{state.verdict.replace(' ', '-')}", text, cure)
        yield from _inodes(mount, name, snapshot.extract, history)


def _inodes(mount: Mount, name: str, extract: ExtractStatus | None, history: Sequence[Sample]) -> Iterator[Alert]:
    free = mount.inodes_free
    if free is None:
        return
    cure = "delete small files there (df -i shows the count)"
    needed, before = 0, SOON
    if mount.label == "output" and extract is not None and extract.state in EXTRACTING:
        needed = max(0, extract.total - extract.stored - extract.rejected - extract.failed)
        before = min(SOON, extract.eta) if extract.eta is not None and extract.total_final else SOON
    left = f"{name} has {units.number(free)} inodes left"
    if free < max(needed, _MIN_INODES):
        text = f"{left}, the run needs {units.number(needed)} files more" if needed > free else left
        yield Alert(0.0, "error", f"{mount.label}-inodes", text, cure)
        return
    rate = falling(history, f"{mount.label}_inodes") if mount.label in _NAMES else 0.0
    if rate > 0 and free / rate < before:
        text = f"{left}, and none in {units.duration(free / rate)} if it goes on like this"
        yield Alert(0.0, "warning", f"{mount.label}-inodes-filling", text, cure)
