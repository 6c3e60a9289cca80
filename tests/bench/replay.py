"""How fast a long recording opens and how fast one jumps in it: ``python -m tests.bench.replay [HOURS]``.

The recording is made here: snapshots of an 8-GPU box twice a second, log lines, a cut in the link every half an hour.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from tests.recording.scripts import session, write

JUMPS = 60


def main() -> None:
    """Print the figures."""
    hours = float(sys.argv[1] if len(sys.argv) > 1 else 12)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        path = write(Path(folder) / "long.ndjson", session(int(hours * 3600), log_lines=6))
        made = time.process_time() - began
        say(
            f"{hours:g} h: {path.stat().st_size / 1e6:.0f} MB, {1000 * made / hours / 7200:.2f} ms of CPU a look to write"
        )
        opened = []
        for _ in range(5):
            began = time.perf_counter()
            player = Player(Recording(path))
            opened.append(time.perf_counter() - began)
        say(f"open: {statistics.median(opened):.2f} s, {len(player.recording):,} lines")
        jumps = []
        for place in (random.Random(1).uniform(0, player.recording.seconds) for _ in range(JUMPS)):
            began = time.perf_counter()
            player.seek(place)
            jumps.append(time.perf_counter() - began)
        say(f"jump: median {1000 * statistics.median(jumps):.0f} ms, longest {1000 * max(jumps):.0f} ms")
        player.seek(0)
        began = time.perf_counter()
        player.advance(600)
        say(f"playing: {600 / (time.perf_counter() - began):,.0f} times as fast as it was")
    say(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
