"""A running extraction: pause, resume, another budget."""

from __future__ import annotations

import argparse

from eagle3_console.commands.context import open_flow
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import RESUME, print_json, print_text
from eagle3_remote.protocol import ControlReport, ExtractWish


async def steer(args: argparse.Namespace) -> int:
    """Note the wish on the box; the extraction follows within a second, and no console is needed for it."""
    async with open_flow(args) as flow:
        wish = ExtractWish(args.action, getattr(args, "tokens", 0))
        report = await flow.change("extract.control", wish, ControlReport)
        if args.json:
            print_json(report)
        else:
            print_text(f"{report.sentence} {RESUME}" if args.action == "pause" else report.sentence)
        return ExitCode.GOOD


COMMANDS = {"extract pause": steer, "extract resume": steer, "extract budget": steer}
