"""The SGLang server: start, restart, stop, status, log."""

from __future__ import annotations

import argparse
import time

from eagle3_console import judge, losses, report
from eagle3_console.commands import foreign
from eagle3_console.commands.context import open_flow, print_stop, snapshot
from eagle3_console.errors import BoxRefused
from eagle3_console.events import Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS, Flow
from eagle3_console.headless import print_json, print_text
from eagle3_console.plan import restart_plan
from eagle3_remote.protocol import JobState, ServerMetrics, Snapshot, StopReport


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
        flow.plan = restart_plan(flow.plan, now.server.spec, watched=now.server.watched)
        if not args.dry_run:
            say_what_is_lost(flow, now, args)
        return await _start(flow, args, again=True)


def say_what_is_lost(flow: Flow, now: Snapshot, args: argparse.Namespace) -> None:
    """Before anything is stopped.

    Raises:
        BoxRefused: an extraction runs on it, and ``--yes`` was not said.
    """
    if now.server.job is None or now.server.job.state is not JobState.RUNNING:
        return
    lost = losses.of_server(now, comes_back=True)
    if losses.running_extraction(now) is not None and not args.yes:
        raise BoxRefused(f"Nothing was restarted on {args.host}: {' '.join(lost)} Say --yes to restart all the same.")
    for sentence in lost:
        flow.emit(Narration(sentence, time.time()))


async def _start(flow: Flow, args: argparse.Namespace, *, again: bool = False) -> int:
    radix_cache = args.radix_cache == "on"
    if args.dry_run:
        python = judge.choose_python(await flow.doctor(), flow.plan)
        launch = await flow.server_plan(python, radix_cache=radix_cache)
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
    rows = ""
    if args.no_wait:
        server = (await flow.watcher.pull()).server
    else:
        server = await flow.server_wait(job.id)
        if not radix_cache:
            # The warm-up is skipped, so the probe makes the first prefill: in it the patch checks its rows on every rank.
            rows = " " + (await flow.probe()).sentence
            server = (await flow.watcher.pull()).server
    if args.json:
        print_json(server)
    else:
        print_text(f"{job.id}: {server.sentence}{rows}")
    return ExitCode.GOOD


async def server_stop(args: argparse.Namespace) -> int:
    """Stop the server and prove that nothing of it is left."""
    if args.foreign is not None:
        return await foreign.stop_foreign(args)
    async with open_flow(args) as flow:
        stopped = await flow.change("server.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        return print_stop(stopped, args, ExitCode.SERVER_FAILED)


async def server_status(args: argparse.Namespace) -> int:
    """What the server is doing."""
    if args.all:
        return await foreign.status_all(args)
    async with open_flow(args) as flow:
        now = await snapshot(flow)
        server = now.server
        if args.json:
            print_json(server)
        else:
            print_text(f"{server.phase.value}: {server.sentence}{metrics_words(server.metrics)}")
            for one in now.foreign:
                print_text(f"not ours: {one.sentence} (more: --all)")
        return ExitCode.GOOD


def metrics_words(metrics: ServerMetrics | None) -> str:
    """What ``/metrics`` says, as clauses behind the sentence; empty where it says nothing."""
    if metrics is None:
        return ""
    parts = [
        f"{metrics.running} decoding" if metrics.running is not None else "",
        f"{metrics.queued} waiting" if metrics.queued is not None else "",
        f"{metrics.gen_tps:.1f} new tok/s" if metrics.gen_tps is not None else "",
        f"KV pool {metrics.token_usage:.0%} used" if metrics.token_usage is not None else "",
        f"cache hits {metrics.cache_hit_rate:.0%}" if metrics.cache_hit_rate is not None else "",
    ]
    return " " + ", ".join(part for part in parts if part) + "." if any(parts) else ""


COMMANDS = {
    "server start": server_start,
    "server restart": server_restart,
    "server stop": server_stop,
    "server status": server_status,
}
