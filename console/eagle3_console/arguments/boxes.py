"""Arguments for several boxes: ``status``, and the hosts of ``open``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    status = sub.add_parser("status", parents=list(parents), help="one line a box: link, server, extraction, disk")
    more_hosts(status)


def more_hosts(command: argparse.ArgumentParser) -> None:
    """Further boxes."""
    command.add_argument("more", metavar="HOST", nargs="*", default=[], help="further boxes")
