"""Watching a box from two places at once, against the real agent on this machine."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from eagle3_console.events import ConnectionChanged, Event, Greeted, LogArrived, LogRestarted
from eagle3_console.link.errors import LinkLost
from eagle3_console.link.local import LocalLink
from eagle3_console.session import Session
from eagle3_console.watch import Watcher
from eagle3_remote import protocol
from eagle3_remote.box import identity
from eagle3_remote.job import logcap

LINES = b"".join(b"line %d\n" % number for number in range(100_000))


class Dialler:
    """Dials this machine and counts."""

    def __init__(self) -> None:
        self.links: list[LocalLink] = []

    async def __call__(self) -> LocalLink:
        await asyncio.sleep(0.05)
        self.links.append(LocalLink())
        return self.links[-1]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A box folder with one ended server job and its log."""
    run_dir = tmp_path / "box" / "runs" / "server-20261129T000000-abcd"
    run_dir.mkdir(parents=True)
    message = protocol.encode(protocol.ServerSpec("/m", "/py"))
    spec = {"id": run_dir.name, "boot_id": identity.boot_id(), "created_at": time.time(), "message": message}
    (run_dir / "spec.json").write_text(json.dumps(spec))
    (run_dir / "rc").write_text("1\n")
    (run_dir / "out.log").write_bytes(LINES)
    return tmp_path / "box"


async def test_two_that_pull_at_once_get_every_line_of_the_log_once(home: Path) -> None:
    events: list[Event] = []
    session = Session(Dialler(), "local", box_home=str(home))
    watcher = Watcher(session, events.append, log="whole")
    await watcher.connect()
    await asyncio.gather(watcher.pull(), watcher.pull(), watcher.pull())
    await session.drop()
    assert sum(isinstance(event, LogRestarted) for event in events) == 1
    assert b"".join(event.data for event in events if isinstance(event, LogArrived)) == LINES


async def test_a_link_that_several_callers_lose_is_dialled_once(home: Path) -> None:
    dial = Dialler()
    session = Session(dial, "local", box_home=str(home))
    watcher = Watcher(session, lambda event: None)
    await watcher.connect()
    hello = await session.attach()
    await session.drop()
    with pytest.raises(LinkLost, match="no link to local"):
        await session.call("hello", {"protocol": protocol.PROTOCOL_VERSION}, protocol.Hello)
    asked = {"protocol": protocol.PROTOCOL_VERSION}
    answers = await asyncio.gather(*(watcher.call("hello", asked, protocol.Hello) for _ in range(3)))
    await session.drop()
    assert len(dial.links) == 2
    assert len({answer.pid for answer in answers} | {hello.pid}) == 2


async def test_a_link_lost_before_the_first_greeting_is_dialled_again(home: Path) -> None:
    dial, events = Dialler(), list[Event]()
    session = Session(dial, "local", box_home=str(home))
    watcher = Watcher(session, events.append)
    await watcher.connect()
    await dial.links[0].close()
    await watcher.greet()
    await session.drop()
    assert len(dial.links) == 2
    words = [event.connection.word for event in events if isinstance(event, ConnectionChanged)]
    assert words == ["connecting", "connected", "lost", "connecting", "attaching", "connected"]
    assert any(isinstance(event, Greeted) for event in events)


def outgrow(home: Path) -> None:
    """The server's log grows, and its middle is dropped."""
    (log,) = home.glob("runs/*/out.log")
    log.write_bytes(LINES * 9)
    assert logcap.trim(log, 1 << 20)


async def test_a_log_whose_middle_was_dropped_is_shown_once_with_its_gap(home: Path) -> None:
    events: list[Event] = []
    session = Session(Dialler(), "local", box_home=str(home))
    follower, late = Watcher(session, events.append, log="whole"), list[Event]()
    await follower.connect()
    await follower.pull()
    await asyncio.to_thread(outgrow, home)
    await follower.pull()
    await Watcher(session, late.append, log="whole").pull()
    await session.drop()
    for seen in (events, late):
        assert sum(isinstance(event, LogRestarted) for event in seen) == 1
    arrived = [event for event in events if isinstance(event, LogArrived)]
    said = next(event for event in arrived if b"[console]" in event.data)
    number = int(re.findall(rb"\[console\] ([\d,]+) bytes were dropped on the box", said.data)[0].replace(b",", b""))
    text = b"".join(event.data for event in arrived if event is not said)
    assert text.startswith(LINES)
    assert len(text) + number == len(LINES) * 9
    assert text.endswith(LINES[-(1 << 18) :])
    whole = b"".join(event.data for event in late if isinstance(event, LogArrived))
    assert b"[console]" not in whole
    assert whole.count(b"bytes of this log were dropped here") == 1
    assert whole.endswith(LINES[-(1 << 18) :])
