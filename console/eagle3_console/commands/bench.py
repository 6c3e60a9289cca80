"""``server bench``: measure the ready server, and show it against what was measured before and what others report."""

from __future__ import annotations

import argparse

from eagle3_console.benchtable import table
from eagle3_console.commands.context import open_flow
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
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
            report = await flow.session.call("server.bench", spec, BenchReport, wait=_WAIT)
        if args.json:
            print_json(report)
        else:
            print_text(table(report, ()))
        return ExitCode.GOOD


COMMANDS = {"server bench": bench}
