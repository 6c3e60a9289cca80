"""Schedulers that hang behind a living HTTP side: seen because they do not answer, not because anything is computed."""

from __future__ import annotations

import http.server
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import Phase, ServerLog, ServerSpec, encode
from eagle3_remote.server import processes, signs, stuck
from eagle3_remote.server.health import Pace
from eagle3_remote.server.status import StatusReader
from tests.box.client import until
from tests.box.test_processes import NAMED


class Web:
    """A stand-in for the HTTP side: /health answers always, /server_info as the schedulers do."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self.port = 0


@pytest.fixture
def web() -> Iterator[Web]:
    one = Web()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one.asked.append(self.path)
            if self.path == "/server_info" and not one.answers.wait(1.0):
                return  # hung up on
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        one.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield one
        one.answers.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs, "SCHEDULERS", Pace(good=0.1, bad=0.1, timeout=0.3, first_wait=0.0))
    monkeypatch.setattr(stuck, "SERVING", stuck.Patience(resting=0.8, working=1000.0))


def served(home: Path, release: Path, web: Web, work: str, *, batch: bool = True) -> jobs.Job:
    """A job that says what a ready server says, a minute ago, with a scheduler that does `work`."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - 60))
    said = [f"[{stamp}] The server is fired up and ready to roll!"]
    if batch:
        said.append(
            f"[{stamp}] Prefill batch, #new-seq: 1, #new-token: 19, #cached-token: 0, #running-req: 0, #queue-req: 0, "
        )
    says = f"print({chr(10).join(said)!r}, flush=True)\nchild('sglang::scheduler', lambda: {work})\ntime.sleep(600)"
    line = [sys.executable, "-u", "-c", NAMED + says]
    message = encode(ServerSpec(model="m", python=sys.executable, port=web.port))
    facts = {"sglang_version": "0.5.23"}
    job = jobs.start(home, release, jobs.new_id("server"), line, {}, message, facts=facts)
    until(lambda: processes.look(job).role("scheduler"))
    return job


def test_a_scheduler_that_sleeps_and_does_not_answer_is_stuck_until_it_answers(
    home: Path, release: Path, web: Web
) -> None:
    job = served(home, release, web, "time.sleep(600)")
    reader = StatusReader(home)
    until(lambda: reader.server().phase is Phase.STUCK, 20, every=0.1)
    seen = reader.server()
    assert "its HTTP side answers, its schedulers do not for" in seen.sentence
    assert "scheduler (pid " in seen.sentence
    assert "sleeps. `server stack` shows where each process is." in seen.sentence
    web.answers.set()
    until(lambda: reader.server().phase is Phase.READY, 20, every=0.1)
    assert set(web.asked) == {"/health", "/server_info"}  # nothing that computes
    stopping.stop(job, grace=1)


def test_a_scheduler_that_computes_its_first_batch_for_long_is_not_stuck(home: Path, release: Path, web: Web) -> None:
    job = served(home, release, web, "[0 for _ in iter(int, 1)]")
    reader = StatusReader(home)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert reader.server().phase is Phase.READY  # nor busy: its last batch is a minute old
        time.sleep(0.1)
    assert "/server_info" in web.asked
    stopping.stop(job, grace=1)


def test_silence_of_a_server_that_never_computed_proves_nothing(home: Path, release: Path, web: Web) -> None:
    job = served(home, release, web, "time.sleep(600)", batch=False)
    reader = StatusReader(home)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert reader.server().phase is Phase.READY
        time.sleep(0.1)
    assert web.asked.count("/server_info") == 1  # once, and then for two minutes not again
    stopping.stop(job, grace=1)


@pytest.mark.parametrize(
    ("phase", "line", "silent"),
    [
        (Phase.WARMING_UP, "[{stamp}] Prefill batch", 60.0),  # requests are logged in between: the stamp counts
        (Phase.READY, "[{stamp} TP0] Decode batch", 60.0),
        (Phase.LOADING_WEIGHTS, "[{stamp}] Load weight begin.", 0.0),  # a bar has no stamp: the file's time counts
        (Phase.WARMING_UP, "no stamp", 0.0),
    ],
)
def test_how_long_a_log_is_silent(home: Path, release: Path, web: Web, phase: Phase, line: str, silent: float) -> None:
    job = served(home, release, web, "time.sleep(600)")
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - 60))
    reader = signs.SignReader(job, ServerSpec(model="m", python="p"))
    job.log_path.touch()
    assert abs(reader.silent_for(ServerLog(phase=phase, last_line=line.format(stamp=stamp))) - silent) < 30
    other_zone = signs.SignReader(job, ServerSpec(model="m", python="p", env={"TZ": "Asia/Tokyo"}))
    assert other_zone.silent_for(ServerLog(phase=phase, last_line=line.format(stamp=stamp))) < 30
    stopping.stop(job, grace=1)


def test_a_ready_server_that_says_nothing_for_days_is_not_watched_closely() -> None:
    """Watching takes a moment, which every look of every console would wait for."""
    days = 3 * 86_400.0
    assert not stuck.due(Phase.READY, stuck.Signs(silent_for=days))
    assert stuck.due(Phase.READY, stuck.Signs(silent_for=days, deaf_for=1.0))
    assert stuck.due(Phase.LOADING_WEIGHTS, stuck.Signs(silent_for=days))
