"""Saved logs explained, without a box: the box's own reader, run on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from eagle3_console import release


async def explain(args: argparse.Namespace) -> int:
    """Run ``python -m eagle3_remote.explain`` from where the release is made of; its exit code.

    Raises:
        FileNotFoundError: the box's side is not installed beside the console.
    """
    folders = dict.fromkeys(str(release.package_dir(package).parent) for package in release.PACKAGES)
    options = ["--json"] if args.json else []
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # what lies in the folder that one is in is not ours
        "-m",
        "eagle3_remote.explain",
        *options,
        "--",
        *args.files,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONIOENCODING": "utf-8:backslashreplace"},
    )
    return await process.wait()


COMMANDS = {"explain": explain}
