"""Arguments of ``export`` and ``vocab-map``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import positive

FORMATS = ("speculators-v1", "specforge", "modelopt", "pt", "speculators")
DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn")


def add(sub: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    link, output = parents
    export = sub.add_parser(
        "export",
        parents=[link, output],
        help="rewrite a dataset for another trainer; the same command goes on with what is missing",
    )
    _common(export, "the directory that is written, on the box")
    export.add_argument(
        "--format", choices=FORMATS, required=True, help="what reads it (speculators 0.5 and newer needs no export)"
    )
    export.add_argument(
        "--final",
        choices=("pre", "post"),
        default="",
        help="final state before or after the last norm (default: what the format's trainer expects)",
    )
    export.add_argument(
        "--dtype",
        choices=DTYPES,
        default="",
        help="default: as stored; float8_e4m3fn only with --format speculators, half the space, read by 0.9 and newer",
    )
    export.add_argument("--no-wait", action="store_true", help="return at once, the export goes on")
    export.add_argument("--stop", action="store_true", help="stop this export; what is written stays")
    mapping = sub.add_parser(
        "vocab-map",
        parents=[link, output],
        help="count the tokens that are learnt from, and choose a drafter's vocabulary (token_freq, d2t, t2d)",
    )
    _common(mapping, "a directory for all files, or one file that ends in .pt, on the box")
    mapping.add_argument(
        "--draft-vocab",
        metavar="N",
        type=positive,
        default=0,
        help="so many most frequent tokens (default: count only)",
    )


def _common(command: argparse.ArgumentParser, to: str) -> None:
    command.add_argument("--out", metavar="DATASET", required=True, help="the dataset, a directory on the box")
    command.add_argument("--to", metavar="DIR", required=True, help=to)
    command.add_argument(
        "--model",
        metavar="DIR",
        dest="target_model",  # `model` is a plan's: commands that have one plan a run
        default="",
        help="where the target model lies now (default: where it lay)",
    )
