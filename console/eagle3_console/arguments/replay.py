"""Arguments of ``replay``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import moment, speed


def add(sub: Commands, output: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    replay = sub.add_parser(
        "replay", parents=[output], help="show a recorded session (--record FILE) again; no box is needed"
    )
    replay.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default="",
        help="as --record wrote it, or packed with gzip (default: a demo)",
    )
    replay.add_argument(
        "--speed", type=speed, default=None, metavar="N", help="how many times as fast (default 1; the demo: 10)"
    )
    replay.add_argument("--at", type=moment, default=0.0, metavar="[H:]MM:SS", help="begin there")
    replay.add_argument("--headless", action="store_true", help="no screen; print what a session without one prints")
