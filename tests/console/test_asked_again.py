"""Each wish that changes the box, said twice, and said again because its answer was lost with the link."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.errors import BoxRefused
from eagle3_console.events import ConnectionChanged, Event
from eagle3_console.flow import Flow
from eagle3_console.link.base import Link
from eagle3_console.link.local import LocalLink
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import CleanReport, CleanSpec, ControlReport, ExtractWish, JobState, StopReport
from tests.box.client import make_release, until

ENDS = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.7), sys.exit(0)))\nprint('up', flush=True)\nwhile True: time.sleep(0.1)"


async def local() -> Link:
    return LocalLink()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    yield folder
    for job in jobs.everything(folder):
        stopping.stop(job, grace=2)


class Console:
    """A flow on this machine, with what it said."""

    def __init__(self, home: Path, name: str = "alice@mbp", take_over: bool = False) -> None:
        self.events: list[Event] = []
        session = Session(local, "local", box_home=str(home), python=sys.executable, name=name, take_over=take_over)
        self.flow = Flow(session, Plan(), self.events.append)

    async def __aenter__(self) -> Flow:
        await self.flow.watcher.connect()
        return self.flow

    async def __aexit__(self, *_: object) -> None:
        await self.flow.session.leave()

    @property
    def lost(self) -> bool:
        return any(isinstance(event, ConnectionChanged) and event.connection.word == "lost" for event in self.events)


def extraction(home: Path, release: Path) -> jobs.Job:
    message = {"data": "d", "out": "/no/such/out"}
    job = jobs.start(home, release, jobs.new_id("extract"), [sys.executable, "-c", ENDS], {}, message)
    until(lambda: job.log_path.read_bytes() == b"up\n")
    return job


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return make_release(tmp_path / "release")


async def test_a_stop_whose_answer_is_lost_is_asked_for_again_and_answered_as_it_was(home: Path, release: Path) -> None:
    job = extraction(home, release)
    console = Console(home)
    async with console as flow:
        asked = asyncio.create_task(flow.change("extract.stop", {"job": None}, StopReport, wait=60))
        await asyncio.to_thread(until, lambda: job.stop_requested)
        await flow.session.drop()  # the link is lost between the request and its answer
        report = await asked
        assert console.lost
        assert (report.job, report.stopped) == (job.id, True)
        with pytest.raises(BoxRefused, match="there is nothing to stop"):
            await flow.change("extract.stop", {"job": None}, StopReport)


async def test_wishes_said_twice(home: Path, release: Path) -> None:
    job = extraction(home, release)
    async with Console(home) as flow:
        for _ in range(2):
            paused = await flow.change("extract.control", ExtractWish("pause"), ControlReport)
            assert paused.job == job.id
        for _ in range(2):
            await flow.change("extract.control", ExtractWish("resume"), ControlReport)
        assert (await flow.change("extract.stop", {"job": None}, StopReport)).stopped
        for method in ("extract.stop", "server.stop"):
            with pytest.raises(BoxRefused, match="nothing to stop"):
                await flow.change(method, {"job": None}, StopReport)
        for count in (0, 0):
            assert len((await flow.change("jobs.clean", CleanSpec(older_than=1e9, go=True), CleanReport)).jobs) == count


async def test_commands_of_two_people_one_after_the_other_are_no_nuisance(home: Path, release: Path) -> None:
    extraction(home, release)
    for name in ("alice@mbp", "bob@desk", "alice@mbp"):
        async with Console(home, name) as flow:
            await flow.change("extract.control", ExtractWish("pause"), ControlReport)


async def test_beside_a_screen_that_steers_a_command_is_refused_and_take_over_is_obeyed(
    home: Path, release: Path
) -> None:
    job = extraction(home, release)
    async with Console(home) as screen:
        await screen.change("extract.control", ExtractWish("pause"), ControlReport)
        async with Console(home, "bob@desk") as flow:
            with pytest.raises(BoxRefused, match=r"alice@mbp steers this box.*--take-over"):
                await flow.change("extract.stop", {"job": None}, StopReport)
            assert jobs.state_of(job) is JobState.RUNNING
        async with Console(home, "alice@mbp") as same_person:
            await same_person.change("extract.control", ExtractWish("resume"), ControlReport)
        seen = await screen.watcher.pull()
        assert seen.steering is not None
        assert seen.steering.mine
        async with Console(home, "bob@desk", take_over=True) as flow:
            await flow.change("extract.control", ExtractWish("pause"), ControlReport)
            seen = await screen.watcher.pull()
            assert seen.steering is not None
            assert (seen.steering.name, seen.steering.mine) == ("bob@desk", False)
            with pytest.raises(BoxRefused, match="bob@desk steers"):
                await screen.change("extract.control", ExtractWish("resume"), ControlReport)
        await screen.change("extract.control", ExtractWish("resume"), ControlReport)  # bob's command is over
