"""Arguments of ``extract ACTION``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.options import extra_key


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    link, output, plan = parents
    extract = sub.add_parser("extract", help="start, stop, status").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    start = extract.add_parser(
        "start", parents=[link, output, plan], help="start or resume an extraction on a ready server"
    )
    start.add_argument("--wait", action="store_true", help="watch until it ends (it goes on without us either way)")
    start.add_argument(
        "--server-url",
        metavar="URL",
        default="",
        help="through a patched server on the box that somebody else started, as 'server status --all' shows it",
    )
    extra_key(start)
    extract.add_parser("stop", parents=[link, output], help="finish what is in flight, then stop; resumable")
    extract.add_parser("status", parents=[link, output], help="how far it is")
