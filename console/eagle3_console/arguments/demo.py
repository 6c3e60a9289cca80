"""Arguments of ``demo``."""

from __future__ import annotations

import argparse

from eagle3_console.arguments import options
from eagle3_console.arguments.commands import Commands
from eagle3_console.arguments.kinds import positive


def add(sub: Commands, output: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    demo = sub.add_parser(
        "demo", parents=[output], help="the whole job on this machine: real SSH, real SGLang on the CPU, a tiny model"
    )
    demo.add_argument("--headless", action="store_true", help="no screen; print the report")
    demo.add_argument("--samples", type=positive, default=64, help="default 64")
    demo.add_argument(
        "--arch", choices=("deepseek", "llama"), default="deepseek", help="deepseek (MLA and MoE, default) or llama"
    )
    demo.add_argument("--sglang", metavar="VERSION", default="", help="the test bed (default: the newest)")
    demo.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="float32 is exact (default bfloat16)"
    )
    demo.add_argument(
        "--keep", metavar="DIR", default="", help="leave model, tokenized_data.jsonl, dataset and report.json there"
    )
    options.record(demo)
    demo.add_argument("--prepare", action="store_true", help="only set up the test bed")
