"""A box that is watched through the proxy: jobs whose log and counters grow all the time, and what the console made of them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3_console.clock import Clock, Moment
from eagle3_console.events import ConnectionChanged, Event, LogArrived, LogRestarted, SnapshotArrived
from eagle3_remote import protocol
from eagle3_remote.job import jobs, stopping
from tests.box.client import make_release

TALK = """
import itertools, random, sys, time
chance = random.Random(int(sys.argv[1]))
text = "Loading 漢字 é █████▏ \\x1b[1;31mred\\x1b[0m 12%\\rLoading █ 13%\\x1b[A\\n".encode() + b"\\xff\\xfe bad\\n"
for number in itertools.count():
    line = b"%d " % number + text
    while line:  # a reader finds the file ending anywhere: in a line, a character, a control sequence
        some = chance.randrange(1, 40)
        sys.stdout.buffer.write(line[:some])
        sys.stdout.buffer.flush()
        line = line[some:]
        time.sleep(0.002)
"""
"""A log as SGLang's looks at its worst, growing by some 10 kB/s."""

COUNT = """
import itertools, json, os, sys, time
where = os.path.join(sys.argv[1], "progress.json")
for number in itertools.count():
    with open(where + ".new", "w") as file:
        json.dump({"state": "running", "sentence": "", "total": 10**9, "stored": number, "in_flight": 1}, file)
    os.rename(where + ".new", where)
    time.sleep(0.01)
"""


@contextlib.contextmanager
def busy_box(home: Path, scratch: Path) -> Iterator[jobs.Job]:
    """A job that talks and one that counts, as the box's own machinery starts them; gives the one that talks."""
    release = make_release(scratch)
    server = protocol.encode(protocol.ServerSpec("/m", sys.executable, port=1))
    extract = {"data": "/d", "out": "/o"}
    talks = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-c", TALK, "1"], {}, server)
    counts = jobs.start(
        home, release, jobs.new_id("extract"), [sys.executable, "-c", COUNT], {}, extract, run_dir_arg=True
    )
    try:
        yield talks
    finally:
        for job in (talks, counts):
            stopping.stop(job, grace=0.5, term=0.5)


@dataclasses.dataclass
class Seen:
    """What came out of a watcher. Keeps no bytes of the log, so that memory shows what the console itself keeps."""

    log: hashlib._Hash = dataclasses.field(default_factory=hashlib.sha256)
    log_size: int = 0
    restarts: int = 0
    snapshots: int = 0
    stored: int = -1
    words: list[str] = dataclasses.field(default_factory=list)
    said: collections.deque[str] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=20))
    """The last sentences about the connection, for whoever reads why a test failed."""

    def take(self, event: Event) -> None:
        """Judge one event as it comes."""
        match event:
            case LogArrived(data=data, offset=offset):
                assert offset == self.log_size
                self.log.update(data)
                self.log_size += len(data)
            case LogRestarted():
                self.restarts += 1
            case SnapshotArrived(snapshot=snapshot):
                self.snapshots += 1
                assert snapshot.extract is not None
                assert snapshot.extract.stored >= self.stored
                self.stored = snapshot.extract.stored
            case ConnectionChanged(connection=connection):
                self.words.append(connection.word)
                self.said.append(connection.sentence)

    def shows(self, path: Path) -> bool:
        """Whether the log came byte for byte as the file has it so far."""
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(self.log_size)).digest() == self.log.digest()


class QuickClock(Clock):
    """Runs `speed` times as quick as the real one."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._began = super().now()

    def now(self) -> Moment:
        real = super().now()
        return Moment(
            self._began.wall + (real.wall - self._began.wall) * self._speed,
            self._began.monotonic + (real.monotonic - self._began.monotonic) * self._speed,
        )

    async def wait(self, event: object, seconds: float) -> None:
        await super().wait(event, seconds / self._speed)  # type: ignore[arg-type]


def agents(home: Path) -> list[int]:
    """Agent processes of the releases in `home` that live."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if str(home).encode() in words and b"eagle3_remote.agent" in words and b"supervisor" not in words:
                found.append(int(entry.name))
    return found


def descriptors() -> int:
    """Open files of this process."""
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stamp() -> float:
    """Seconds, for limits of waiting only."""
    return time.monotonic()
