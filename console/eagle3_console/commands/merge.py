"""Joining shards into one dataset."""

from __future__ import annotations

import argparse

from eagle3_console.commands.context import open_flow
from eagle3_console.commands.space import finished, follow
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import JobStatus, MergeSpec


async def merge(args: argparse.Namespace) -> int:
    """Join; the job on the box goes on without this console."""
    async with open_flow(args) as flow:
        spec = MergeSpec(args.out, tuple(args.paths), args.by, args.python)
        job = await flow.change("merge", spec, JobStatus)
        if args.no_wait:
            if args.json:
                print_json(job)
            else:
                print_text(f"{job.id}: started; it goes on without this console.")
            return ExitCode.GOOD
        return finished(await follow(flow, job.id), args)


COMMANDS = {"merge": merge}
