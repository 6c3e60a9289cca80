"""``server bench``: measure the ready server, and show it against what was measured before and what others report."""

from __future__ import annotations

import argparse

from eagle3_console.benchtable import Reference, table
from eagle3_console.commands.context import open_flow
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_console.profiles.store import references
from eagle3_remote.protocol import BenchReport, BenchSpec

_WAIT = 1800.0
"""Seconds: 20 repeats of long prompts on a slow server."""


async def bench(args: argparse.Namespace) -> int:
    """Measure, or with ``--list`` only show what is kept."""
    async with open_flow(args) as flow:
        if args.list:
            report = await flow.session.call("server.bench_kept", {}, BenchReport)
        else:
            spec = BenchSpec(args.decode_tokens, args.prefill_tokens, args.repeats)
            flow.emit(Narration("measuring the server with one request at a time"))
            report = await flow.change("server.bench", spec, BenchReport, wait=_WAIT)
        if args.json:
            print_json(report)
        else:
            print_text(table(report, reported(report)))
        return ExitCode.GOOD


def reported(report: BenchReport) -> list[Reference]:
    """What profiles report of the model that was measured last, in the table's own columns."""
    runs = [*report.earlier, *([report.run] if report.run is not None else [])]
    found = references(runs[-1].model) if runs else []
    return [
        Reference(
            one.what,
            decode_tps=one.figure if one.unit == "tok/s" and "decode" in one.what else None,
            prefill_tps=one.figure if one.unit == "tok/s" and "prefill" in one.what else None,
            note=one.origin,
        )
        for one in found
    ]


COMMANDS = {"server bench": bench}
