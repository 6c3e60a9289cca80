"""An extraction as a Slurm job array: submit it from a login host, follow its tasks, stop it."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import time

from eagle3_console import judge, units
from eagle3_console.commands.context import open_flow, print_stop
from eagle3_console.dial import named
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import Flow
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import ArraySpec, ArrayStatus, StopReport, Submission, TaskState, TaskStatus

_SUBMIT_SECONDS = 120.0
_WATCH_EVERY = 2.0


async def submit(args: argparse.Namespace) -> int:
    """Write and submit the array."""
    async with open_flow(args, "model", "data", "out") as flow:
        # The login host need not be fit for a server: only its Python is looked for.
        python = judge.choose_python(await flow.session.doctor(flow.plan.query()), flow.plan)
        server = flow.plan.server(python)
        extract = dataclasses.replace(flow.plan.extract(), final=server.final)
        spec = ArraySpec(server, extract, args.array, args.at_once, tuple(args.sbatch_arg))
        wish = {"spec": spec, "dry_run": args.dry_run}
        submission = await flow.change("array.submit", wish, Submission, wait=_SUBMIT_SECONDS)
        if args.json:
            print_json(submission)
        elif args.dry_run:
            print_text(submission.script)
        else:
            print_text(f"{submission.sentence} Watch it with 'eagle3-console extract status {named(args)}'.")
        return ExitCode.GOOD


async def status(flow: Flow, args: argparse.Namespace) -> int:
    """How far all tasks are; with ``--watch`` until none runs or waits."""
    said: dict[int, str] = {}
    while True:
        now = await flow.watcher.call("array.status", {"out": args.array or None}, ArrayStatus, wait=60)
        for task in now.tasks if args.watch else ():
            if said.get(task.index) != task.state.value:
                flow.emit(Narration(task_line(task), time.time()))
                said[task.index] = task.state.value
        if not args.watch or now.over:
            break
        await asyncio.sleep(_WATCH_EVERY)
    if args.json:
        print_json(now)
    else:
        print_text(array_text(now))
    if now.over and now.failed:
        return ExitCode.BOX_NOT_FIT
    return ExitCode.FINISHED_WITH_BAD if now.total.rejected + now.total.failed else ExitCode.GOOD


async def stop(flow: Flow, args: argparse.Namespace) -> int:
    """Waiting tasks leave the queue, running ones finish what is in flight."""
    stopped = await flow.change("array.stop", {"out": args.array or None}, StopReport, wait=_SUBMIT_SECONDS)
    return print_stop(stopped, args, ExitCode.BOX_NOT_FIT)


def array_text(now: ArrayStatus) -> str:
    """The sum, then a line a task."""
    total = now.total
    sums = f"{total.stored:,} of {total.total:,} samples stored, {units.gb_and_gib(total.bytes_stored)}"
    if total.samples_per_s:
        sums += f", {total.samples_per_s:.1f} samples/s, {total.tokens_per_s:,.0f} tokens/s"
    if total.eta is not None:
        sums += f", ETA {units.duration(total.eta)}"
    if total.rejected or total.failed:
        sums += f"; {total.rejected:,} rejected, {total.failed:,} failed"
    return "\n".join([now.sentence, sums, *(task_line(task) for task in now.tasks)])


def task_line(task: TaskStatus) -> str:
    """One task."""
    where = f" on {task.node}" if task.node and task.state is not TaskState.QUEUED else ""
    again = f", start {task.attempt + 1}" if task.attempt else ""
    how_far = f", {task.extract.stored:,} of {task.extract.total:,}" if task.extract is not None else ""
    return f"task {task.index}: {task.state.value}{where}{again}{how_far}: {task.sentence}"
