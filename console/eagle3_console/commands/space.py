"""What extractions left on the box's disks, and removing it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from typing import Any

from eagle3_console import units
from eagle3_console.commands.context import open_flow, print_stop
from eagle3_console.errors import BoxRefused, UsageError
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import Flow
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import (
    Found,
    JobState,
    JobStatus,
    ReclaimSpec,
    SpaceQuery,
    SpaceReport,
    StopReport,
    WorkState,
    WorkStatus,
)

_ANSWER = 60.0
"""Seconds on top of the look's own time."""


async def show(args: argparse.Namespace) -> int:
    """What lies there: ours, left-over dumps, other people's."""
    async with open_flow(args) as flow:
        query = SpaceQuery(tuple(args.paths), args.depth, float(args.seconds))
        report = await flow.watcher.call("space", query, SpaceReport, wait=args.seconds + _ANSWER)
        if args.json:
            print_json(report)
        else:
            print_text(space_text(report, args.host))
        return ExitCode.GOOD


async def reclaim(args: argparse.Namespace) -> int:
    """Remove one folder that was shown, or watch its removal again."""
    if args.stop:
        async with open_flow(args) as flow:
            stopped = await flow.change("space.stop", {"path": args.path.rstrip("/")}, StopReport)
            return print_stop(stopped, args, ExitCode.BOX_NOT_FIT)
    name = os.path.basename(args.path.rstrip("/"))
    confirm = args.confirm or _ask(name, args.host)
    async with open_flow(args) as flow:
        spec = ReclaimSpec(args.path.rstrip("/"), confirm)
        job = await flow.change("space.reclaim", spec, JobStatus)
        if args.no_wait:
            if args.json:
                print_json(job)
            else:
                print_text(f"{job.id}: started; it goes on without this console.")
            return ExitCode.GOOD
        return finished(await follow(flow, job.id), args)


def _ask(name: str, host: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"Nothing was removed: give the folder's own name with --confirm {name}.")
    print(f"This removes {name} on {host} for ever. Type its name to go on: ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip()


async def follow(flow: Flow, job: str) -> WorkStatus:
    """Tell how a detached piece of work goes until it ends. It does not need us."""
    said = ""
    while True:
        work = await flow.watcher.call("work", {"job": job}, WorkStatus)
        alive = work.job is not None and work.job.state in (JobState.RUNNING, JobState.STARTING)
        text = work_line(work)
        if text != said:
            flow.emit(Narration(text, time.time()))
            said = text
        if work.state is not WorkState.RUNNING and not alive:
            return work
        await asyncio.sleep(1.0 if work.elapsed > 5 else 0.2)


def finished(work: WorkStatus, args: argparse.Namespace) -> int:
    """Print how it ended.

    Raises:
        BoxRefused: it did not come to its end.
    """
    if work.state is not WorkState.FINISHED:
        raise BoxRefused(work.sentence)
    if args.json:
        print_json(work)
    else:
        print_text(work.sentence)
    return ExitCode.GOOD


def work_line(work: WorkStatus) -> str:
    """One line of progress."""
    if work.state is not WorkState.RUNNING or not work.total:
        return work.sentence
    text = f"{work.done:,} of {work.total:,} files"
    if work.bytes_total:
        text += f", {units.gb(work.bytes_done)} of {units.gb(work.bytes_total)}"
    return text + (f", ETA {units.duration(work.eta)}" if work.eta is not None else "")


def space_text(report: SpaceReport, host: str) -> str:
    """A block a finding, the largest first; then how far the look went and what comes next."""
    lines: list[str] = []
    for one in report.found:
        lines += [one.path, *(f"    {part}" for part in _facts(one))]
    if not report.found:
        lines.append("Nothing that an extraction made was found.")
    for mount in report.mounts:
        lines.append(f"{mount.label}: {units.gb_and_gib(mount.free)} of {units.gb_and_gib(mount.total)} free")
    seen = f"Looked at {report.folders:,} folders from {', '.join(report.looked_in)} in {report.seconds:.1f} s"
    if report.not_reached:
        seen += f"; at least {report.not_reached:,} were not reached in time (--seconds)"
    if report.too_deep:
        seen += f"; {report.too_deep:,} lie deeper (--depth)"
    lines.append(f"{seen}.")
    if report.found:
        lines.append(f"To remove one: eagle3-console space reclaim {host} PATH --confirm NAME")
    return "\n".join(lines)


def _facts(one: Found) -> list[str]:
    at_least = "" if one.exact else "at least "
    size = f"{at_least}{units.gb_and_gib(one.bytes)} in {at_least}{one.files:,} files"
    if one.shared_bytes:
        size += f" (and {units.gb_and_gib(one.shared_bytes)} that have another name too: removing gives those not back)"
    age = units.duration(max(0.0, time.time() - one.modified_at))
    facts: list[Any] = [f"{one.kind}, {size}, last changed {age} ago"]
    parts = []
    if one.complete is not None:
        parts.append("complete" if one.complete else "not complete")
    if one.samples is not None and one.complete:
        parts.append(f"{one.samples:,} samples")
    if one.model:
        parts.append(one.model)
    if one.boundaries:
        parts.append(f"boundaries {', '.join(map(str, one.boundaries))}, final {one.final}-norm")
    if one.note:
        parts.append(one.note)
    facts.append("; ".join(parts))
    if one.strangers:
        facts.append(f"{one.strangers:,} entries in it were not made by an extraction; they would stay")
    facts.append(f"IN USE: {one.holder}" if one.holder else "nobody seen using it")
    return [str(fact) for fact in facts if fact]


COMMANDS = {
    "space show": show,
    "space reclaim": reclaim,
}
