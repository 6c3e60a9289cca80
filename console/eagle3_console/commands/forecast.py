"""What an extraction will take, before it is started."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from eagle3_console import units
from eagle3_console.commands.context import open_flow
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import PlanReport, Space

_SECONDS = 900.0


async def plan(args: argparse.Namespace) -> int:
    """Print the forecast; 5 where the extraction would not start."""
    async with open_flow(args, "data", "out") as flow:
        made = await flow.change("extract.plan", flow.plan.extract(), PlanReport, wait=_SECONDS)
        if args.json:
            print_json(made)
        else:
            print_text("\n".join(lines(made)))
        return ExitCode.BOX_NOT_FIT if made.refused else ExitCode.GOOD


def lines(made: PlanReport) -> Iterator[str]:
    """The forecast for a person."""
    about = "" if made.read >= 1 else "about "
    yield f"samples   {about}{made.samples:,} to do, {made.tokens:,} tokens, the longest {made.longest:,}; {made.rejected:,} rejected"
    if about:
        yield f"          estimated from {made.read:.1%} of the input"
    yield f"states    {about}{units.gb_and_gib(made.bytes)}"
    yield f"output    {_space(made.output)}, {made.output.files:,} files"
    yield f"dumps     {_space(made.dump)}"
    if made.eta is not None:
        yield (
            f"time      about {units.duration(made.eta)} at {made.tokens_per_s:,.0f} tokens/s, "
            f"by {made.smoke_samples} samples through the server; longer runs are faster"
        )
    yield from (f"note      {note}" for note in made.notes)
    yield from (f"warning   {warning}" for warning in made.warnings)
    yield from (f"refused   {why}" for why in made.refused)


def _space(space: Space) -> str:
    inodes = "" if space.inodes is None else f", {space.inodes:,} inodes"
    return f"{space.path} ({space.filesystem or 'unknown'}): {units.gb(space.free)} free{inodes}, {units.gb(space.need)} needed"


COMMANDS = {"extract plan": plan}
