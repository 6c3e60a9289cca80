"""What the screen costs: ``python -m tests.bench.screen [paint idle live log memory night] [--seconds 20]``.

paint    from the end of the imports to the first panels on a terminal
idle     CPU of the console, connected to a real agent on this machine, nothing happening
live     the same with a server whose log grows by 2,000 lines/s and an extraction under way
log      the log view alone at 5,000 lines/s: CPU, and how long a frame takes
memory   the log view over ten million lines
night    twelve hours of snapshots and events, as fast as they are taken

In the first four the console is a process of its own in a pseudo-terminal of 120 x 35; CPU is that process's alone, without
the agent's. The server is a stand-in (a log that grows, an HTTP 200), as is the extraction's process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from eagle3_console.cli import build_parser
from eagle3_console.commands.context import make_session
from eagle3_console.events import LogArrived, Narration
from eagle3_console.ui.log_buffer import LogBuffer
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.job import stopping
from eagle3_remote.protocol import ExtractSpec, ExtractState, ServerSpec, decode, encode
from eagle3_remote.protocol import Snapshot as SnapshotMessage
from tests.bench.attach import EXTRACTION, LOGS, START, _free_port, start, write_journal
from tests.box.client import until
from tests.ui.scenes import READY, RUNNING, arrived, console, log_bytes, snapshot
from tests.ui.terminal import Drained, Terminal

SIZE = (120, 35)
LINES_A_SECOND = 2_000
PAINT = """
import asyncio, time
import eagle3_console.screen
from eagle3_console.ui.app import ConsoleApp
from tests.ui.scenes import SCENES, TARGET, ScriptedController
{begun}
app = ConsoleApp(ScriptedController(SCENES["extracting"]), TARGET)
asyncio.run(app.run_async())
"""
SERVER = """
import http.server, sys, threading, time
with open(sys.argv[1], "rb") as log:
    sys.stdout.buffer.write(log.read())
print("[2026-08-12 09:00:00] The server is fired up and ready to roll!", flush=True)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
rate, number, began = int(sys.argv[3]), 0, time.monotonic()
while True:
    due = int((time.monotonic() - began) * rate)
    clock = time.strftime("%Y-%m-%d %H:%M:%S")
    sys.stdout.write("".join(
        f"[{clock} TP{n % 8}] Prefill batch, #new-seq: {n % 40}, #new-token: {n % 16384}, #cached-token: 0, token usage: "
        f"0.{n % 100:02}, #running-req: {n % 40}, #queue-req: {n % 7}, cuda graph: False, input throughput (token/s): {n % 9000}.17\\n"
        for n in range(number, due)))
    sys.stdout.flush()
    number = due
    time.sleep(0.05)
"""
LOG_VIEW = """
import asyncio, json, sys, time
from textual.app import App
from textual.screen import Screen
from eagle3_console.ui.widgets.log_view import LogView
from tests.ui.scenes import log_bytes
rate, seconds = 5_000, float({seconds})
frames = []
sync, refresh = LogView.sync, Screen._compositor_refresh
spent = 0.0
def timed_sync(self):
    global spent
    began = time.perf_counter()
    sync(self)
    spent += time.perf_counter() - began
def timed_refresh(self):
    global spent
    began = time.perf_counter()
    refresh(self)
    spent += time.perf_counter() - began
    if spent > 0.0005:
        frames.append(spent)
    spent = 0.0
LogView.sync, Screen._compositor_refresh = timed_sync, timed_refresh
class LogApp(App):
    def compose(self):
        self.view = LogView()
        yield self.view
    def on_mount(self):
        self.lines = log_bytes(rate // 20)
        self.set_interval(0.05, lambda: self.view.feed(self.lines))
        self.set_timer(2, self.begin)
    def begin(self):
        frames.clear()
        self.cpu, self.began = time.process_time(), time.monotonic()
        self.set_timer(seconds, self.end)
    def end(self):
        cpu = (time.process_time() - self.cpu) / (time.monotonic() - self.began)
        json.dump([cpu, frames, self.view.buffer.end], open({out!r}, "w"))
        self.exit()
app = LogApp()
asyncio.run(app.run_async())
"""


def paint(seconds: float) -> None:
    """Seven starts."""
    del seconds
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(7):
            out = Path(folder) / str(number)
            begun = f"import pathlib; pathlib.Path({str(out)!r}).write_text(repr(time.monotonic()))"
            terminal = Terminal(PAINT.replace("{begun}", begun), size=SIZE)
            terminal.read_until(b"1 Server")
            seen = time.monotonic()
            taken.append(seen - float(out.read_text()))
            terminal.process.send_signal(signal.SIGTERM)
            terminal.finish()
    shown = ", ".join(f"{one:.2f}" for one in taken)
    say(f"first paint after the imports: median {statistics.median(taken):.2f} s of {shown} (goal < 0.5 s)")


def cpu_of(pid: int, seconds: float) -> float:
    """Share of a core that a process takes over so many seconds, without its children."""
    process = psutil.Process(pid)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    used = after.user + after.system - before.user - before.system
    say(f"  {used:.2f} s CPU in {took:.1f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return used / took


@contextlib.contextmanager
def watching(home: Path) -> Iterator[int]:
    """The real command on this machine as the box, connected; its process id."""
    terminal = Terminal(
        words=["local", "--readonly", "--box-dir", str(home)], size=SIZE, XDG_CONFIG_HOME=str(home.parent)
    )
    try:
        terminal.read_until(b"connected")
        drained = Drained(terminal)
        time.sleep(5)  # the first look is over
        terminal.type(b"\x1b")  # the offer to set up what was never set up
        time.sleep(1)
        drained.bytes = 0
        yield terminal.process.pid
        say(f"  {drained.bytes:,} bytes were painted")
    finally:
        terminal.process.send_signal(signal.SIGTERM)
        terminal.process.wait(20)


def idle(seconds: float) -> None:
    """Nothing runs on the box."""
    with tempfile.TemporaryDirectory() as folder, watching(Path(folder) / "box") as pid:
        share = statistics.median(cpu_of(pid, seconds) for _ in range(3))
    say(f"idle: {share:.1%} of a core, median of 3 (goal < 3 %)")


def live(seconds: float) -> None:
    """A server that talks, an extraction that runs."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "box"
        with talking(home, LINES_A_SECOND), watching(home) as pid:
            share = statistics.median(cpu_of(pid, seconds) for _ in range(3))
    say(f"live at {LINES_A_SECOND:,} lines/s: {share:.1%} of a core, median of 3 (goal < 25 %)")


@contextlib.contextmanager
def talking(home: Path, rate: int) -> Iterator[None]:
    """Jobs on this machine until the block ends."""

    async def deploy() -> str:
        session = make_session(build_parser()[0].parse_args(["open", "local", "--box-dir", str(home)]))
        await session.connect()
        try:
            return (await session.deploy()).path
        finally:
            await session.drop()

    release = Path(asyncio.run(deploy()))
    port, out = _free_port(), home.parent / "states"
    (out / ".eagle3").mkdir(parents=True)
    written = home.parent / "start.log"
    written.write_bytes((LOGS / "real" / START).read_bytes())
    facts = {"sglang_version": "0.5.20", "dump_dir": str(home.parent)}
    spec = ServerSpec("/models/one", sys.executable, port=port)
    server = start(home, release, "server", SERVER, spec, str(written), str(port), str(rate), facts=facts)
    write_journal(out / ".eagle3" / "journal.sqlite3")
    wish = ExtractSpec("/data/prompts.jsonl", str(out))
    extract = start(home, release, "extract", EXTRACTION, wish)
    report = Reporter(str(extract.run_dir), wish)
    report.state, report.sentence = ExtractState.RUNNING, "Extracting."
    report.write()
    try:
        until(lambda: server.log_path.exists() and server.log_path.stat().st_size > written.stat().st_size)
        yield
    finally:
        for job in (server, extract):
            stopping.stop(job, grace=0.2, term=1.0)


def log(seconds: float) -> None:
    """Nothing but the view."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        terminal = Terminal(LOG_VIEW.format(seconds=seconds, out=str(out)), size=SIZE)
        Drained(terminal)
        terminal.process.wait()
        cpu, frames, lines = json.loads(out.read_text())
    frames = sorted(1000 * frame for frame in frames)
    p95 = frames[int(0.95 * len(frames))]
    say(
        f"log view at 5,000 lines/s: {cpu:.1%} of a core (goal < 25 %), {len(frames)} frames, median "
        f"{statistics.median(frames):.1f} ms, p95 {p95:.1f} ms (goal < 50 ms); {lines:,} lines; load {os.getloadavg()[0]:.1f}"
    )


def rss() -> float:
    """MB."""
    return float(psutil.Process().memory_info().rss) / 1e6


def memory(seconds: float, millions: int = 10) -> None:
    """Ten million lines through the ring, a reader away from its end for one of them."""
    del seconds
    buffer, lines, seen = LogBuffer(), log_bytes(10_000), []
    for million in range(millions):
        reading = buffer.first + 5 if million == 2 else None
        for _ in range(100):
            buffer.feed(lines, reading)
        seen.append(rss())
    say(f"log of {buffer.end:,} lines: MB after each million: {', '.join(f'{one:.0f}' for one in seen)}")


def night(seconds: float, hours: int = 12) -> None:
    """The whole application without a terminal; a snapshot every 2 s of the box's clock, decoded as from the wire."""
    del seconds

    async def run() -> list[float]:
        app, _ = console([])
        seen = []
        wire = encode(snapshot(READY, RUNNING))
        async with app.run_test(size=SIZE) as pilot:
            for hour in range(hours):
                for second in range(0, 3600, 2):
                    wire["clock"] = clock = snapshot().clock + 3600 * hour + second
                    message = decode(SnapshotMessage, wire)
                    app.take(dataclasses.replace(arrived(), snapshot=message, at=clock))
                    app.take(LogArrived("job", log_bytes(10), app.log_panel._next_offset or 0))
                    if second % 60 == 0:
                        app.take(Narration(f"minute {second}", clock))
                        await pilot.pause(0.02)
                seen.append(rss())
                sys.stderr.write(f"hour {hour + 1}: {seen[-1]:.0f} MB\n")
        return seen

    began = time.process_time()
    seen = asyncio.run(run())
    shown = ", ".join(f"{one:.0f}" for one in seen)
    say(f"{hours} simulated hours: MB after each: {shown}; {time.process_time() - began:.0f} s CPU")


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


PARTS: dict[str, Callable[[float], None]] = {
    "paint": paint,
    "idle": idle,
    "live": live,
    "log": log,
    "memory": memory,
    "night": night,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    for part in args.parts or PARTS:
        PARTS[part](args.seconds)
