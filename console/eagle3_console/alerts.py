"""What is wrong, derived from a snapshot by pure functions: every finding has a cause and a cure.

A finding stays found for as long as it is so; `fresh` picks what a person has not been told yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eagle3_console import units
from eagle3_console.events import Alert, Level
from eagle3_remote.protocol import (
    STARTING,
    ExtractState,
    ExtractStatus,
    Mount,
    Phase,
    ServerStatus,
    Snapshot,
    WorkState,
    WorkStatus,
)

REARM_AFTER = 300.0
"""Seconds for which a cause must be gone before it is told again: a value at its threshold is not news twice a second."""
SLOPE_WINDOW = 60.0
"""Seconds over which the filling of the dump directory is measured; it breathes with every batch."""

SERVING = (Phase.READY, Phase.BUSY)
EXTRACTING = (ExtractState.PLANNING, ExtractState.RUNNING, ExtractState.PAUSED, ExtractState.FINISHING)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One point of the plots. `t` is Unix seconds of the box."""

    t: float
    samples_per_s: float
    bytes_per_s: float
    dump_used_fraction: float


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


def used_fraction(mount: Mount) -> float:
    """Between 0 and 1; an empty file system of no size counts as full."""
    return 1.0 - mount.free / mount.total if mount.total > 0 else 1.0


def dump_slope(history: Sequence[Sample]) -> float:
    """Fraction of the dump directory's file system filled each second over `SLOPE_WINDOW`; 0 with too little history."""
    if not history:
        return 0.0
    recent = [sample for sample in history if sample.t >= history[-1].t - SLOPE_WINDOW]
    span = recent[-1].t - recent[0].t
    return (recent[-1].dump_used_fraction - recent[0].dump_used_fraction) / span if span >= SLOPE_WINDOW / 3 else 0.0


def pressure(mount: Mount, extract: ExtractStatus | None, history: Sequence[Sample] = ()) -> Pressure:
    """Judge one file system by its level, by its time to full, and by what the run still needs."""
    running = extract is not None and extract.state in EXTRACTING
    fraction = used_fraction(mount)
    needed, full_in = 0, None
    if mount.label == "output" and running and extract is not None:
        needed = max(0, extract.bytes_total - extract.bytes_stored)
        full_in = mount.free / extract.bytes_per_s if extract.bytes_per_s > 0 else None
    elif mount.label == "dump":
        slope = dump_slope(history)
        full_in = (1.0 - fraction) / slope if slope > 1e-6 else None
    level, verdict = _judge(mount, fraction, needed, full_in)
    return Pressure(mount, fraction, needed, full_in, level, verdict)


def _judge(mount: Mount, fraction: float, needed: int, full_in: float | None) -> tuple[Level, str]:
    if needed > mount.free:
        return "error", "too small"
    warn_at, alarm_at = (0.80, 0.95) if mount.label == "dump" else (0.95, 0.98)
    if fraction >= alarm_at:
        return "error", "almost full"
    if mount.label == "dump" and full_in is not None and full_in < 60 and fraction > 0.3:
        return "warning", "filling"
    if mount.label == "output" and not needed and full_in is not None and full_in < 1800:
        return "warning", "filling"
    if fraction >= warn_at:
        return "warning", "low"
    return "info", "ok"


def conditions(snapshot: Snapshot, at: float, history: Sequence[Sample] = ()) -> tuple[Alert, ...]:
    """Everything that is so now and that a person wants to know, each with its cause.

    Args:
        at: this machine's Unix clock, for the alert's time.
    """
    found = [
        *_disks(snapshot, history),
        *_server(snapshot.server, snapshot.extract),
        *_patch(snapshot.server),
        *_extract(snapshot.extract),
    ]
    return tuple(dataclasses.replace(alert, at=at) for alert in found)


def fresh(active: Mapping[str, float], found: Iterable[Alert], at: float) -> tuple[tuple[Alert, ...], dict[str, float]]:
    """What of `found` is news, and the causes that count as told from now on.

    `active` maps each cause told to when it was last seen; a cause gone for `REARM_AFTER` may be told again.
    """
    known = {cause: seen for cause, seen in active.items() if at - seen < REARM_AFTER}
    news = []
    for alert in found:
        if alert.cause not in known:
            news.append(alert)
        known[alert.cause] = at
    return tuple(news), known


def _alert(level: Level, cause: str, text: str, cure: str) -> Alert:
    return Alert(0.0, level, cause, text, cure)


_MOUNT_NAMES = {"output": "output disk", "dump": "dump directory", "home": "box folder's disk"}
_MOUNT_CURES = {
    "output": "make room there, or stop (x) and start again with another output directory: what is stored stays",
    "dump": "remove files there that are not this run's; the extraction waits while the dump directory is full",
    "home": "make room there: logs and releases are written to it",
}


def _disks(snapshot: Snapshot, history: Sequence[Sample]) -> Iterator[Alert]:
    for mount in snapshot.gauges.mounts:
        name = f"{_MOUNT_NAMES.get(mount.label, mount.label)} {mount.path}"
        cure = _MOUNT_CURES.get(mount.label, "make room there")
        state = pressure(mount, snapshot.extract, history)
        when = f", full in {units.duration(state.full_in)}" if state.full_in is not None else ""
        if state.verdict == "too small":
            missing = units.gb_and_gib(state.needed - mount.free)
            text = f"{name} will not hold the run: {missing} too little{when}"
            yield _alert("error", f"{mount.label}-too-small", text, cure)
        elif state.level != "info":
            text = f"{name} {state.verdict}: {units.gb_and_gib(mount.free)} free{when}"
            yield _alert(state.level, f"{mount.label}-{state.verdict.replace(' ', '-')}", text, cure)
        yield from _inodes(mount, name, snapshot.extract)


def _inodes(mount: Mount, name: str, extract: ExtractStatus | None) -> Iterator[Alert]:
    if mount.inodes_free is None:
        return
    needed = 0
    if mount.label == "output" and extract is not None and extract.state in EXTRACTING:
        needed = max(0, extract.total - extract.stored - extract.rejected - extract.failed)
    if mount.inodes_free < max(needed, 1000):
        text = (
            f"{name} has {units.number(mount.inodes_free)} inodes left, the run needs {units.number(needed)} files more"
        )
        yield _alert("error", f"{mount.label}-inodes", text, "delete small files there (df -i shows the count)")


def _server(server: ServerStatus, extract: ExtractStatus | None) -> Iterator[Alert]:
    job = server.job.id if server.job is not None else "server"
    log = server.log
    if server.phase is Phase.FAILED:
        reason = log.root_cause or server.sentence
        text = f"server failed ({log.failure}): {reason}" if log.failure else f"server failed: {reason}"
        yield _alert("error", f"server-failed:{job}", text, log.advice or "read the log (4), then start it again (s)")
    elif server.phase is Phase.UNRESPONSIVE:
        yield _alert("error", f"server-unresponsive:{job}", server.sentence, "read the log (4); R restarts the server")
    elif server.phase is Phase.EXITED and extract is not None and extract.state in EXTRACTING:
        text = "the server is gone while the extraction runs"
        yield _alert("error", f"server-exited:{job}", text, "start it again (s), then the extraction (e): it resumes")
    elif server.phase is Phase.STUCK:
        cure = "`eagle3-console server stack` shows where each process is; R restarts the server"
        yield _alert("error", f"server-stuck:{job}", server.sentence, cure)


def _patch(server: ServerStatus) -> Iterator[Alert]:
    if server.job is None or server.phase not in (*STARTING, *SERVING, Phase.FAILED):
        return
    job, log = server.job.id, server.log
    if log.refused is not None:
        text = f"the patch refused to work: {log.refused}"
        yield _alert("error", f"patch-refused:{job}", text, "no rows can be dumped by this server; see the log (4)")
    seen, wanted = ranks(server)
    if server.phase in SERVING and log.refused is None and seen < wanted:
        text = f"the patch is active on {seen} of {wanted} ranks"
        yield _alert("error", f"patch-missing:{job}", text, "do not extract: deploy (d) and restart the server (R)")
    if server.phase in SERVING and server.spec is not None and server.spec.radix_cache:
        text = "the radix cache is on: shared prefixes would be missing from the rows"
        yield _alert(
            "warning",
            f"radix-on:{job}",
            text,
            ("e extracts without a restart, " if server.extra_key else "") + "R restarts with the radix cache off",
        )
    if log.cached_tokens > 0 and not (server.spec is not None and server.spec.radix_cache):  # with it on, others may
        text = f"a prefill took {units.number(log.cached_tokens)} tokens from the cache: their rows are missing"
        yield _alert("error", f"cached-tokens:{job}", text, "R restarts the server with the radix cache off")


def ranks(server: ServerStatus) -> tuple[int, int]:
    """On how many tensor-parallel ranks the patch said that it is there, and on how many it must."""
    markers = server.log.markers
    wanted = max([marker.tp_size for marker in markers], default=0) or (server.spec.tp if server.spec else 1)
    return len({marker.tp_rank for marker in markers}), wanted


def _extract(extract: ExtractStatus | None) -> Iterator[Alert]:
    if extract is None:
        return
    job = extract.job.id if extract.job is not None else "extract"
    bad = f"{units.number(extract.rejected)} rejected, {units.number(extract.failed)} failed"
    stored = f"{units.number(extract.stored)} of {units.number(extract.total)} stored"
    if extract.state is ExtractState.FAILED:
        cure = "mend the cause, then e: it resumes with what is stored"
        yield _alert("error", f"extract-failed:{job}", f"extraction failed: {extract.sentence}", cure)
    elif extract.state is ExtractState.PAUSED:
        yield _alert(
            "warning", f"extract-paused:{job}", f"extraction paused: {extract.sentence}", "see 1 Server and 3 Box"
        )
    elif extract.state is ExtractState.FINISHED and extract.rejected + extract.failed:
        cure = "`eagle3-console report` lists each with its line and reason"
        yield _alert("warning", f"extract-bad:{job}", f"extraction finished: {stored}, {bad}", cure)
    elif extract.state is ExtractState.FINISHED:
        yield _alert("info", f"extract-done:{job}", f"extraction finished: {stored}", "")
    elif extract.failed:
        cure = "they are tried again at the next start (e); the log of the extraction has the reasons"
        yield _alert("warning", f"samples-failed:{job}", "samples fail: rows that came back were not right", cure)


_WORK_LEVELS: dict[WorkState, Level] = {
    WorkState.FINISHED: "info",
    WorkState.STOPPED: "warning",
    WorkState.FAILED: "error",
}


def of_work(work: Iterable[WorkStatus], at: float) -> tuple[Alert, ...]:
    """What of the exports, merges and removals has ended, and how."""
    found = []
    for one in work:
        level = _WORK_LEVELS.get(one.state)
        if level is not None and one.job is not None:
            cure = "" if level == "info" else "the same command goes on with it"
            text = f"{one.job.kind} {one.state.value}: {one.sentence}"
            found.append(Alert(at, level, f"work-{one.state.value}:{one.job.id}", text, cure))
    return tuple(found)
