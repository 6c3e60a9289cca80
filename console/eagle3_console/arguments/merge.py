"""Arguments of ``merge``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    merge = sub.add_parser("merge", parents=list(parents), help="join shards into one dataset without copying states")
    merge.add_argument("--out", metavar="DIR", required=True, help="the dataset to be made")
    merge.add_argument(
        "paths",
        metavar="SHARD_DIR",
        nargs="*",
        help="every shard once (default: those of the array submitted for --out)",
    )
    merge.add_argument(
        "--by",
        choices=("hard-link", "rename", "symlink"),
        default="hard-link",
        help="a second name for every file (default); rename uses the shards up; symlinks need the shards where they are",
    )
    merge.add_argument("--no-wait", action="store_true", help="return at once; the job goes on")
