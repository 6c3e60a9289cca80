"""Arguments of ``explain``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments.commands import Commands

_EPILOG = """\
--json prints one object a file, a line each: phase (unknown, spawning, download, dist_init, load_weights,
load_weights_done, kv_cache, jit_warmup, graph_capture, graph_capture_done, http_up, warmup, ready, serving, exited,
failed), reached (the phase before it failed), ready, shards {done, total, rate, unit}, ranks, and failure {kind,
root_cause, rank, advice, certain}. No box is needed: the files are on this machine.
"""


def add(sub: Commands) -> None:
    """Add them to the parser."""
    explain = sub.add_parser(
        "explain",
        help="say what happened in saved logs of SGLang servers, without a box",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.add_argument("files", metavar="FILE", nargs="+", help="a saved log on this machine; - reads standard input")
    explain.add_argument("--json", action="store_true", help="one JSON object a file, a line each")
