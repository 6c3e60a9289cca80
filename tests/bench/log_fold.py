"""How fast a server's log is folded, and in how much memory: ``python -m tests.bench.log_fold [MEGABYTES]``.

Three logs of that size: a server at work (batch and access lines, as they are in a long extraction), recorded logs of
whole server lives one after the other, and lines that no table knows.
"""

from __future__ import annotations

import itertools
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3_remote.serverlog import LogState, feed

CHUNK = 1 << 20
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
    """Real logs, one after the other."""
    every = b"".join(path.read_bytes() + b"\n" for path in sorted((LOGS / "real").glob("*.log")))
    while True:
        yield every


def unknown() -> Iterator[bytes]:
    """Lines of another program."""
    for number in itertools.count():
        yield b"".join(
            b"another program says %d of %d and nothing that matters here\n" % (number, one) for one in range(99)
        )


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


def main() -> None:
    """Print a line a log."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 1000) * 1_000_000
    for name, source in (("a server at work", work()), ("recorded lives", lives()), ("unknown lines", unknown())):
        seconds, done = fold(source, size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(
            f"{name}: {done / 1e6:.0f} MB in {seconds:.1f} s CPU, {done / 1e6 / seconds:.0f} MB/s, peak {peak:.0f} MB"
            + "\n"
        )


if __name__ == "__main__":
    main()
