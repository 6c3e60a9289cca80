"""The whole job, and the steps that come before a server runs."""

from __future__ import annotations

import argparse
import dataclasses

from eagle3_console import judge, report
from eagle3_console.commands.context import open_flow
from eagle3_console.dial import named
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text


async def run(args: argparse.Namespace) -> int:
    """The whole job, from connecting to a checked dataset."""
    async with open_flow(args, "model", "data", "out", alerts=True) as flow:
        result = await flow.run()
        if args.stop_server:
            await flow.server_stop()
        else:
            flow.emit(Narration(f"the server is left running; stop it with 'eagle3-console server stop {named(args)}'"))
        if args.json:
            print_json(report.run_json(result))
        else:
            print_text(report.run_markdown(result, flow.session.again))
        return result.exit_code


async def doctor(args: argparse.Namespace) -> int:
    """Look at the box and say what is fit and what is not."""
    async with open_flow(args) as flow:
        facts = await flow.session.doctor(flow.plan.query())
        findings = judge.judge(facts, flow.plan)
        fit = all(finding.level != judge.FAIL for finding in findings)
        if args.json:
            print_json({"fit": fit, "findings": [dataclasses.asdict(f) for f in findings], "facts": facts})
        else:
            print_text("\n".join(f"{f.level:4} {f.what:7} {f.sentence} {f.cure}".rstrip() for f in findings))
        return ExitCode.GOOD if fit else ExitCode.BOX_NOT_FIT


async def deploy(args: argparse.Namespace) -> int:
    """Put the box side on the box; a second time sends nothing."""
    async with open_flow(args) as flow:
        deployed = await flow.session.deploy()
        if args.json:
            print_json(deployed)
        else:
            print_text(f"{deployed.path}: {deployed.uploaded} bytes uploaded")
        return ExitCode.GOOD


COMMANDS = {
    "run": run,
    "doctor": doctor,
    "deploy": deploy,
}
