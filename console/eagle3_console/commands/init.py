"""Setting a run up without a screen: the same proposals, the same verdicts, the same profile."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator

from eagle3_console import report
from eagle3_console.commands.context import open_flow
from eagle3_console.dial import named
from eagle3_console.errors import BoxRefused
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_console.profiles import write
from eagle3_console.setup.assess import Assessment, assess, profile_name
from eagle3_console.setup.draft import FIELDS, SETTINGS, from_plan
from eagle3_console.setup.work import SetupWork
from eagle3_remote.protocol import LaunchPlan


async def init(args: argparse.Namespace) -> int:
    """Propose, and save where everything is known and nothing stands against it."""
    if args.name:
        write.path_of(args.name)  # a name that cannot be is told before the box is asked
    async with open_flow(args) as flow:
        work = SetupWork(flow.session, args.host)
        draft = from_plan(flow.plan)
        made = assess(draft, await work.everything(draft, flow.plan.port), flow.plan, args.host)
        launch: LaunchPlan | None = None
        failures = list(made.failures)
        if made.ready:
            try:
                launch = await work.launch(made.plan)
            except BoxRefused as error:
                failures.append(str(error))
        saved = ""
        if made.ready and not failures and not args.dry_run:
            saved = work.save(args.name or profile_name(made.plan, args.host), made.plan, replace=args.replace)
        if args.json:
            print_json(
                {
                    "ready": made.ready and not failures,
                    "missing": made.missing,
                    "failures": failures,
                    "box": [dataclasses.asdict(one) for one in made.box],
                    "fields": {name: [dataclasses.asdict(one) for one in found] for name, found in made.fields.items()},
                    "proposals": {name: dataclasses.asdict(one) for name, one in made.proposals.items()},
                    "values": dict(made.texts),
                    "forecast": [dataclasses.asdict(one) for one in made.forecast],
                    "launch": launch,
                    "profile": saved,
                }
            )
        else:
            print_text("\n".join(lines(made, launch, failures, saved, named(args))))
        if failures:
            return ExitCode.BOX_NOT_FIT
        return ExitCode.USAGE if made.missing else ExitCode.GOOD


def lines(made: Assessment, launch: LaunchPlan | None, failures: list[str], saved: str, host: str) -> Iterator[str]:
    """The whole set-up for a person."""
    found = [("box", one) for one in made.box]
    found += [(FIELDS[name].label, one) for name, some in made.fields.items() for one in some]
    found += [("plan", one) for one in made.forecast]
    for where, one in found:
        yield f"{one.level:4} {where:12} {one.what}: {one.sentence} {one.cure}".rstrip()
    for field in SETTINGS:
        if field.name in made.proposals:
            proposal = made.proposals[field.name]
            own = "" if made.texts[field.name] == proposal.text else f" (proposed: {proposal.text})"
            yield f"set  {field.label:12} {made.texts[field.name]}{own}: {proposal.reason}"
    if launch is not None:
        yield report.launch_text(launch)
    yield from (f"missing: {one}" for one in made.missing)
    yield from (f"refused: {one}" for one in failures)
    if saved:
        yield f"Saved as {saved}. The whole run: eagle3-console run {host} --profile {saved}; the screen: eagle3-console {host}"


COMMANDS = {"init": init}
