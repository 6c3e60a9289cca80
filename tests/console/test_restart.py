"""What a restart ends before it starts anew, against the real agent on this machine. Stand-in processes play the server;
the steps that need a real SGLang are left out."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_console import flow as flows
from eagle3_console.errors import ServerFailed, ServerStopped
from eagle3_console.events import Event, Narration, StepChanged
from eagle3_console.link.local import LocalLink
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import Facts, JobState, JobStatus, LaunchPlan, ServerSpec, StopReport, encode
from tests.box.client import make_release, until

FORKS = "import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"


async def dial() -> LocalLink:
    return LocalLink()


class Restart(flows.Flow):
    """A flow whose box is always fit, and which notes the start instead of making it."""

    def __init__(self, home: Path) -> None:
        self.said: list[str] = []
        self.steps: list[str] = []
        self.started: list[list[str]] = []
        self._home = home
        super().__init__(Session(dial, "local", box_home=str(home)), Plan(model="/m"), self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, Narration):
            self.said.append(event.text)
        if isinstance(event, StepChanged):
            self.steps.append(event.status)

    async def doctor(self) -> Facts:
        return Facts("box", "me", "Linux", "x86_64", "3.11", 0.0, "boot")

    async def server_plan(self, python: str, *, radix_cache: bool = False) -> LaunchPlan:
        return LaunchPlan((), {}, "0.5.9")

    async def server_start(self, python: str, *, radix_cache: bool = False) -> JobStatus:
        living = [stat.name for job in jobs.everything(self._home, "server") for stat in stopping.members(job)]
        self.started.append(living)
        job = jobs.newest(self._home, "server")
        assert job is not None
        return jobs.status_of(job)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(flows.judge, "choose_python", lambda *_: sys.executable)
    yield tmp_path / "box"
    for job in jobs.everything(tmp_path / "box"):
        stopping.stop(job, grace=0.2, term=0.2)


def server(home: Path, code: str) -> jobs.Job:
    release = make_release(home.parent / "release")
    line = [sys.executable, "-c", code]
    message = encode(ServerSpec(model="/m", python=sys.executable))
    return jobs.start(home, release, jobs.new_id("server"), line, {}, message, facts={"dump_dir": ""})


async def restart(flow: Restart) -> None:
    await flow.watcher.connect()
    try:
        await flow.server_restart()
    finally:
        await flow.session.drop()


async def test_what_a_server_that_crashed_left_running_is_ended_before_the_start(home: Path) -> None:
    job = server(home, FORKS + "sys.exit(3)")
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    assert stopping.members(job)
    flow = Restart(home)
    await restart(flow)
    assert flow.started == [[]]


async def test_after_a_server_that_ended_by_itself_nothing_is_stopped(home: Path) -> None:
    job = server(home, "")
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    flow = Restart(home)
    await restart(flow)
    assert flow.started == [[]]
    assert "stopping the server" not in flow.said


@pytest.mark.parametrize(("how", "error"), [("stopped", ServerStopped), ("killed", ServerFailed)])
async def test_a_server_that_somebody_stops_while_it_comes_up_has_not_failed(
    home: Path, how: str, error: type[ServerFailed]
) -> None:
    job = server(home, "import time; time.sleep(600)")
    flow = Restart(home)
    await flow.watcher.connect()
    try:
        waits = asyncio.create_task(flow.server_wait(job.id))
        await asyncio.to_thread(until, lambda: jobs.state_of(job) is JobState.RUNNING)
        if how == "stopped":
            await flow.session.call("server.stop", {"job": job.id}, StopReport, key="ab" * 8)
        else:
            os.killpg(jobs.status_of(job).pid or 0, signal.SIGKILL)
        with pytest.raises(ServerFailed) as ended:
            await asyncio.wait_for(waits, 60)
    finally:
        await flow.session.drop()
    assert type(ended.value) is error
    assert flow.steps[-1] == ("todo" if how == "stopped" else "failed")


async def test_beside_a_server_that_cannot_be_ended_none_is_started(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(home, "import time; time.sleep(600)")
    flow = Restart(home)
    call = flow.session.call

    async def stuck(method: str, params: Any, kind: Any, wait: float = 60.0, key: str = "") -> Any:
        if method != "server.stop":
            return await call(method, params, kind, wait, key)
        return StopReport("server-x", False, "Job server-x did not end: pid 7 (python) still lives.", ("pid 7",))

    monkeypatch.setattr(flow.session, "call", stuck)
    with pytest.raises(ServerFailed, match=r"pid 7 \(python\) still lives"):
        await restart(flow)
    assert flow.started == []
