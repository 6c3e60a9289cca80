"""A whole day with a drop every few minutes: the clock that the back-off sees runs ahead, the sockets are real.

The box's release is a stand-in that answers the greeting alone: what is tried here is the link, some two hundred times.
"""

from __future__ import annotations

import asyncio
import getpass
import random
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from eagle3_console import release
from eagle3_console.backoff import CEILING
from eagle3_console.clock import Clock, Moment
from eagle3_console.events import Connection, ConnectionChanged, Event
from eagle3_console.link.base import Link
from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.target import parse
from eagle3_console.session import Session
from eagle3_console.watch import Patience, Watcher
from eagle3_remote.protocol import PROTOCOL_VERSION, Hello
from tests.link.conftest import options_for
from tests.link.inprocess import inprocess_server
from tests.link.proxy import Proxy
from tests.link.sshd import SshdBox
from tests.link.watched import agents

DAY = 24 * 3600.0
ASK = {"protocol": PROTOCOL_VERSION}
AGENT = f"""
import json, os, sys
def main():
    hello = dict(protocol={PROTOCOL_VERSION}, version="", boot_id="", pid=os.getpid(), user="", host="", home="", python="/p 3", clock=0.0)
    say = lambda message: print(json.dumps(message), flush=True)
    say(dict(method="ready"))
    asked = "".join(sys.argv[2:3]).splitlines()
    for line in asked:
        say(dict(id=json.loads(line)["id"], result=hello))
    for line in sys.stdin:
        say(dict(id=json.loads(line)["id"], result=hello))
"""


class Day(Clock):
    """Time passes when somebody waits for it, or is said to have passed; nobody really waits."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.asleep = 0.0
        self.outage_ends = 0.0
        self.at_its_end: Callable[[], Coroutine[object, object, None]] | None = None

    def now(self) -> Moment:
        return Moment(1.8e9 + self.passed + self.asleep, 1000.0 + self.passed)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        self.passed += seconds
        if self.passed >= self.outage_ends and self.at_its_end is not None:
            ending, self.at_its_end = self.at_its_end, None
            await ending()
        await asyncio.sleep(0.002)


def stand_in(home: Path) -> None:
    """Put the stand-in where the release would be."""
    folder = home / "releases" / release.build().sha256
    (folder / "eagle3_remote").mkdir(parents=True)
    (folder / "eagle3_remote" / "__init__.py").touch()
    (folder / "eagle3_remote" / "agent.py").write_text(AGENT)
    (folder / ".complete").touch()


@pytest.mark.parametrize("server", ["openssh", "asyncssh"])
async def test_a_day_of_drops(server: str, box: SshdBox, tmp_path: Path) -> None:
    home = tmp_path / "home"
    stand_in(home)
    if server == "openssh":
        await _day(box.port, box, home, tmp_path, every=(1200, 2400))
    else:
        async with inprocess_server() as port:
            await _day(port, box, home, tmp_path, every=(180, 700))


async def _day(port: int, box: SshdBox, home: Path, tmp_path: Path, every: tuple[float, float]) -> None:
    chance, clock, connections, dials = random.Random(5), Day(), list[Connection](), 0
    options = options_for(box, accept_new=True, known_hosts=tmp_path / "hosts")

    def take(event: Event) -> None:
        if isinstance(event, ConnectionChanged):
            connections.append(event.connection)

    async with Proxy("127.0.0.1", port) as proxy:

        async def dial() -> Link:
            nonlocal dials
            dials += 1
            return await connect(parse(f"{getpass.getuser()}@127.0.0.1:{proxy.port}"), options, RefusingPrompter())

        session = Session(dial, "the box", box_home=str(home), python="/usr/bin/python3")
        watcher = Watcher(session, take, patience=Patience(look=5.0, probe=0.3), clock=clock)
        await watcher.connect()
        await watcher.call("hello", ASK, Hello)
        drops, outages, nights = 0, 0, 0
        while clock.passed < DAY:
            clock.passed += chance.uniform(*every)
            drops += 1
            kind = chance.random()
            if kind < 0.1:  # the laptop sleeps, and the network forgets it
                nights += 1
                proxy.freeze()
                clock.asleep += chance.uniform(60, 4 * 3600)
            elif kind < 0.3:  # the box is away for a while
                outages += 1
                await proxy.refuse()
                proxy.reset()
                clock.outage_ends = clock.passed + chance.uniform(1, 900)
                clock.at_its_end = proxy.accept
            else:
                proxy.reset()
            await watcher.call("hello", ASK, Hello)
            assert connections[-1].word == "connected"

        assert drops > DAY / every[1]
        assert min(outages, nights) > 0
        words = [connection.word for connection in connections]
        assert words.count("connected") == drops + 1
        assert words.count("refused") == 0
        waits = [one.next_try - one.since for one in connections if one.next_try is not None]
        assert max(waits) > CEILING * 0.8
        assert max(waits) <= CEILING * 1.2
        assert dials == words.count("connecting")
        assert session.connected
        await session.drop()
        async with asyncio.timeout(60):
            while agents(home):  # noqa: ASYNC110 (processes that end by themselves)
                await asyncio.sleep(0.05)
