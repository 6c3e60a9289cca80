"""Arguments of ``config ACTION``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands


def add(sub: Commands, output: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    config = sub.add_parser(
        "config", help="your settings of the screen: show, path, validate, test-alert"
    ).add_subparsers(dest="action", metavar="ACTION", required=True)
    config.add_parser("show", parents=[output], help="every value, and where it comes from")
    config.add_parser("path", parents=[output], help="where the file lies, or would lie")
    config.add_parser("test-alert", parents=[output], help="send one alert through every channel that is set")
    config.add_parser("validate", parents=[output], help="name every mistake by line and key")
