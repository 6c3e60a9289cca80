"""The extraction and the long pieces of work after it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eagle3_console import units
from eagle3_console.alerts.trend import Sample, since
from eagle3_console.events import Alert, Level
from eagle3_remote.protocol import ExtractState, ExtractStatus, WorkState, WorkStatus

EXTRACTING = (ExtractState.PLANNING, ExtractState.RUNNING, ExtractState.PAUSED, ExtractState.FINISHING)
SLOW_FOR = 120.0
"""Seconds for which the rate must stay below half its median: rates are means of 30 s, so a pause before does not count."""
_USUAL_POINTS = 60
"""Points of the history before which there is no usual rate."""
FEW = 5
"""Bad samples that are nothing to wake somebody for."""
SHARE_WINDOW = 300.0
"""Seconds over which the share of bad samples is compared with that before."""
_SHARE = 0.05


def extraction(extract: ExtractStatus | None, history: Sequence[Sample], keys: Mapping[str, str]) -> Iterator[Alert]:
    """How the extraction is or ended, where a person wants to know."""
    if extract is None:
        return
    job = extract.job.id if extract.job is not None else "extract"
    bad = f"{units.number(extract.rejected)} rejected, {units.number(extract.failed)} failed"
    start, pause = keys["extract.start"], keys["extract.pause"]
    goes_on = f"{pause} on the screen, or `eagle3-console extract resume`, lets it go on"
    stored = f"{units.number(extract.stored)} of {units.number(extract.total)} stored"
    if extract.state is ExtractState.FAILED:
        cure = f"mend the cause, then {start}: it resumes with what is stored"
        yield Alert(0.0, "error", f"extract-failed:{job}", f"extraction failed: {extract.sentence}", cure)
    elif extract.state is ExtractState.STOPPED:
        yield Alert(0.0, "warning", f"extract-stopped:{job}", f"extraction stopped: {stored}", f"{start} resumes it")
    elif extract.state is ExtractState.PAUSED and extract.held == "request":
        yield Alert(0.0, "info", f"extract-paused:{job}", "extraction paused on request", goes_on)
    elif extract.state is ExtractState.PAUSED:
        text = f"extraction paused: {extract.sentence}"
        yield Alert(
            0.0, "warning", f"extract-paused:{job}", text, goes_on if extract.held else "see 1 Server and 3 Box"
        )
    elif extract.state is ExtractState.FINISHED and extract.nothing_to_do:
        out = f" in {extract.spec.out}" if extract.spec is not None else ""
        whole = extract.stored == extract.total
        text = f"all {units.number(extract.total)} samples are stored" if whole else f"{stored}, and nothing is left"
        cure = f"{keys['setup']} chooses another output, for another dataset" if "setup" in keys else ""
        yield Alert(0.0, "info", f"extract-idle:{job}", f"nothing was to do: {text}{out}", cure)
    elif extract.state is ExtractState.FINISHED and extract.rejected + extract.failed:
        cure = "`eagle3-console report` lists each with its line and reason"
        yield Alert(0.0, "warning", f"extract-bad:{job}", f"extraction finished: {stored}, {bad}", cure)
    elif extract.state is ExtractState.FINISHED:
        yield Alert(0.0, "info", f"extract-done:{job}", f"extraction finished: {stored}")
    else:
        yield from _slow(extract, job, history, keys)
        yield from _bad(extract, job, bad, history, keys)


def _slow(extract: ExtractStatus, job: str, history: Sequence[Sample], keys: Mapping[str, str]) -> Iterator[Alert]:
    """Bytes are compared, not samples: how long the samples are changes, what a token takes does not."""
    recent = since(history, SLOW_FOR)
    if extract.state is not ExtractState.RUNNING or not recent or recent[-1].t - recent[0].t < 0.9 * SLOW_FOR:
        return
    rest = extract.total - extract.stored - extract.rejected - extract.failed
    if not all(point.running for point in recent) or (extract.total_final and rest <= extract.in_flight):
        return  # it has just gone on, or ends
    before = history[: len(history) - len(recent)]
    usual = [point.bytes_per_s for point in before if point.running and point.bytes_per_s > 0]
    if len(usual) < _USUAL_POINTS:
        return
    median, best = statistics.median(usual), max(point.bytes_per_s for point in recent)
    if best < median / 2:
        text = (
            f"extraction slow: {units.bytes_rate(extract.bytes_per_s)} for {units.duration(SLOW_FOR)}, "
            f"its median is {units.bytes_rate(median)}"
        )
        cure = f"see 3 Box for full disks and other users of the GPUs, and the server's log ({keys['focus.4']})"
        yield Alert(0.0, "warning", f"extract-slow:{job}", text, cure)


def _bad(
    extract: ExtractStatus, job: str, words: str, history: Sequence[Sample], keys: Mapping[str, str]
) -> Iterator[Alert]:
    """More than a few, and a share that rises."""
    bad = extract.rejected + extract.failed
    if bad > FEW:
        share = 100 * bad / (extract.stored + bad)
        text = f"{units.number(bad)} samples are bad ({share:.2g} % of those done): {words}"
        cure = (
            "`eagle3-console report` lists each with its reason; those that failed are tried again at the next start "
            f"({keys['extract.start']})"
        )
        yield Alert(0.0, "warning", f"samples-bad:{job}", text, cure)
    recent = since(history, SHARE_WINDOW)
    if len(recent) < 2:
        return
    first, last = recent[0], recent[-1]
    done, new = last.done - first.done, last.bad - first.bad
    before = first.bad / first.done if first.done else 0.0
    if done > 0 and new > FEW and new / done >= max(_SHARE, 2 * before):
        text = (
            f"more and more samples are bad: {100 * new / done:.0f} % of the last {units.number(done)}, "
            f"{100 * before:.2g} % before"
        )
        cure = (
            f"{keys['extract.pause']} holds it; the log of the extraction and `eagle3-console report` have the reasons"
        )
        yield Alert(0.0, "error", f"bad-share:{job}", text, cure)


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
