"""What was made: verify and report."""

from __future__ import annotations

import argparse

from eagle3_console import report
from eagle3_console.commands.context import open_flow, snapshot
from eagle3_console.errors import UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import ExtractReport


async def verify(args: argparse.Namespace) -> int:
    """Check a dataset on the box against its own manifest."""
    async with open_flow(args) as flow:
        dataset = args.out
        if not dataset:
            extract = (await snapshot(flow)).extract
            if extract is None or extract.spec is None:
                raise UsageError("No extraction of ours is known on the box: name the dataset with --out.")
            dataset = extract.spec.out
        checked = await flow.verify(dataset, args.server, args.dump_dir)
        if args.json:
            print_json(checked)
        else:
            print_text(report.verify_markdown(checked))
        return ExitCode.GOOD if checked.ok else ExitCode.FINISHED_WITH_BAD


async def show_report(args: argparse.Namespace) -> int:
    """What was made, how, and what comes next."""
    async with open_flow(args) as flow:
        made = await flow.watcher.call("report", {"job": args.job or None}, ExtractReport)
        if args.json:
            print_json(made)
        else:
            print_text(report.markdown(made, flow.session.again))
        return ExitCode.GOOD


COMMANDS = {
    "verify": verify,
    "report": show_report,
}
