"""A removal on the box is followed from its start to its end, by the real agent and a real job."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from eagle3_console.controller import SessionController
from eagle3_console.events import WorkSeen
from eagle3_console.link.errors import LoginRefused
from eagle3_console.link.local import LocalLink
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_console.state import initial, reduce
from eagle3_console.watch import Watcher
from eagle3_console.work_watch import WorkWatch
from eagle3_remote.protocol import JobStatus, ReclaimSpec, SpaceQuery, SpaceReport, WorkState
from tests.box.test_space import dataset_at


async def dial() -> LocalLink:
    return LocalLink()


async def test_a_removal_is_on_the_screen_while_it_runs_and_an_event_when_it_ends(tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden", rows=5)
    session = Session(dial, "local", box_home=str(tmp_path / "box"))
    seen: list[WorkSeen] = []
    watcher = Watcher(session, lambda event: seen.append(event) if isinstance(event, WorkSeen) else None)
    await watcher.connect()
    work = WorkWatch(watcher)
    await work.look()
    assert seen == []
    await watcher.call("space", SpaceQuery((str(tmp_path),)), SpaceReport)
    states = root / "hidden_states"
    for row in range(5, 20_000):
        os.link(states / "hs_0.safetensors", states / f"hs_{row}.safetensors")
    await watcher.call("space", SpaceQuery((str(tmp_path),)), SpaceReport)
    job = await session.call("space.reclaim", ReclaimSpec(str(root), "hidden"), JobStatus)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGSTOP)
    await work.look()
    (running,) = seen[-1].work
    assert running.state is WorkState.RUNNING
    state = reduce(initial(0.0, "local"), seen[-1])
    assert state.work == (running,)
    assert state.alerts == ()
    os.kill(job.pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        while seen[-1].work[0].state is WorkState.RUNNING:
            await work.look()
            await asyncio.sleep(0.05)
    state = reduce(state, seen[-1])
    assert state.work == ()
    (alert,) = state.alerts
    assert alert.level == "info"
    assert alert.text.startswith("reclaim finished: ")
    async with asyncio.timeout(60):
        count = 0
        while count != len(seen):  # the process ends a moment after its last word
            count = len(seen)
            await work.look()
    assert reduce(state, seen[-1]).alerts == (alert,)
    await session.drop()


class Refusing(Session):
    """A box that refuses the login when it is first asked for its jobs, and then no more."""

    asked = 0

    async def call_list(self, *words: Any, **more: Any) -> list[Any]:
        self.asked += 1
        if self.asked == 1:
            raise LoginRefused("not you")
        return await super().call_list(*words, **more)


async def test_the_watching_goes_on_when_the_box_answers_again(tmp_path: Path) -> None:
    session = Refusing(dial, "local", box_home=str(tmp_path / "box"))
    events = SessionController(session, Plan()).events()
    async with asyncio.timeout(60):
        async for _ in events:
            if session.asked > 1:
                break
    await events.aclose()  # type: ignore[attr-defined]
