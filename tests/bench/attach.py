"""How long a console waits for the whole truth: ``python -m tests.bench.attach [--megabytes 1000] [--tries 7]``.

A real sshd on this machine, on loopback and behind a proxy that adds 200 ms to every round trip; on the box a server job
with a log of a gigabyte, ten finished runs, and an extraction under way with a journal of 100,000 samples. Measured is
from nothing (no connection) to the first snapshot, each time with a new connection and a new agent, and the same divided
by the added latency: how many round trips one after another that takes. The account's login shell, which reads its files
before our command, is in it; what that takes alone is printed too.

The server is a stand-in: it writes the log of a real one, extended by the lines of a long extraction, and answers 200.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import contextlib
import getpass
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from eagle3_console.events import Event, SnapshotArrived
from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions
from eagle3_console.link.ssh import SshLink
from eagle3_console.link.target import parse
from eagle3_console.session import Session
from eagle3_console.watch import Watcher
from eagle3_remote.extract.input import Sample
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.extract.records import Reading
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import ExtractSpec, ExtractState, JobState, Phase, ServerSpec, Snapshot, encode
from tests.bench.log_fold import LOGS, work
from tests.box.client import until
from tests.link.sshd import SshdBox, running_sshd

ROUND_TRIP = 0.2
SAMPLES = 100_000
START = "sglang_0.5.20_llama.log"
SERVER = """
import http.server, shutil, sys, threading, time
with open(sys.argv[1], "rb") as log:
    shutil.copyfileobj(log, sys.stdout.buffer, 1 << 20)
sys.stdout.flush()
def work():
    while True:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"[{stamp} TP0] Prefill batch, #new-seq: 9, #new-token: 8192, #cached-token: 0, #running-req: 8", flush=True)
        time.sleep(0.2)
threading.Thread(target=work, daemon=True).start()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Answer).serve_forever()
"""
EXTRACTION = "import time\nwhile True: time.sleep(60)"


def write_log(path: Path, megabytes: int) -> None:
    """A real start, then a server at work."""
    left = megabytes * 1_000_000
    with path.open("wb") as file:
        left -= file.write((LOGS / "real" / START).read_bytes())
        for lines in work():
            left -= file.write(lines)
            if left <= 0:
                return


def write_journal(path: Path) -> None:
    """`SAMPLES` rows, as the reading of the input makes them."""
    ids = array.array("q", range(170))
    mask = array.array("q", [1] * 170)
    with contextlib.closing(Journal(str(path))) as journal:
        for start in range(0, SAMPLES, 10_000):
            samples = [
                (Sample(line + 1, ids, mask, False, f"s{line}", 170), line * 2720)
                for line in range(start, start + 10_000)
            ]
            journal.add(samples, Reading(start + 10_000, 0, 0, 1.0, start + 10_000 == SAMPLES), ordered=True)


def start(
    home: Path, release: Path, kind: str, code: str, message: object, *argv: str, facts: object = None
) -> jobs.Job:
    """A job of our own making; its supervisor is that of the release."""
    line = [sys.executable, "-u", "-c", code, *argv]
    return jobs.start(home, release, jobs.new_id(kind), line, {}, encode(message), facts=facts or {})  # type: ignore[arg-type]


@contextlib.contextmanager
def box_folder(home: Path, release: Path, megabytes: int) -> Iterator[None]:
    """Everything that a long day leaves on a box, until the block ends."""
    out = home.parent / "states"
    (out / ".eagle3").mkdir(parents=True)
    journal_path, written, port = out / ".eagle3" / "journal.sqlite3", home.parent / "written.log", _free_port()
    write_log(written, megabytes)
    write_journal(journal_path)
    spec = ExtractSpec("/data/prompts.jsonl", str(out))
    for _ in range(10):
        done = start(home, release, "extract", "pass", spec)
        until(lambda done=done: jobs.state_of(done) is JobState.FINISHED)  # type: ignore[misc]
    with contextlib.ExitStack() as stack:
        server_spec = ServerSpec("/models/one", sys.executable, port=port)
        facts = {"sglang_version": "0.5.20", "dump_dir": str(home.parent)}
        words = (str(written), str(port), "--enable-metrics")
        server = start(home, release, "server", SERVER, server_spec, *words, facts=facts)
        stack.callback(stopping.stop, server, grace=0.2, term=1.0)
        extract = start(home, release, "extract", EXTRACTION, spec)
        stack.callback(stopping.stop, extract, grace=0.2, term=1.0)
        report = Reporter(str(extract.run_dir), spec)
        report.state, report.sentence = ExtractState.RUNNING, "Extracting."
        with contextlib.closing(Journal(str(journal_path))) as journal:
            report.counts = journal.counts()
        report.write()
        until(lambda: server.log_path.exists() and server.log_path.stat().st_size >= written.stat().st_size)
        written.unlink()
        yield


@contextlib.asynccontextmanager
async def delayed(port: int, round_trip: float) -> AsyncIterator[int]:
    """A port that leads to `port` with half a round trip more in each direction, the TCP handshake's included."""
    tasks: set[asyncio.Task[None]] = set()

    def relay(source: asyncio.StreamReader, target: asyncio.Future[asyncio.StreamWriter], first: float) -> None:
        """Bytes read now are written half a round trip later, and none before `first`."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def take() -> None:
            data = b"-"
            while data:
                data = await source.read(1 << 16)
                queue.put_nowait((max(first, time.monotonic() + round_trip / 2), data))

        async def give() -> None:
            writer = await target
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    writer.close()
                    return
                writer.write(data)

        tasks.update((asyncio.create_task(take()), asyncio.create_task(give())))

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who connects here is through at once; over the wire that takes a round trip, and the box knows of it half a one later.
        loop = asyncio.get_running_loop()
        to_box: asyncio.Future[asyncio.StreamWriter] = loop.create_future()
        to_us: asyncio.Future[asyncio.StreamWriter] = loop.create_future()
        to_us.set_result(writer)
        relay(reader, to_box, time.monotonic() + 1.5 * round_trip)
        await asyncio.sleep(1.5 * round_trip)
        box_reader, box_writer = await asyncio.open_connection("127.0.0.1", port)
        to_box.set_result(box_writer)
        relay(box_reader, to_us, 0.0)

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def session(box: SshdBox, home: Path, port: int, folder: Path) -> Session:
    """A session that knows the box's key already."""
    known = folder / f"known_hosts-{port}"
    known.write_text(box.known_hosts_line.replace(f":{box.port} ", f":{port} "))
    options = SshOptions(config_files=(), identity_files=(box.identity_file,), known_hosts=known)

    async def dial() -> SshLink:
        return await connect(parse(f"{box.user}@{box.host}:{port}"), options, RefusingPrompter())

    return Session(dial, "the box", box_home=str(home), python=sys.executable)


async def attach(one: Session) -> tuple[float, float, Snapshot]:
    """Seconds from nothing to the first snapshot, as the screen comes to it; how many of them took the login; the snapshot."""
    arrived: list[tuple[float, Snapshot]] = []

    def take(event: Event) -> None:
        if isinstance(event, SnapshotArrived):
            arrived.append((time.perf_counter(), event.snapshot))

    watcher = Watcher(one, take, log="tail")
    began = time.perf_counter()
    await watcher.connect()
    logged_in = time.perf_counter()
    await watcher.pull()
    await one.drop()
    return arrived[0][0] - began, logged_in - began, arrived[0][1]


async def login_shell(one: Session, tries: int) -> float:
    """The median of the seconds that the account's login shell takes to come to a command and back."""
    await one.connect()
    found = []
    for _ in range(tries):
        began = time.perf_counter()
        await one.link.run("exit 0", timeout=60)
        found.append(time.perf_counter() - began)
    await one.drop()
    return statistics.median(found)


async def measure(box: SshdBox, home: Path, folder: Path, round_trip: float, tries: int) -> float:
    """The median of several."""
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(delayed(box.port, round_trip)) if round_trip else box.port
        found, logins = [], []
        for _ in range(tries):
            seconds, login, snapshot = await attach(session(box, home, port, folder))
            assert snapshot.server.phase in (Phase.READY, Phase.BUSY), snapshot.server.sentence
            assert snapshot.extract is not None
            assert snapshot.extract.total == SAMPLES
            found.append(seconds)
            logins.append(login)
    name = f"{round_trip * 1000:.0f} ms a round trip" if round_trip else "loopback"
    shown = ", ".join(f"{seconds:.2f}" for seconds in found)
    median = statistics.median(found)
    sys.stdout.write(f"{name}: median {median:.2f} s of {shown}; the login {statistics.median(logins):.2f} s of it\n")
    return median


async def bench(megabytes: int, tries: int) -> None:
    """Make the box, attach to it, and print."""
    with tempfile.TemporaryDirectory(prefix="eagle3-bench-") as name:
        folder = Path(name)
        home = folder / "box"
        with running_sshd(getpass.getuser(), folder / "sshd") as box:
            first = session(box, home, box.port, folder)
            await first.connect()
            deployed = await first.deploy()
            await first.drop()
            with box_folder(home, Path(deployed.path), megabytes):
                seconds, _, _ = await attach(session(box, home, box.port, folder))
                sys.stdout.write(f"the first attach after the log was written: {seconds:.2f} s\n")
                shell = await login_shell(session(box, home, box.port, folder), tries)
                sys.stdout.write(f"the login shell of this account, for a command that does nothing: {shell:.2f} s\n")
                near = await measure(box, home, folder, 0.0, tries)
                far = await measure(box, home, folder, ROUND_TRIP, tries)
                sys.stdout.write(f"round trips one after another: {(far - near) / ROUND_TRIP:.1f}\n")


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=7)
    args = parser.parse_args()
    asyncio.run(bench(args.megabytes, args.tries))
