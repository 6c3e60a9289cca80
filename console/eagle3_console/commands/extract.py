"""The extraction: start, stop, status."""

from __future__ import annotations

import argparse

from eagle3_console.commands import array, steer
from eagle3_console.commands.context import open_flow, print_stop, snapshot
from eagle3_console.dial import named
from eagle3_console.errors import BoxRefused
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS
from eagle3_console.headless import print_json, print_text
from eagle3_console.keyed import avoided
from eagle3_remote.protocol import ExtractState, JobState, StopReport


async def extract_start(args: argparse.Namespace) -> int:
    """Start or resume an extraction on a ready server."""
    async with open_flow(args, "data", "out", alerts=args.wait) as flow:
        server = None if args.server_url else (await snapshot(flow)).server
        job = await flow.extract_start()
        if args.extra_key and (server is None or (server.spec is not None and server.spec.radix_cache)):
            flow.emit(Narration(avoided(server)))
        if not args.wait:
            if args.json:
                print_json(job)
            else:
                print_text(
                    f"{job.id}: started; it goes on without this console. Watch it with 'eagle3-console {named(args)}'."
                )
            return ExitCode.GOOD
        extract = await flow.extract_wait(job)
        if args.json:
            print_json(extract)
        else:
            print_text(extract.sentence)
        return ExitCode.FINISHED_WITH_BAD if extract.rejected + extract.failed else ExitCode.GOOD


async def extract_stop(args: argparse.Namespace) -> int:
    """Finish what is in flight, then stop."""
    async with open_flow(args) as flow:
        if args.array or (await snapshot(flow)).array is not None:
            return await array.stop(flow, args)
        stopped = await flow.change("extract.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        return print_stop(stopped, args, ExitCode.BOX_NOT_FIT)


async def extract_status(args: argparse.Namespace) -> int:
    """How far the newest extraction is; 7 when it has bad samples, 5 or 6 (as the job says) when it ended unfinished."""
    async with open_flow(args) as flow:
        now = await snapshot(flow)
        if args.array or now.array is not None:
            return await array.status(flow, args)
        extract = now.extract
        if extract is None:
            raise BoxRefused(f"No extraction of ours was ever started on {args.host}.")
        if args.json:
            print_json(extract)
        else:
            print_text(extract.sentence)
        running = extract.job is not None and extract.job.state is JobState.RUNNING
        if extract.state is ExtractState.FAILED and not running:
            failed = extract.job is not None and extract.job.rc == ExitCode.SERVER_FAILED
            return ExitCode.SERVER_FAILED if failed else ExitCode.BOX_NOT_FIT
        return ExitCode.FINISHED_WITH_BAD if extract.rejected + extract.failed else ExitCode.GOOD


COMMANDS = {
    "extract start": extract_start,
    "extract stop": extract_stop,
    "extract status": extract_status,
    "extract submit": array.submit,
    **steer.COMMANDS,
}
