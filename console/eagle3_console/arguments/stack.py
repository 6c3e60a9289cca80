"""Arguments of ``server stack``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands


def add(server: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser of ``server``."""
    server.add_parser("stack", parents=list(parents), help="what each of its processes does right now (looks only)")
