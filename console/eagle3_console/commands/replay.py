"""``replay``: a recorded session, on the screen or as lines."""

from __future__ import annotations

import argparse
from pathlib import Path

from eagle3_console.commands.context import complain
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import Narrator, has_terminal, print_json
from eagle3_console.recording import demonstration
from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from eagle3_console.settings import load


async def replay(args: argparse.Namespace) -> int:
    """Show a recording.

    Raises:
        UsageError: it cannot be read, or the settings have mistakes.
    """
    player = _open(args.file)
    if args.headless or args.json or not has_terminal():
        return _lines(player, args)
    from eagle3_console.ui.replay import ReplayApp

    settings = load()
    app = ReplayApp(
        player, settings, args.file, speed=args.speed or (1.0 if args.file else demonstration.SPEED), at=args.at
    )
    return await app.stay(settings.mouse)


def _open(file: str) -> Player:
    return Player(Recording(Path(file).expanduser() if file else demonstration.PATH))


def _lines(player: Player, args: argparse.Namespace) -> int:
    """Everything at once, as a session without a screen tells it; with ``--json`` what was seen last."""
    recording = player.recording
    narrate = Narrator(quiet=args.quiet or args.json, clock=lambda: player.wall)
    player.seek(args.at)
    if recording.header.note:
        narrate.line(f"recorded: {recording.header.note}")
    while not player.at_end:
        event = player.step()
        if event is not None:
            narrate(event)
    if recording.fault:
        complain(recording.fault)
    if args.json:
        print_json(
            {
                "recording": recording.header,
                "seconds": recording.seconds,
                "fault": recording.fault,
                "snapshot": player.state.snapshot,
            }
        )
    return ExitCode.GOOD


COMMANDS = {"replay": replay}
