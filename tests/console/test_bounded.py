"""What a box says, and what a slow screen leaves lying, takes no more than so much memory and time."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.agent import AgentClient
from eagle3_console.controller import SessionController
from eagle3_console.errors import AgentFault
from eagle3_console.events import Event, LogArrived, SnapshotArrived
from eagle3_console.link.local import LocalLink
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_console.watch import Watcher
from eagle3_remote import protocol
from eagle3_remote.protocol import LogChunk
from tests.console.test_agent_client import READY, Scripted, result, started
from tests.console.test_watch import home

__all__ = ["home"]


async def test_a_line_without_end_is_not_kept() -> None:
    channel = Scripted()
    client = await started(channel)
    asking = asyncio.create_task(client.call("hello", {}, protocol.Hello))
    for _ in range(3 * protocol.MAX_LINE_BYTES // 65536):
        channel.say(b"x" * 65536)
    with pytest.raises(AgentFault, match="no messages"):
        await asking
    assert client.ended
    await client.close()


@pytest.mark.parametrize(
    "line",
    [
        {"id": [], "result": 1},
        {"id": {}, "error": {}},
        {"id": True, "result": {}},
        {"id": 1.5},
        {"id": "2", "method": []},
    ],
    ids=str,
)
async def test_messages_of_another_shape_end_no_reader(line: dict[str, object]) -> None:
    channel = Scripted()
    client = await started(channel)
    channel.say(line)
    channel.replies = {"verify": result("good")}
    assert await client.call("verify", {}, str) == "good"
    await client.close()


@pytest.mark.parametrize("error", ["text", {"code": "x"}, None, [1]], ids=str)
async def test_an_error_of_another_shape_is_told(error: object) -> None:
    channel = Scripted(verify={"error": error})
    client = await started(channel)
    with pytest.raises(AgentFault, match="The agent failed"):
        await client.call("verify", {}, str)
    await client.close()


async def test_a_greeting_that_fails_leaves_no_agent() -> None:
    channel = Scripted(hello={"error": {"code": protocol.E_REFUSED, "message": "not you"}})
    channel.say(READY)
    before = asyncio.all_tasks()
    with pytest.raises(Exception, match="not you"):
        await AgentClient.start(channel, "box", wait=5)
    assert channel.closed
    assert asyncio.all_tasks() == before


class Growing(Session):
    """A box whose log grows by as much as is read of it."""

    async def call(self, method: str, params: Any, kind: type[Any], wait: float = 60.0, key: str = "") -> Any:
        answer = await super().call(method, params, kind, wait, key)
        if isinstance(answer, LogChunk) and answer.data:
            _append(Path(self._box_home), base64.b64decode(answer.data))
        return answer


def _append(home: Path, data: bytes) -> None:
    with next(home.glob("runs/*/out.log")).open("ab") as file:
        file.write(data)


async def _here() -> LocalLink:
    return LocalLink()


@pytest.mark.parametrize("log", ["tail", "whole"])
async def test_a_log_that_grows_while_it_is_read_does_not_hold_the_next_snapshot_up(home: Path, log: Any) -> None:
    events: list[Event] = []
    session = Growing(_here, "local", box_home=str(home))
    watcher = Watcher(session, events.append, log=log)
    await watcher.connect()
    for _ in range(3):
        snapshot = await watcher.pull()
        assert snapshot.server.job is not None
    await session.drop()
    arrived = [event for event in events if isinstance(event, LogArrived)]
    assert [event.offset for event in arrived[1:]] == [event.offset + len(event.data) for event in arrived[:-1]]
    assert sum(isinstance(event, SnapshotArrived) for event in events) == 3


async def test_a_screen_that_takes_nothing_gets_no_more(home: Path) -> None:
    session = Session(_here, "local", box_home=str(home))
    controller = SessionController(session, Plan())
    events: AsyncIterator[Event] = controller.events()
    async for event in events:
        if isinstance(event, SnapshotArrived):
            break
    await asyncio.sleep(3)  # six snapshots' time
    waiting = [event for event in controller._queue._queue if isinstance(event, SnapshotArrived)]  # type: ignore[attr-defined]
    assert len(waiting) <= 1
    await events.aclose()  # type: ignore[attr-defined]
