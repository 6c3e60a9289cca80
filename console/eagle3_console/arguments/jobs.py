"""Arguments of ``jobs ACTION``."""

from __future__ import annotations

import argparse
import re

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import natural

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    jobs = sub.add_parser("jobs", help="list, show, clean").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    jobs.add_parser("list", parents=list(parents), help="every job of ours on the box, the newest first")
    show = jobs.add_parser(
        "show", parents=list(parents), help="one in full: what was started, how it is, its last words"
    )
    show.add_argument("job", metavar="JOB", help="as 'jobs list' shows it")
    show.add_argument("-n", "--lines", metavar="N", type=natural, default=20, help="of its log (default 20)")
    clean = jobs.add_parser(
        "clean", parents=list(parents), help="remove the run folders of jobs that ended, and releases that nothing uses"
    )
    clean.add_argument(
        "paths", metavar="JOB", nargs="*", help="only these (default: all that ended and that the options name)"
    )
    clean.add_argument(
        "--older-than", metavar="AGE", type=age, default=age("7d"), help="ended before 12h, 7d … (default 7d)"
    )
    clean.add_argument("--keep", metavar="N", type=natural, default=0, help="of each kind, so many stay (default 0)")
    clean.add_argument("--yes", action="store_true", help="do not ask")


def age(text: str) -> float:
    """``90m``, ``12h``, ``7d``, ``2w`` as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"an age like 12h or 7d is needed, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]
