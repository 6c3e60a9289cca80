"""What each command does. One coroutine a command; each returns its exit code."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import contextlib
import dataclasses
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from eagle3_console import judge, report
from eagle3_console.dial import dialler
from eagle3_console.errors import BoxRefused, ConsoleError, UsageError
from eagle3_console.events import ConnectionChanged, Event, LogArrived, Narration
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS, Flow
from eagle3_console.headless import Narrator, print_json, print_text
from eagle3_console.plan import Plan, restart_plan
from eagle3_console.session import Session
from eagle3_console.watch import Emit, Log
from eagle3_remote.protocol import (
    ExtractReport,
    ExtractState,
    JobState,
    LaunchPlan,
    Snapshot,
    StopReport,
)

_GOES_ON = "Interrupted here only: jobs on the box go on. Come back with 'eagle3-console {host}'."
_DEMO_ENDS = "Interrupted: what the demo started ends with it."
_TAIL_LINES = 500
"""So many lines of a log are sought in its end; more than that are sought in all of it."""


def execute(args: argparse.Namespace) -> int:
    """Run the command that was parsed; errors become one sentence on stderr and an exit code."""
    try:
        return asyncio.run(_dispatch(args))
    except ConsoleError as error:
        _complain(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        _complain(_DEMO_ENDS if args.command == "demo" else _GOES_ON.format(host=args.host))
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.GOOD  # the reader of our stdout has seen enough


def _dispatch(args: argparse.Namespace) -> Coroutine[Any, Any, int]:
    if args.command == "demo":
        from eagle3_console.demo.run import demo

        return demo(args)
    if args.command == "open":
        from eagle3_console.screen import open_screen

        return open_screen(make_session(args), make_plan(args), readonly=args.readonly)
    word = f"{args.command} {args.action}" if args.command in ("server", "extract") else args.command
    return _COMMANDS[word](args)


def make_session(args: argparse.Namespace) -> Session:
    """A session for the host of a command line, not connected yet."""
    return Session(dialler(args), args.host, box_home=args.box_dir, python=args.python)


def make_plan(args: argparse.Namespace) -> Plan:
    """The plan that a command line states."""
    return Plan(
        model=args.model,
        data=args.data,
        out=args.out,
        python=args.python,
        tp=args.tp,
        port=args.port,
        boundaries=args.boundaries,
        final=args.final,
        dump_dir=args.dump_dir,
        max_seq_len=args.max_seq_len,
        samples=args.samples,
        tokens_in_flight=args.tokens_in_flight,
        on_bad=args.on_bad,
        server_args=tuple(args.server_arg),
        server_env=dict(args.server_env),
    )


@contextlib.asynccontextmanager
async def _flow(
    args: argparse.Namespace, *needed: str, emit: Emit | None = None, log: Log = "none"
) -> AsyncIterator[Flow]:
    """A flow on a connected session; the link is closed at the end, jobs go on."""
    plan = make_plan(args) if hasattr(args, "model") else Plan(python=args.python)
    missing = [f"--{name}" for name in needed if not getattr(plan, name)]
    if missing:
        raise UsageError(
            f"'{args.command}' needs {', '.join(missing)}: {'a path' if len(missing) == 1 else 'paths'} on the box."
        )
    flow = Flow(make_session(args), plan, emit or Narrator(quiet=args.quiet), log)
    try:
        await flow.watcher.connect()
        yield flow
    finally:
        await flow.session.drop()


async def run(args: argparse.Namespace) -> int:
    """The whole job, from connecting to a checked dataset."""
    async with _flow(args, "model", "data", "out") as flow:
        result = await flow.run()
        if args.stop_server:
            await flow.server_stop()
        else:
            flow.emit(Narration(f"the server is left running; stop it with 'eagle3-console server stop {args.host}'"))
        if args.json:
            print_json(report.run_json(result))
        else:
            print_text(report.run_markdown(result))
        return result.exit_code


async def doctor(args: argparse.Namespace) -> int:
    """Look at the box and say what is fit and what is not."""
    async with _flow(args) as flow:
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
    async with _flow(args) as flow:
        deployed = await flow.session.deploy()
        if args.json:
            print_json(deployed)
        else:
            print_text(f"{deployed.path}: {deployed.uploaded} bytes uploaded")
        return ExitCode.GOOD


async def server_start(args: argparse.Namespace) -> int:
    """Start a patched server and wait until it is ready."""
    async with _flow(args, "model") as flow:
        return await _start(flow, args)


async def server_restart(args: argparse.Namespace) -> int:
    """Stop the running server and start it again as it was, with what the command line says differently."""
    async with _flow(args) as flow:
        snapshot = await _snapshot(flow)
        if snapshot.server.spec is None:
            raise BoxRefused(f"No server of ours was ever started on {args.host}: use 'server start'.")
        flow.plan = restart_plan(flow.plan, snapshot.server.spec)
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
    async with _flow(args) as flow:
        stopped = await flow.session.call("server.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        return _print_stop(stopped, args, ExitCode.SERVER_FAILED)


async def server_status(args: argparse.Namespace) -> int:
    """What the server is doing."""
    async with _flow(args) as flow:
        server = (await _snapshot(flow)).server
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
    async with _flow(args, emit=take, log=log) as flow:
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


async def extract_start(args: argparse.Namespace) -> int:
    """Start or resume an extraction on a ready server."""
    async with _flow(args, "data", "out") as flow:
        job = await flow.extract_start()
        if not args.wait:
            if args.json:
                print_json(job)
            else:
                print_text(
                    f"{job.id}: started; it goes on without this console. Watch it with 'eagle3-console {args.host}'."
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
    async with _flow(args) as flow:
        stopped = await flow.session.call("extract.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        return _print_stop(stopped, args, ExitCode.BOX_NOT_FIT)


async def extract_status(args: argparse.Namespace) -> int:
    """How far the newest extraction is; 7 when it has bad samples, 5 or 6 (as the job says) when it ended unfinished."""
    async with _flow(args) as flow:
        extract = (await _snapshot(flow)).extract
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


async def verify(args: argparse.Namespace) -> int:
    """Check a dataset on the box against its own manifest."""
    async with _flow(args) as flow:
        dataset = args.out
        if not dataset:
            extract = (await _snapshot(flow)).extract
            if extract is None or extract.spec is None:
                raise UsageError("No extraction of ours is known on the box: name the dataset with --out.")
            dataset = extract.spec.out
        checked = await flow.verify(dataset)
        if args.json:
            print_json(checked)
        else:
            print_text(report.verify_markdown(checked))
        return ExitCode.GOOD if checked.ok else ExitCode.FINISHED_WITH_BAD


async def show_report(args: argparse.Namespace) -> int:
    """What was made, how, and what comes next."""
    async with _flow(args) as flow:
        made = await flow.watcher.call("report", {"job": args.job or None}, ExtractReport)
        if args.json:
            print_json(made)
        else:
            print_text(report.markdown(made))
        return ExitCode.GOOD


async def _snapshot(flow: Flow) -> Snapshot:
    return await flow.watcher.call("snapshot", {"paths": {}}, Snapshot)


def _print_stop(stopped: StopReport, args: argparse.Namespace, otherwise: ExitCode) -> int:
    if args.json:
        print_json(stopped)
    else:
        print_text("\n".join([stopped.sentence, *(f"left: {left}" for left in stopped.leftovers)]))
    return ExitCode.GOOD if stopped.stopped else otherwise


def _complain(text: str) -> None:
    print(f"eagle3-console: {text}", file=sys.stderr, flush=True)  # noqa: T201


_COMMANDS = {
    "run": run,
    "doctor": doctor,
    "deploy": deploy,
    "server start": server_start,
    "server restart": server_restart,
    "server stop": server_stop,
    "server status": server_status,
    "server log": server_log,
    "extract start": extract_start,
    "extract stop": extract_stop,
    "extract status": extract_status,
    "verify": verify,
    "report": show_report,
}
