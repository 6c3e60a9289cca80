"""A server that asks for a key comes back with another one. The server is the stand-in; its job and the extraction are real."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.job import jobs as boxjobs
from eagle3_remote.job import stopping
from eagle3_remote.job.secretfile import Secrets
from eagle3_remote.protocol import ExtractState
from tests.box.client import make_release, until
from tests.extract import jobs
from tests.extract.standin import StandIn, standin
from tests.extract.test_faults import IDS, holds, spec_of


@contextlib.contextmanager
def server_job(home: Path, release: Path, server: StandIn, key: str) -> Iterator[None]:
    """A job of ours that is said to serve where the stand-in answers, which asks for its key."""
    server.key = key
    job = boxjobs.start(
        home,
        release,
        boxjobs.new_id("server"),
        [sys.executable, "-c", "import time; time.sleep(600)"],
        {},
        {"host": "127.0.0.1", "port": server.http.server_port},
        secrets=Secrets({}, {"--api-key": key}),
    )
    try:
        until(lambda: boxjobs.state_of(job) is boxjobs.JobState.RUNNING)
        yield
    finally:
        stopping.stop(job, grace=5)


def test_an_extraction_goes_on_with_the_new_key(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, release = tmp_path / "home", make_release(tmp_path / "release")
    monkeypatch.setenv("EAGLE3_HOME", str(home))
    with standin(tmp_path) as server, contextlib.ExitStack() as first:
        first.enter_context(server_job(home, release, server, "the-first-key"))

        def behave(ids: list[int], attempt: int) -> str:
            if ids[0] == 6 and attempt == 1:
                server.down = True
                return "drop"
            return "good"

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=20))
        with jobs.running(python, run_dir) as process:
            jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            first.close()
            with server_job(home, release, server, "another-key"):
                server.down = False
                assert process.wait(60) == 0, jobs.status(run_dir).sentence
        holds(tmp_path / "out", IDS)
