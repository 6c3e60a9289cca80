"""What every command shares: its session, its plan, its flow on a connected link, and how a result is printed."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from eagle3_console import settings
from eagle3_console.dial import dialler, named
from eagle3_console.errors import UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import Flow
from eagle3_console.headless import Narrator, print_json, print_text
from eagle3_console.link.base import Prompter
from eagle3_console.notify.headless import alerting
from eagle3_console.plan import Plan
from eagle3_console.profiles.apply import with_profile
from eagle3_console.recording.recorder import recording
from eagle3_console.session import Session
from eagle3_console.watch import Emit, Log
from eagle3_remote.protocol import Snapshot, StopReport


def make_session(args: argparse.Namespace, prompter: Prompter | None = None) -> Session:
    """A session for the host of a command line, not connected yet."""
    args = with_profile(args)
    return Session(
        dialler(args, prompter),
        args.host,
        box_home=args.box_dir,
        python=args.python,
        again=named(args),
        readonly=getattr(args, "readonly", False),
        take_over=args.take_over,
    )


def make_plan(args: argparse.Namespace) -> Plan:
    """The plan that a command line states, with its profile."""
    args = with_profile(args)
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
        duplicates=args.duplicates,
        shuffle=args.shuffle,
        shard=args.shard,
        server_args=tuple(args.server_arg),
        server_env=dict(args.server_env),
        api_key=_first_line(args.api_key_file) if getattr(args, "api_key_file", "") else "",
        said=getattr(args, "said", frozenset()),
        profile=getattr(args, "own_profile", ""),
        server_url=getattr(args, "server_url", ""),
        extra_key=getattr(args, "extra_key", False),
        share_gpus=args.share_gpus,
        watch=getattr(args, "watch_server", False),
        servers=tuple(getattr(args, "server", ())),
        on_trouble=getattr(args, "on_trouble", "")
        or ("stop" if getattr(args, "wait", args.command != "open") else "pause"),
    )


def _first_line(path: str) -> str:
    """A key from a file here.

    Raises:
        UsageError: it cannot be read, or by others too, or has none.
    """
    try:
        if Path(path).expanduser().stat().st_mode & 0o077:
            raise UsageError(f"The key file {path} can be read by others: chmod 600 {path}")
        line = (Path(path).expanduser().read_text(encoding="utf-8").splitlines() or [""])[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"The key file {path} cannot be read: {why}.") from None
    if not line:
        raise UsageError(f"The key file {path} has no key in its first line.")
    return line


@contextlib.asynccontextmanager
async def open_flow(
    args: argparse.Namespace, *needed: str, emit: Emit | None = None, log: Log = "none", alerts: bool = False
) -> AsyncIterator[Flow]:
    """A flow on a connected session; the link is closed at the end, jobs go on.

    Args:
        alerts: it is going to watch the box for long: alerts are told, and sent to where this person's settings say.

    Raises:
        UsageError: a path that is `needed` is not named, or the settings are wanted and have mistakes.
        LinkError: there is no link.
    """
    plan = make_plan(args) if hasattr(args, "model") else Plan(python=args.python)
    missing = [f"--{name}" for name in needed if not getattr(plan, name)]
    if missing:
        raise UsageError(
            f"'{args.command}' needs {', '.join(missing)}: {'a path' if len(missing) == 1 else 'paths'} on the box."
        )
    wanted = settings.load().alerts if alerts else None
    async with contextlib.AsyncExitStack() as stack:
        recorder = stack.enter_context(recording(args, args.host))
        emit = emit or Narrator(quiet=args.quiet)
        if wanted is not None:
            emit = await stack.enter_async_context(alerting(emit, args.host, wanted))
        if recorder is not None:
            emit, log = recorder.tee(emit), "tail" if log == "none" else log
        flow = Flow(make_session(args), plan, emit, log)
        try:
            await flow.watcher.connect()
            yield flow
        finally:
            await flow.session.leave()


async def snapshot(flow: Flow) -> Snapshot:
    """The whole truth about the box, now."""
    return await flow.watcher.call("snapshot", {"paths": {}}, Snapshot)


def print_stop(stopped: StopReport, args: argparse.Namespace, otherwise: ExitCode) -> int:
    """Print what was stopped and what is left; the exit code, `otherwise` where something is."""
    if args.json:
        print_json(stopped)
    else:
        print_text("\n".join([stopped.sentence, *(f"left: {left}" for left in stopped.leftovers)]))
    return ExitCode.GOOD if stopped.stopped else otherwise


def complain(text: str) -> None:
    """One sentence on stderr."""
    print(f"eagle3-console: {text}", file=sys.stderr, flush=True)  # noqa: T201
