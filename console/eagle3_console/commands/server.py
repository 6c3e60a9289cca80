"""The SGLang server: start, restart, stop, status, log."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import dataclasses
import json
import sys

from eagle3_console import judge, report
from eagle3_console.commands import foreign
from eagle3_console.commands.context import open_flow, print_stop, snapshot
from eagle3_console.errors import BoxRefused
from eagle3_console.events import ConnectionChanged, Event, LogArrived
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS, Flow
from eagle3_console.headless import Narrator, print_json, print_text
from eagle3_console.plan import restart_plan
from eagle3_console.watch import Log
from eagle3_remote.protocol import LaunchPlan, StopReport

_TAIL_LINES = 500
"""So many lines of a log are sought in its end; more than that are sought in all of it."""


async def server_start(args: argparse.Namespace) -> int:
    """Start a patched server and wait until it is ready."""
    async with open_flow(args, "model") as flow:
        return await _start(flow, args)


async def server_restart(args: argparse.Namespace) -> int:
    """Stop the running server and start it again as it was, with what the command line says differently."""
    async with open_flow(args) as flow:
        now = await snapshot(flow)
        if now.server.spec is None:
            raise BoxRefused(f"No server of ours was ever started on {args.host}: use 'server start'.")
        flow.plan = restart_plan(flow.plan, now.server.spec)
        return await _start(flow, args, again=True)


async def _start(flow: Flow, args: argparse.Namespace, *, again: bool = False) -> int:
    radix_cache = args.radix_cache == "on"
    if args.dry_run:
        python = judge.choose_python(await flow.doctor(), flow.plan)
        spec = dataclasses.replace(flow.plan.server(python), radix_cache=radix_cache)
        launch = await flow.session.call("server.plan", spec, LaunchPlan)
        if args.json:
            print_json(launch)
        else:
            print_text(report.launch_text(launch))
        return ExitCode.GOOD
    if again:
        job = await flow.server_restart(radix_cache=radix_cache)
    else:
        python = judge.choose_python(await flow.doctor(), flow.plan)
        await flow.deploy()
        job = await flow.server_start(python, radix_cache=radix_cache)
    if args.no_wait:
        server = (await flow.watcher.pull()).server
    else:
        server = await flow.server_wait(job.id)
    if args.json:
        print_json(server)
    else:
        print_text(f"{job.id}: {server.sentence}")
    return ExitCode.GOOD


async def server_stop(args: argparse.Namespace) -> int:
    """Stop the server and prove that nothing of it is left."""
    if args.foreign is not None:
        return await foreign.stop_foreign(args)
    async with open_flow(args) as flow:
        stopped = await flow.session.call("server.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        return print_stop(stopped, args, ExitCode.SERVER_FAILED)


async def server_status(args: argparse.Namespace) -> int:
    """What the server is doing."""
    if args.all:
        return await foreign.status_all(args)
    async with open_flow(args) as flow:
        server = (await snapshot(flow)).server
        if args.json:
            print_json(server)
        else:
            print_text(f"{server.phase.value}: {server.sentence}")
        return ExitCode.GOOD


async def server_log(args: argparse.Namespace) -> int:
    """The server's log, its last lines first, then as it grows. As JSON: an object a piece, one a line."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    collected: list[bytes] = []
    narrate = Narrator(quiet=args.quiet)

    def take(event: Event) -> None:
        if isinstance(event, LogArrived):
            collected.append(event.data)
        elif isinstance(event, ConnectionChanged):
            narrate(event)

    log: Log = "tail" if 0 < args.lines <= _TAIL_LINES else "whole"
    async with open_flow(args, emit=take, log=log) as flow:
        job = (await flow.watcher.pull()).server.job
        if job is None:
            raise BoxRefused(f"No server of ours was ever started on {args.host}: there is no log.")
        if args.lines:
            collected[:] = b"".join(collected).splitlines(keepends=True)[-args.lines :]
        while True:
            text = decoder.decode(b"".join(collected))
            if args.json and text:
                text = json.dumps({"job": job.id, "path": job.log_path, "text": text}) + "\n"
            sys.stdout.write(text)
            sys.stdout.flush()
            collected.clear()
            if not args.follow:
                return ExitCode.GOOD
            await asyncio.sleep(0.5)
            await flow.watcher.pull()


COMMANDS = {
    "server start": server_start,
    "server restart": server_restart,
    "server stop": server_stop,
    "server status": server_status,
    "server log": server_log,
}
