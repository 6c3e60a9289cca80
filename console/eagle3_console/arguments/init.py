"""Arguments of ``init``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add it to the parser."""
    init = sub.add_parser(
        "init", parents=list(parents), help="look, propose every setting with its reason, and save it as a profile"
    )
    init.add_argument("--name", metavar="NAME", default="", help="of the profile (default: of model and host)")
    init.add_argument("--replace", action="store_true", help="though there is a profile of this name")
    init.add_argument("--dry-run", action="store_true", help="save nothing")
