"""What each command does: a module a group of commands, a coroutine a command, each returns its exit code."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine
from typing import Any

from eagle3_console.commands import (
    bench,
    boxes,
    config,
    dataset,
    explain,
    export,
    extract,
    forecast,
    init,
    job,
    jobs,
    log,
    merge,
    profile,
    replay,
    server,
    space,
    stack,
)
from eagle3_console.commands.context import complain, make_plan, make_session
from eagle3_console.dial import named
from eagle3_console.errors import ConsoleError
from eagle3_console.exit_codes import ExitCode

_GOES_ON = "Interrupted here only: jobs on the box go on. Come back with 'eagle3-console {host}'."
_DEMO_ENDS = "Interrupted: what the demo started ends with it."
_COMMANDS = (
    job.COMMANDS
    | init.COMMANDS
    | server.COMMANDS
    | stack.COMMANDS
    | bench.COMMANDS
    | boxes.COMMANDS
    | log.COMMANDS
    | extract.COMMANDS
    | forecast.COMMANDS
    | merge.COMMANDS
    | dataset.COMMANDS
    | export.COMMANDS
    | space.COMMANDS
    | jobs.COMMANDS
    | profile.COMMANDS
    | config.COMMANDS
    | explain.COMMANDS
    | replay.COMMANDS
)


def execute(args: argparse.Namespace) -> int:
    """Run the command that was parsed; errors become one sentence on stderr and an exit code."""
    try:
        return asyncio.run(_dispatch(args))
    except ConsoleError as error:
        complain(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        if args.command == "demo":
            complain(_DEMO_ENDS)
        else:
            complain(_GOES_ON.format(host=named(args)) if hasattr(args, "host") else "Interrupted.")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.GOOD  # the reader of our stdout has seen enough


async def _open(args: argparse.Namespace) -> int:
    from eagle3_console.profiles.hosts import with_remembered
    from eagle3_console.recording.recorder import recording
    from eagle3_console.screen import open_screen

    if args.more:
        return await boxes.open_boxes(args)
    args = with_remembered(args)
    with recording(args, args.host) as recorder:
        return await open_screen(make_session(args), make_plan(args), readonly=args.readonly, recorder=recorder)


def _dispatch(args: argparse.Namespace) -> Coroutine[Any, Any, int]:
    if args.command == "demo":
        from eagle3_console.demo.run import demo

        return demo(args)
    if args.command == "open":
        return _open(args)
    action = getattr(args, "action", "")
    return _COMMANDS[f"{args.command} {action}".rstrip()](args)
