"""Arguments of ``server log``."""

from __future__ import annotations

import argparse
import re

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import natural


def add(server: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser of ``server``."""
    log = server.add_parser("log", parents=list(parents), help="its log")
    log.add_argument("-f", "--follow", action="store_true", help="until interrupted; the server goes on")
    log.add_argument(
        "-n",
        "--lines",
        type=natural,
        default=None,
        help="the last N lines first (0: all; default 50, and all of those that a filter lets through)",
    )
    log.add_argument(
        "--rank", metavar="N", default="", help="lines of tensor-parallel rank N alone, or of a tag like DP1"
    )
    log.add_argument(
        "--level", choices=("info", "warning", "error"), default="info", help="lines at least so grave, by their words"
    )
    log.add_argument(
        "--grep", metavar="RE", type=pattern, default=None, help="lines with this in them; capitals make it exact"
    )
    log.add_argument(
        "--root-cause", action="store_true", help="the line that names why it failed, and what is around it"
    )
    log.add_argument("--save", metavar="FILE", default="", help="into a new file here instead of on stdout")


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression; without capitals it takes either case."""
    try:
        return re.compile(text, 0 if any(letter.isupper() for letter in text) else re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
