"""``server stack``: what each process of the server does right now."""

from __future__ import annotations

import argparse

from eagle3_console.commands.context import open_flow
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import StackReport

_WAIT = 180.0
"""Seconds: eight schedulers, four at a time, each with all of torch's symbols."""


async def stack(args: argparse.Namespace) -> int:
    """Look at every process once."""
    async with open_flow(args) as flow:
        report = await flow.change("server.stack", {"job": None}, StackReport, wait=_WAIT)
        if args.json:
            print_json(report)
        else:
            print_text("\n".join(text(report)))
        return ExitCode.GOOD


def text(report: StackReport) -> list[str]:
    """A head line for each process, its stack below it."""
    lines = [f"{report.job}: {report.sentence}"]
    for one in report.processes:
        head = (
            f"{one.name} (pid {one.pid}) {one.state}: {one.cpu_percent:.0f} % CPU, {one.threads} threads, by {one.how}"
        )
        lines += ["", head, *(f"  {line}" for line in one.lines)]
    return lines


COMMANDS = {"server stack": stack}
