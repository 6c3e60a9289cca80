"""Arguments of ``server bench``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import positive


def add(server: Commands, *parents: argparse.ArgumentParser) -> None:
    """Add them to the parser of ``server``."""
    bench = server.add_parser(
        "bench", parents=list(parents), help="measure the ready server: one stream's decode and prefill tokens a second"
    )
    bench.add_argument("--decode-tokens", metavar="N", type=positive, default=128, help="new tokens (default 128)")
    bench.add_argument("--prefill-tokens", metavar="N", type=positive, default=2048, help="prompt (default 2048)")
    bench.add_argument(
        "--repeats", metavar="N", type=positive, default=3, help="the median of so many counts (default 3)"
    )
    bench.add_argument("--list", action="store_true", help="measure nothing, show what was measured before")
