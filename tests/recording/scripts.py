"""Sessions of any length as timed events, for recordings made without waiting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from eagle3_console.events import Connection, ConnectionChanged, Event, LogArrived, LogRestarted, Narration, StepChanged
from eagle3_console.recording.writer import Writer
from tests.ui.scenes import LIVE, LOADING, NOW, READY, RUNNING, arrived, gauges, job

Timed = tuple[float, Event]


def session(seconds: int, log_lines: int = 2) -> Iterator[Timed]:
    """A server that comes up and an extraction that goes on, looked at twice a second, with a cut in the link."""
    yield 0.0, LIVE
    yield 0.1, StepChanged("deploy", "done", "release 3f2a")
    offset = 0
    yield 0.2, LogRestarted(job("server").id)
    for half in range(1, 2 * seconds):
        t = half / 2
        now = NOW + t
        if t == 10:
            yield t, Narration("extraction under way", now)
        if half % 4001 == 4000:
            yield t - 0.3, ConnectionChanged(Connection("waiting", "link lost; trying again in 4 s", now))
            yield t - 0.1, LIVE
        server = LOADING if t < 10 else dataclasses.replace(READY, uptime=t)
        done = min(RUNNING.total, int(t * RUNNING.total / seconds))
        rate = 10 + half % 17 / 10
        extract = None if t < 10 else dataclasses.replace(RUNNING, stored=done, samples_per_s=rate, elapsed=t)
        box = dataclasses.replace(gauges(output_free=2_000_000_000_000 - done), load1=half % 50 / 4)
        seen = arrived(server, extract, now)
        yield t, dataclasses.replace(seen, snapshot=dataclasses.replace(seen.snapshot, gauges=box))
        lines = "".join(
            f"[2027-01-15 08:00:00 TP0] Prefill batch, #new-seq: 8, #new-token: {half * 7 + i % 9}, #cached-token: 0\n"
            for i in range(log_lines)
        ).encode()
        yield t + 0.01, LogArrived(job("server").id, lines, offset)
        offset += len(lines)


def write(path: Path, events: Iterable[Timed], end: bool = True) -> Path:
    """A recording of these events."""
    writer = Writer("root@gpu-box", NOW)
    t = 0.0
    with path.open("wb") as file:
        file.write(writer.begin())
        for t, event in events:
            file.writelines(writer.take(t, event))
        if end:
            file.writelines(writer.end(t))
    return path
