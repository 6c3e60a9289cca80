"""The box's jobs: list them, show one, remove the run folders that nobody needs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time

from eagle3_console import units
from eagle3_console.commands.context import open_flow
from eagle3_console.errors import UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import CleanReport, CleanSpec, JobDetail, JobRecord

_WAIT = 300.0
"""Seconds: a big log on a slow network disk takes long to remove."""


async def list_jobs(args: argparse.Namespace) -> int:
    """Every job, the newest first."""
    async with open_flow(args) as flow:
        records = await flow.session.call_list("jobs.records", {}, JobRecord)
        if args.json:
            print_json(records)
        else:
            print_text(
                table(records) if records else f"No job was ever started on {args.host}, or all are cleaned away."
            )
        return ExitCode.GOOD


async def show(args: argparse.Namespace) -> int:
    """One job in full."""
    async with open_flow(args) as flow:
        detail = await flow.watcher.call("jobs.show", {"job": args.job, "lines": args.lines}, JobDetail)
        if args.json:
            print_json(detail)
        else:
            print_text(detail_text(detail))
        return ExitCode.GOOD


async def clean(args: argparse.Namespace) -> int:
    """Say what would go, ask, and remove exactly that; what is needed meanwhile stays."""
    async with open_flow(args) as flow:
        rules = CleanSpec(older_than=args.older_than, keep=args.keep)
        spec = CleanSpec(ids=tuple(args.paths)) if args.paths else rules
        plan = await flow.watcher.call("jobs.clean", spec, CleanReport, wait=_WAIT)
        report = plan
        if plan.jobs or plan.releases or plan.unfinished:
            print(clean_text(plan), file=sys.stderr)  # noqa: T201 - a question needs what it is about
            if not args.yes and not _agreed(args.host):
                raise UsageError("Nothing was removed.")
            # Exactly what was agreed to, and nothing that has ended since; without a job, releases alone.
            ids = tuple(record.status.id for record in plan.jobs)
            agreed = CleanSpec(ids=ids, go=True) if ids else CleanSpec(older_than=float("1e18"), go=True)
            report = await flow.change("jobs.clean", agreed, CleanReport, wait=_WAIT)
            report = dataclasses.replace(report, kept=(*plan.kept, *report.kept))
        if args.json:
            print_json(report)
        else:
            print_text(clean_text(report))
        return ExitCode.BOX_NOT_FIT if report.problems else ExitCode.GOOD


def _agreed(host: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nothing was removed: there is nobody to ask. Say --yes.")
    print(f"Remove this on {host}? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def table(records: list[JobRecord]) -> str:
    """A line a job, in columns."""
    rows = [("JOB", "STATE", "STARTED", "ENDED", "SIZE", "LOG", "RELEASE")]
    rows += [
        (
            record.status.id,
            record.words,
            _when(record.status.started_at),
            _when(record.status.ended_at),
            units.gb(record.size),
            units.gb(record.status.log_size),
            record.release[:12] if len(record.release) == 64 else record.release,
        )
        for record in records
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def detail_text(detail: JobDetail) -> str:
    """A block of facts, the command line as a shell takes it, the last words of the log."""
    status = detail.record.status
    facts = [
        ("state", detail.record.words),
        ("", detail.ended),
        ("pid", str(status.pid) if status.pid is not None else "none"),
        ("started", _when(status.started_at)),
        ("ended", _when(status.ended_at)),
        ("folder", f"{status.run_dir}, {units.gb(detail.record.size)}"),
        ("log", f"{status.log_path}, {units.gb(status.log_size)}"),
        ("release", detail.release),
        ("in", detail.cwd),
        ("stays", f"in 'jobs clean', because {detail.record.needed}" if detail.record.needed else ""),
    ]
    lines = [status.id, *(f"  {name:8} {text}" for name, text in facts if text)]
    lines += ["  command", f"    {shlex.join(detail.argv)}"]
    lines += ["  variables", *(f"    {name}={value}" for name, value in detail.env.items())] if detail.env else []
    lines += ["  asked for", f"    {json.dumps(detail.message, ensure_ascii=False)}"]
    lines += ["  last words", *(f"    {line}" for line in detail.last_lines)] if detail.last_lines else []
    return "\n".join(lines)


def clean_text(report: CleanReport) -> str:
    """What went or would go, and what stays though it was named."""
    verb = "Removed" if report.gone else "Would remove"
    lines = [
        f"{verb} {record.status.id}: {record.words}, {units.gb(record.size)}, {record.status.run_dir}"
        for record in report.jobs
    ]
    lines += [f"{verb} {path}: its job was never started" for path in report.unfinished]
    lines += [f"{verb} release {name[:12]}: no job and no agent uses it" for name in report.releases]
    lines += [f"{record.status.id} stays: {record.needed}." for record in report.kept]
    lines += report.problems
    if report.jobs or report.releases or report.unfinished:
        lines.append(f"{verb} {units.gb_and_gib(report.bytes)}.")
    elif not report.problems:
        lines.append("There is nothing to remove.")
    return "\n".join(lines)


def _when(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else "-"


COMMANDS = {"jobs list": list_jobs, "jobs show": show, "jobs clean": clean}
