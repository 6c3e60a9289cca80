"""The weighing of process, log and HTTP; pure, as tables. And what the extraction is told to be."""

from __future__ import annotations

import dataclasses
import http.server
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.box import identity
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import (
    JobState,
    JobStatus,
    PatchMarker,
    Phase,
    ServerLog,
    ServerSpec,
    ServerStatus,
    encode,
)
from eagle3_remote.rpc import Refused
from eagle3_remote.server.attach import fit_marker
from eagle3_remote.server.health import Health, HealthProbe, url_of
from eagle3_remote.server.processes import Process
from eagle3_remote.server.status import StatusReader, judge
from eagle3_remote.server.stuck import Signs, died
from tests.box.client import until

RUNNING = JobStatus("server-x", "server", JobState.RUNNING, 1, None, 0.0, None, "/r", "/r/out.log", 0, 0)
GOOD, NEVER = Health(ok=True, ms=3.0), Health(failures=2, failing_for=1.0)
GONE = Health(ms=3.0, failures=3, failing_for=61.0)
UP = ServerLog(phase=Phase.READY)
OOM = ServerLog(phase=Phase.FAILED, failure="cuda_oom", root_cause="torch.OutOfMemoryError: x.", advice="Lower it.")


def ended(state: JobState, rc: int | None = None) -> JobStatus:
    return dataclasses.replace(RUNNING, state=state, rc=rc)


@pytest.mark.parametrize(
    ("job", "log", "health", "stopping", "active", "phase", "words"),
    [
        (RUNNING, ServerLog(), Health(), False, False, Phase.SPAWNING, "starts"),
        (RUNNING, ServerLog(phase=Phase.LOADING_WEIGHTS), Health(), False, False, Phase.LOADING_WEIGHTS, "loads"),
        (
            RUNNING,
            ServerLog(phase=Phase.LOADING_WEIGHTS, shards_done=3, shards_total=64, shard_eta="08:20"),
            Health(),
            False,
            False,
            Phase.LOADING_WEIGHTS,
            "3 of 64 shards, about 08:20 left",
        ),
        (
            RUNNING,
            ServerLog(
                phase=Phase.LOADING_WEIGHTS,
                shards_done=64,
                shards_total=64,
                waiting_ranks=("TP3", "TP5", "TP6", "TP7"),
            ),
            Health(),
            False,
            False,
            Phase.LOADING_WEIGHTS,
            "64 of 64 shards; it waits for TP3, TP5, TP6 and 1 more.",
        ),
        (RUNNING, ServerLog(phase=Phase.HTTP_UP), NEVER, False, False, Phase.HTTP_UP, "not ready"),
        (RUNNING, ServerLog(phase=Phase.WARMING_UP), NEVER, False, True, Phase.WARMING_UP, "warm-up"),
        (RUNNING, ServerLog(phase=Phase.HTTP_UP), GOOD, False, False, Phase.READY, "ready"),
        (RUNNING, UP, GOOD, False, False, Phase.READY, "ready"),
        (RUNNING, UP, GOOD, False, True, Phase.BUSY, "at work"),
        (RUNNING, UP, NEVER, False, False, Phase.HTTP_UP, "not ready"),  # said ready before its port listens
        (RUNNING, UP, GONE, False, False, Phase.UNRESPONSIVE, "not answered for 61 s"),
        (RUNNING, UP, GONE, False, True, Phase.BUSY, "at work"),  # slow to answer under load is not dead
        (RUNNING, UP, dataclasses.replace(GONE, failing_for=59.0), False, False, Phase.READY, "ready"),
        (RUNNING, UP, dataclasses.replace(GONE, failures=2), False, False, Phase.READY, "ready"),
        (RUNNING, UP, GOOD, True, False, Phase.STOPPING, "being stopped"),
        (RUNNING, ServerLog(phase=Phase.STOPPING), GOOD, False, False, Phase.STOPPING, "being stopped"),
        (RUNNING, OOM, NEVER, False, False, Phase.FAILED, "failing. torch.OutOfMemoryError: x. Lower it."),
        (ended(JobState.FINISHED, 0), UP, GOOD, False, False, Phase.EXITED, "without an error"),
        (ended(JobState.FINISHED, -15), UP, GOOD, True, False, Phase.EXITED, "was stopped"),
        (ended(JobState.FINISHED, -9), OOM, GOOD, False, False, Phase.FAILED, "(signal 9). torch.OutOfMemoryError"),
        (
            ended(JobState.FINISHED, 1),
            ServerLog(last_line="bye"),
            NEVER,
            False,
            False,
            Phase.FAILED,
            "last line of its log: bye",
        ),
        (ended(JobState.FINISHED, 127), ServerLog(), NEVER, False, False, Phase.FAILED, "Its log is empty"),
        (ended(JobState.KILLED), UP, GOOD, False, False, Phase.FAILED, "killed"),
        (ended(JobState.KILLED), UP, GOOD, True, False, Phase.EXITED, "was stopped"),
        (ended(JobState.REBOOTED), UP, GOOD, False, False, Phase.EXITED, "restarted"),
    ],
)
def test_one_truth(
    job: JobStatus, log: ServerLog, health: Health, stopping: bool, active: bool, phase: Phase, words: str
) -> None:
    seen, sentence = judge(job, log, health, stopping=stopping, active=active)
    assert seen is phase
    assert words in sentence


LOADING = ServerLog(phase=Phase.LOADING_WEIGHTS, shards_done=3, shards_total=64, last_line="3/64")
WARMING = ServerLog(phase=Phase.WARMING_UP, last_line="Prefill batch")
CAPTURE = ServerLog(phase=Phase.CAPTURING)
HALTED = Process(7, 1, "scheduler", "TP1", "sglang::scheduler_TP1", "T", 1.0, 0)
DEAD = dataclasses.replace(HALTED, state="Z", ended_with=-9)


@pytest.mark.parametrize(
    ("log", "health", "signs", "phase", "words"),
    [
        # a bar that moves slowly is no fault, nor is one that stands still while its processes read
        (LOADING, NEVER, Signs(silent_for=299, resting=True), Phase.LOADING_WEIGHTS, "3 of 64"),
        (LOADING, NEVER, Signs(silent_for=3000), Phase.LOADING_WEIGHTS, "3 of 64"),
        (LOADING, NEVER, Signs(silent_for=301, resting=True, doing="scheduler TP0 (pid 6) sleeps"), Phase.STUCK, "5 min"),
        (LOADING, NEVER, Signs(silent_for=301, resting=True), Phase.STUCK, "The last line: 3/64"),
        (LOADING, NEVER, Signs(silent_for=3601), Phase.STUCK, "stuck in loading-weights: nothing new for 60 min"),
        (LOADING, NEVER, Signs(silent_for=9, halted=(HALTED,)), Phase.LOADING_WEIGHTS, "3 of 64"),
        (LOADING, NEVER, Signs(silent_for=11, halted=(HALTED,)), Phase.STUCK, "scheduler TP1 (pid 7); `kill -CONT 7`"),
        # kernels are compiled for up to an hour
        (CAPTURE, NEVER, Signs(silent_for=1300), Phase.CAPTURING, "captures or compiles"),
        (CAPTURE, NEVER, Signs(silent_for=601, resting=True), Phase.STUCK, "Its log is empty"),
        (WARMING, NEVER, Signs(silent_for=119, resting=True), Phase.WARMING_UP, "warm-up"),
        (WARMING, NEVER, Signs(silent_for=121, resting=True), Phase.STUCK, "stuck in warming-up"),
        (WARMING, NEVER, Signs(silent_for=1801), Phase.STUCK, "`server stack`"),
        # an answer of /health says nothing of the schedulers
        (UP, GOOD, Signs(deaf_for=19, resting=True), Phase.READY, "ready"),
        (UP, GOOD, Signs(deaf_for=21, resting=True, doing="x"), Phase.STUCK, "its schedulers do not for 21 s"),
        (UP, GOOD, Signs(deaf_for=1100), Phase.READY, "ready"),  # its first batch compiles
        (UP, GOOD, Signs(deaf_for=1201), Phase.STUCK, "for 20 min"),
        (UP, GOOD, Signs(silent_for=1e6), Phase.READY, "ready"),  # nobody asks anything of it
        (UP, GOOD, Signs(halted=(HALTED,)), Phase.STUCK, "Halted by a signal"),
        (UP, GONE, Signs(halted=(HALTED,)), Phase.STUCK, "Halted by a signal"),
        (UP, GONE, Signs(deaf_for=1e6), Phase.UNRESPONSIVE, "not answered"),
        (OOM, NEVER, Signs(silent_for=1e6, resting=True), Phase.FAILED, "Lower it"),
        (dataclasses.replace(UP, root_cause=died((DEAD,)), advice="Stop it."), GOOD, Signs(dead=(DEAD,)), Phase.FAILED,
         "scheduler TP1 (pid 7) was killed (signal 9)"),
    ],
)  # fmt: skip
def test_no_progress_where_progress_is_due(
    log: ServerLog, health: Health, signs: Signs, phase: Phase, words: str
) -> None:
    seen, sentence = judge(RUNNING, log, health, stopping=False, active=False, signs=signs)
    assert seen is phase, sentence
    assert words in sentence
    stopped, _ = judge(RUNNING, log, health, stopping=True, active=False, signs=signs)
    assert stopped is Phase.STOPPING  # who is being stopped is not stuck


MARKER = PatchMarker("0.1", "0.5.23", "LlamaForCausalLM", 8, 64, (2, 4, 5), "pre", 0, 2, True)
FIT = ServerStatus(
    phase=Phase.READY,
    sentence="The server is ready.",
    job=RUNNING,
    spec=ServerSpec(model="/m", python="/p", tp=2),
    argv=("python", "--disable-radix-cache"),
    log=ServerLog(phase=Phase.READY, markers=(MARKER, dataclasses.replace(MARKER, tp_rank=1, writes=False))),
)


def test_ready_says_whether_the_rows_were_checked() -> None:
    log = dataclasses.replace(UP, markers=(MARKER,))
    before = judge(RUNNING, log, GOOD, stopping=False, active=False)
    assert before == (
        Phase.READY,
        "The server is ready. Its rows are not checked yet: the first request, the probe, does it.",
    )
    after = judge(RUNNING, dataclasses.replace(log, checked=True), GOOD, stopping=False, active=False)
    assert after == (Phase.READY, "The server is ready.")


def test_a_fit_server() -> None:
    assert fit_marker(FIT) == MARKER
    assert fit_marker(dataclasses.replace(FIT, phase=Phase.BUSY)) == MARKER


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (ServerStatus(Phase.NOT_RUNNING, "No server was started from here."), "start it first"),
        (dataclasses.replace(FIT, phase=Phase.FAILED, sentence="It burnt."), "It burnt."),
        (dataclasses.replace(FIT, phase=Phase.LOADING_WEIGHTS), "not ready yet"),
        (dataclasses.replace(FIT, phase=Phase.UNRESPONSIVE), "not ready yet"),
        (dataclasses.replace(FIT, log=ServerLog()), "rank 0, 1 of 2"),
        (dataclasses.replace(FIT, log=ServerLog(markers=(MARKER,))), "rank 1 of 2"),
        (dataclasses.replace(FIT, argv=("python",)), "radix cache on"),
        (dataclasses.replace(FIT, spec=ServerSpec(model="/m", python="/p", radix_cache=True)), "radix cache on"),
        (
            dataclasses.replace(
                FIT, log=ServerLog(markers=(MARKER, dataclasses.replace(MARKER, tp_rank=1, boundaries=(3,))))
            ),
            "different boundaries",
        ),
        (
            dataclasses.replace(
                FIT, log=ServerLog(markers=tuple(dataclasses.replace(MARKER, tp_rank=r, writes=False) for r in (0, 1)))
            ),
            "No rank",
        ),
    ],
)
def test_servers_that_are_not_fit(server: ServerStatus, words: str) -> None:
    with pytest.raises(Refused, match=words):
        fit_marker(server)


@pytest.fixture
def web() -> Iterator[tuple[int, list[int], list[int]]]:
    """A stand-in for a server's HTTP side: (port, codes to answer with, requests in progress)."""
    codes, busy = [200], [0, 0]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            busy[0] += 1
            busy[1] = max(busy)
            self.send_response(codes[-1])
            self.end_headers()
            busy[0] -= 1

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1], codes, busy
        server.shutdown()
        thread.join()


def test_health_is_asked_in_the_background(
    web: tuple[int, list[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3_remote.server.health.EVERY_GOOD", 0.0)
    monkeypatch.setattr("eagle3_remote.server.health.EVERY_BAD", 0.0)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # a proxy of the box is not for its own ports
    port, codes, busy = web
    probe = HealthProbe(f"http://127.0.0.1:{port}/health")
    first = probe.poll()
    assert first.ok
    assert first.ms is not None
    codes.append(503)
    until(lambda: probe.poll().failures >= 3)
    bad = probe.poll()
    assert not bad.ok
    assert bad.ms == pytest.approx(bad.ms)
    assert bad.failing_for > 0
    codes.append(200)
    until(lambda: probe.poll().ok)
    assert probe.poll().failures == 0
    assert busy[1] == 1  # never two at once


def test_the_health_of_a_server_before_its_restart_is_not_that_of_the_one_after(
    home: Path, release: Path, web: tuple[int, list[int], list[int]]
) -> None:
    port, codes, _busy = web
    code = "import os, time\nprint('The server is fired up and ready to roll!', os.fork(), flush=True)\ntime.sleep(600)"
    message = encode(ServerSpec(model="m", python=sys.executable, port=port))
    job = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-u", "-c", code], {}, message)
    until(lambda: job.log_path.read_text().count("\n") == 2)
    reader = StatusReader(home)
    until(lambda: reader.server().phase is Phase.READY)
    codes.append(503)
    child = identity.identify(max(int(line.split()[-1]) for line in job.log_path.read_text().splitlines()))
    assert child is not None
    record = json.loads((job.run_dir / "pid.json").read_text())
    record.update(pid=child.pid, start_time=child.start_time)  # what a restart writes: the same job, another process
    (job.run_dir / "pid.json").write_text(json.dumps(record))
    until(lambda: reader.server().phase is Phase.HTTP_UP)
    stopping.stop(job, grace=1)


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        health = HealthProbe(f"http://127.0.0.1:{free.getsockname()[1]}/health").poll()
    assert (health.ok, health.ms, health.failures) == (False, None, 1)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("fe80::1", "http://[fe80::1]:1"),
    ],
)
def test_where_a_server_is_reached(host: str, url: str) -> None:
    assert url_of(host, 1) == url


def test_a_start_says_what_the_last_start_of_the_same_model_took(home: Path, release: Path) -> None:
    """Stand-ins for servers: processes that print a server's lines, those of the first stamped an hour ahead."""
    ready = (
        "import time\n"
        "stamp = time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(time.time() + 3600))\n"
        "print(f'[{stamp}] The server is fired up and ready to roll!', flush=True)\n"
    )

    def start(model: str, code: str) -> jobs.Job:
        message = encode(ServerSpec(model=model, python=sys.executable))
        job = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-c", code], {}, message)
        until(lambda: (code == wait) or jobs.state_of(job) is JobState.FINISHED)
        return job

    wait = "import time; time.sleep(600)"
    start("m", ready)
    start("m", "")
    start("other", ready.replace("3600", "60"))
    job = start("m", wait)
    last = StatusReader(home).server().last_start
    assert last is not None
    assert 3590 < last < 3700
    stopping.stop(job, grace=1)
    job = start("new", wait)
    assert StatusReader(home).server().last_start is None
    stopping.stop(job, grace=1)
