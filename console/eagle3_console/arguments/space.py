"""Arguments of ``space HOST`` and ``space reclaim HOST PATH``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import natural, positive

_ACTIONS = ("show", "reclaim")


def with_action(words: list[str]) -> list[str]:
    """``space HOST`` as ``space show HOST``."""
    if words[0] == "space" and len(words) > 1 and words[1] not in (*_ACTIONS, "-h", "--help"):
        return ["space", "show", *words[1:]]
    return words


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    link, output = parents
    space = sub.add_parser("space", help="what extractions left on the disks, and giving it back").add_subparsers(
        dest="action", metavar="HOST | ACTION", required=True
    )
    show = space.add_parser(
        "show", parents=[link, output], help="datasets, left-over dumps, states in other formats (also: space HOST)"
    )
    show.add_argument(
        "paths",
        metavar="DIR",
        nargs="*",
        help="look here (default: where this box's jobs wrote and dumped, and those file systems)",
    )
    show.add_argument("--depth", metavar="N", type=natural, default=6, help="folders below DIR (default 6)")
    show.add_argument("--seconds", metavar="S", type=positive, default=20, help="stop looking then (default 20)")
    reclaim = space.add_parser(
        "reclaim", parents=[link, output], help="remove one folder that 'space' showed; the job goes on without us"
    )
    reclaim.add_argument("path", metavar="PATH", help="as 'space' shows it")
    reclaim.add_argument(
        "--confirm", metavar="NAME", default="", help="the folder's own name; asked for at a terminal where not given"
    )
    reclaim.add_argument("--stop", action="store_true", help="stop its removal instead; what is left stays")
    reclaim.add_argument("--no-wait", action="store_true", help="return at once; the removal goes on")
