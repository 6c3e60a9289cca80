"""How fast a server's log is folded, and in how much memory: ``python -m tests.bench.log_fold [MEGABYTES]``.

Logs of that size: a server at work (batch and access lines, as they are in a long extraction), recorded logs of whole
server lives one after the other, lines that no table knows, alike and all different, and tracebacks. Of each the median
of three rounds.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from eagle3_remote.serverlog import LogState, feed

CHUNK = 1 << 20
ROUNDS = 3
LOGS = Path(__file__).parents[1] / "box" / "logs"


def work() -> Iterator[bytes]:
    """A long extraction: numbers and times that never repeat."""
    yield b"[2026-08-12 09:00:00] The server is fired up and ready to roll!\n"
    for number in itertools.count():
        clock = f"2026-08-12 {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
        lines = "".join(
            f"[{clock} TP0] Prefill batch, #new-seq: {seq}, #new-token: {number % 16384}, #cached-token: 0, token usage: "
            f"0.{number % 100:02}, #running-req: {seq}, #queue-req: {number % 7}, cuda graph: False, input throughput "
            f"(token/s): {number % 9000}.17\n"
            f'[{clock}] INFO:     127.0.0.1:{30000 + number % 30000} - "POST /generate HTTP/1.1" 200 OK\n'
            for seq in range(1, 40)
        )
        yield lines.encode()


def lives() -> Iterator[bytes]:
    """Recorded logs, one after the other, each time at another hour."""
    every = b"".join(path.read_bytes() + b"\n" for path in sorted((LOGS / "real").glob("*.log")))
    for number in itertools.count():
        yield every.replace(b"2026-11-29 17:", b"2026-11-%02d %02d:" % (number // 24 % 28 + 1, number % 24))


def unknown() -> Iterator[bytes]:
    """Lines of another program."""
    for number in itertools.count():
        yield b"".join(
            b"another program says %d of %d and nothing that matters here\n" % (number, one) for one in range(99)
        )


def identified() -> Iterator[bytes]:
    """Lines of another program, no two alike: random identifiers, some with a stamp and a rank as SGLang has them."""
    random = Random(1)
    while True:
        yield b"".join(
            b"[2026-08-12 09:00:%02d TP%d] batch %032x is done\nstored object %032x as part %d\n"
            % (one % 60, one % 8, random.getrandbits(128), random.getrandbits(128), one)
            for one in range(99)
        )


def tracebacks() -> Iterator[bytes]:
    """Exceptions of two ranks that write into each other, with the lines of another program between."""
    frames = [b'  File "/opt/sglang/srt/models/part_%d.py", line %d, in forward\n    x = self.layer(x)\n'] * 12
    for number in itertools.count():
        at = b"[2026-08-12 %02d:%02d:%02d" % (number // 3600 % 24, number // 60 % 60, number % 60)
        heads = [
            at + b" TP%d] Scheduler hit an exception: Traceback (most recent call last):\n" % rank for rank in (0, 1)
        ]
        stack = b"".join(frame % (place, number) for place, frame in enumerate(frames))
        last = b"RuntimeError: request %d has no room\n" % number
        others = b"".join(b"a worker wrote %d of %d pages\n" % (number, one) for one in range(20))
        yield heads[0] + stack[:700] + heads[1] + stack + others + stack[700:] + last + others + last + others


def fold(source: Iterator[bytes], size: int) -> tuple[float, int]:
    """CPU seconds of folding about `size` bytes (making them does not count), and how many they were."""
    state, seconds, done, buffer = LogState(), 0.0, 0, bytearray()
    while done < size:
        while len(buffer) < CHUNK:
            buffer += next(source)
        chunk, buffer = bytes(buffer[:CHUNK]), buffer[CHUNK:]
        began = time.process_time()
        state = feed(state, chunk)
        seconds += time.process_time() - began
        done += len(chunk)
    return seconds, done


KINDS = {
    "a server at work": work,
    "recorded lives": lives,
    "unknown lines": unknown,
    "unknown lines with identifiers": identified,
    "tracebacks": tracebacks,
}


def main() -> None:
    """Print a line a log."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 1000) * 1_000_000
    for name, source in KINDS.items():
        rounds = [fold(source(), size) for _ in range(ROUNDS)]
        seconds, done = statistics.median(one for one, _ in rounds), rounds[0][1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(
            f"{name}: {done / 1e6:.0f} MB in {seconds:.1f} s CPU, {done / 1e6 / seconds:.0f} MB/s, peak {peak:.0f} MB\n"
        )


if __name__ == "__main__":
    main()
