"""Several boxes at a glance: one line each, and their sum. Pure: states in, lines out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from eagle3_console.alerts import pressure
from eagle3_console.events import ENDED, UNDER_WAY, Alert, Level
from eagle3_console.state import ConsoleState

_GRAVE: tuple[Level, ...] = ("info", "warning", "error")


@dataclasses.dataclass(frozen=True)
class BoxLine:
    """What matters of one box. `None`: not known."""

    host: str
    link: str
    """The connection's word, as `eagle3_console.events.Connection` has it."""
    sentence: str
    """What is done about the connection; for a box that refuses: why."""
    as_of: float | None
    """Unix seconds of this machine when the rest was so."""
    phase: str | None
    """Of the server."""
    extract: str | None
    """State of the newest extraction."""
    stored: int | None
    total: int | None
    samples_per_s: float | None
    bytes_stored: int | None
    eta: float | None
    """Seconds."""
    disk: str | None
    """The worst verdict of output and dump directory."""
    disk_level: Level
    alert: Alert | None
    """The last one."""


@dataclasses.dataclass(frozen=True)
class Total:
    """All boxes together."""

    boxes: int
    connected: int
    stored: int
    total: int
    samples_per_s: float
    bytes_stored: int
    eta: float | None
    """Of the box that takes longest."""


def line(host: str, state: ConsoleState) -> BoxLine:
    """One box."""
    now = state.snapshot
    extract = now.extract if now is not None else None
    disk: str | None = None
    level: Level = "info"
    for mount in now.gauges.mounts if now is not None else ():
        if mount.label in ("output", "dump"):
            found = pressure(mount, extract, state.history)
            if disk is None or _GRAVE.index(found.level) > _GRAVE.index(level):
                disk, level = found.verdict, found.level
    return BoxLine(
        host=host,
        link=state.connection.word,
        sentence=state.connection.sentence,
        as_of=state.as_of,
        phase=now.server.phase.value if now is not None else None,
        extract=extract.state.value if extract is not None else None,
        stored=extract.stored if extract is not None else None,
        total=extract.total if extract is not None else None,
        samples_per_s=extract.samples_per_s if extract is not None else None,
        bytes_stored=extract.bytes_stored if extract is not None else None,
        eta=extract.eta if extract is not None else None,
        disk=disk,
        disk_level=level,
        alert=state.alerts[-1] if state.alerts else None,
    )


def total(lines: Sequence[BoxLine]) -> Total:
    """The sum; the rate only of boxes that are connected."""
    etas = [one.eta for one in lines if one.eta is not None]
    return Total(
        boxes=len(lines),
        connected=sum(one.link == "connected" for one in lines),
        stored=sum(one.stored or 0 for one in lines),
        total=sum(one.total or 0 for one in lines),
        samples_per_s=sum(one.samples_per_s or 0.0 for one in lines if one.link == "connected"),
        bytes_stored=sum(one.bytes_stored or 0 for one in lines),
        eta=max(etas, default=None),
    )


def alerts(states: Sequence[tuple[str, ConsoleState]]) -> list[tuple[str, Alert]]:
    """Those of all boxes in one list, newest first, each with its host; a link that is not there is one too, as it is now."""
    found = [
        (host, alert)
        for host, state in states
        for alert in state.alerts
        if state.connection.live or not alert.cause.startswith("link-")
    ]
    for host, state in states:
        link = state.connection
        if not link.live and link.word not in UNDER_WAY:
            level: Level = "error" if link.word in ENDED else "warning"
            found.append((host, Alert(link.since, level, "link", f"{link.word}: {link.sentence}")))
    return sorted(found, key=lambda pair: pair[1].at, reverse=True)
