"""Arguments of ``profile ACTION`` and the option that names one."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands


def add(sub: Commands, output: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    profile = sub.add_parser("profile", help="list, show, validate").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    profile.add_parser("list", parents=[output], help="the built-in ones and your own")
    show = profile.add_parser("show", parents=[output], help="one as it is written, to copy and change")
    show.add_argument("name", metavar="NAME|FILE")
    validate = profile.add_parser("validate", parents=[output], help="name every mistake by file, line and key")
    validate.add_argument("names", metavar="NAME|FILE", nargs="*", help="default: all that there are")


def option(group: argparse._ArgumentGroup) -> None:
    """``--profile``, for every command that has the options of a run."""
    group.add_argument(
        "--profile",
        metavar="NAME|FILE",
        default="",
        help="take what is not said here from a profile ('eagle3-console profile list')",
    )
