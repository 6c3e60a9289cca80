"""The connection's states over a real sshd: silent, asleep, refused, hurried; and that what is looked at never runs away."""

from __future__ import annotations

import asyncio
import getpass
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagle3_console.clock import Clock, Moment
from eagle3_console.events import Connection, ConnectionChanged, Event
from eagle3_console.link.base import Link
from eagle3_console.link.connect import connect
from eagle3_console.link.errors import HostKeyChanged, LoginRefused
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions
from eagle3_console.link.target import parse
from eagle3_console.session import Session
from eagle3_console.watch import Patience, Watcher
from eagle3_remote.protocol import PROTOCOL_VERSION, Hello
from tests.link.conftest import options_for
from tests.link.proxy import Proxy
from tests.link.sshd import SshdBox, new_key

PATIENT = Patience(look=0.05, quiet=1000, probe=0.5)
ASK = {"protocol": PROTOCOL_VERSION}


class Laptop(Clock):
    """Real clocks of a machine that can be put to sleep, and that waits only until it is told to hurry."""

    def __init__(self) -> None:
        self.asleep = 0.0
        self.wakes_only_on_event = False

    def now(self) -> Moment:
        real = super().now()
        return Moment(real.wall + self.asleep, real.monotonic)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        await (event.wait() if self.wakes_only_on_event else super().wait(event, seconds))


class Desk:
    """A watcher whose way to the box leads through the proxy."""

    def __init__(self, box: SshdBox, proxy: Proxy, folder: Path, patience: Patience = PATIENT) -> None:
        self.proxy = proxy
        self.options: SshOptions = options_for(box, accept_new=True, known_hosts=folder / "hosts")
        self.dialled = 0
        self.connections: list[Connection] = []
        self.clock = Laptop()
        self.session = Session(self._dial, "the box", box_home=str(folder / "home"))
        self.watcher = Watcher(self.session, self._take, patience=patience, clock=self.clock)

    async def _dial(self) -> Link:
        self.dialled += 1
        target = parse(f"{getpass.getuser()}@127.0.0.1:{self.proxy.port}")
        return await connect(target, self.options, RefusingPrompter())

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionChanged):
            self.connections.append(event.connection)

    @property
    def words(self) -> list[str]:
        return [connection.word for connection in self.connections]

    async def hello(self) -> Hello:
        return await self.watcher.call("hello", ASK, Hello)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 (the watcher's own tasks make it true)
                await asyncio.sleep(0.01)


@pytest.fixture
async def desk(box: SshdBox, tmp_path: Path) -> AsyncIterator[Desk]:
    """Connected and greeted."""
    async with Proxy(box.host, box.port) as proxy:
        one = Desk(box, proxy, tmp_path)
        await one.watcher.connect()
        await one.hello()
        yield one
        await one.session.drop()


async def test_after_a_sleep_a_dead_link_is_dialled_again_at_once(desk: Desk) -> None:
    desk.proxy.freeze()
    desk.clock.asleep = 3600
    await desk.hello()  # the keepalive would need twenty seconds, the answer sixty
    assert desk.words[-4:] == ["lost", "connecting", "attaching", "connected"]
    assert "does not answer" in desk.connections[-4].sentence
    assert desk.dialled == 2


async def test_a_sleep_in_the_middle_of_a_call(desk: Desk) -> None:
    desk.proxy.freeze()
    asking = asyncio.create_task(desk.hello())
    await asyncio.sleep(0.2)
    assert desk.words[-1] == "connected"
    desk.clock.asleep = 3600
    await asking
    assert desk.dialled == 2


async def test_after_a_sleep_a_link_that_stands_stays(desk: Desk) -> None:
    desk.clock.asleep = 3600
    await desk.hello()
    assert desk.dialled == 1
    assert desk.words == ["connecting", "connected"]


async def test_whoever_doubts_a_link_gets_another(desk: Desk) -> None:
    desk.proxy.freeze()
    asking = asyncio.create_task(desk.hello())
    await asyncio.sleep(0.2)
    desk.watcher.reconnect_now()
    await asking
    assert desk.dialled == 2


async def test_nobody_who_hurries_waits_for_the_next_try(desk: Desk) -> None:
    await desk.proxy.refuse()
    desk.proxy.reset()
    desk.clock.wakes_only_on_event = True
    asking = asyncio.create_task(desk.hello())
    await desk.until(lambda: desk.words[-1] == "waiting")
    waiting = desk.connections[-1]
    assert waiting.next_try is not None
    assert waiting.next_try > waiting.since
    assert "trying again at " in waiting.sentence
    assert "(try 2)" in waiting.sentence
    await desk.proxy.accept()
    desk.watcher.reconnect_now()
    await asking
    assert desk.words[-3:] == ["connecting", "attaching", "connected"]
    assert desk.connections[-1].next_try is None


async def test_a_wait_ends_with_a_sleep(desk: Desk) -> None:
    await desk.proxy.refuse()
    desk.proxy.reset()
    asking = asyncio.create_task(desk.hello())
    await desk.until(lambda: "(try 5)" in desk.connections[-1].sentence and desk.words[-1] == "waiting")
    await desk.proxy.accept()
    desk.clock.asleep = 3600
    await asking
    assert not any("(try 6)" in connection.sentence for connection in desk.connections)


async def test_a_dial_that_hangs_is_begun_anew_by_who_hurries(desk: Desk) -> None:
    desk.proxy.swallow = True
    desk.proxy.reset()
    before = desk.proxy.accepted
    asking = asyncio.create_task(desk.hello())
    await desk.until(lambda: desk.proxy.accepted > before)
    desk.proxy.swallow = False
    desk.watcher.reconnect_now()
    await asking
    assert desk.dialled == 3
    assert "waiting" not in desk.words


async def test_silence_is_shown_before_the_link_counts_as_lost(box: SshdBox, tmp_path: Path) -> None:
    async with Proxy(box.host, box.port) as proxy:
        desk = Desk(box, proxy, tmp_path, Patience(look=0.05, quiet=0.3, probe=0.2))
        await desk.watcher.connect()
        await desk.hello()
        proxy.freeze()
        asking = asyncio.create_task(desk.hello())
        await desk.until(lambda: desk.words[-1] == "silent")
        assert not desk.connections[-1].live
        proxy.thaw()
        await asking
        assert desk.words[-2:] == ["silent", "connected"]
        assert desk.dialled == 1
        await desk.session.drop()


async def test_a_refused_login_is_not_tried_again(desk: Desk, tmp_path: Path) -> None:
    desk.options = SshOptions(
        config_files=(), identity_files=(new_key(tmp_path / "other"),), known_hosts=tmp_path / "hosts"
    )
    desk.proxy.reset()
    with pytest.raises(LoginRefused):
        await desk.hello()
    assert desk.words[-1] == "refused"
    assert "refused the login" in desk.connections[-1].sentence
    assert desk.dialled == 2
    assert not desk.session.connected


async def test_a_changed_host_key_is_not_tried_again(desk: Desk, tmp_path: Path) -> None:
    key = new_key(tmp_path / "imposter").with_suffix(".pub").read_text().split()
    (tmp_path / "hosts").write_text(f"[127.0.0.1]:{desk.proxy.port} {key[0]} {key[1]}\n")
    desk.proxy.reset()
    with pytest.raises(HostKeyChanged):
        await desk.hello()
    assert (desk.words[-1], desk.dialled) == ("refused", 2)


async def test_a_person_may_try_again_what_was_refused(desk: Desk, tmp_path: Path) -> None:
    good = desk.options
    desk.options = SshOptions(
        config_files=(), identity_files=(new_key(tmp_path / "other"),), known_hosts=tmp_path / "hosts"
    )
    desk.proxy.reset()
    with pytest.raises(LoginRefused):
        await desk.hello()
    desk.options = good
    await desk.hello()
    assert desk.words[-1] == "connected"


async def test_a_link_that_breaks_at_once_is_dialled_ever_more_slowly(desk: Desk) -> None:
    """An agent that dies of every call must not make the console log in several times a second."""
    desk.clock.wakes_only_on_event = True  # each wait is ended by hand
    for _ in range(5):
        desk.proxy.reset()
        asking = asyncio.create_task(desk.hello())
        lost = len(desk.words)
        await desk.until(lambda lost=lost: {"waiting", "connected"} & set(desk.words[lost:]) != set())  # type: ignore[misc]
        desk.watcher.reconnect_now()
        await asking
    waits = [one.next_try - one.since for one in desk.connections if one.next_try is not None]
    assert len(waits) == 5
    assert waits[0] < 0.1
    assert all(later > before for before, later in itertools.pairwise(waits))


async def test_an_agent_that_ended_is_started_again_on_the_same_link(desk: Desk) -> None:
    hello = await desk.session.attach()
    os.kill(hello.pid, signal.SIGKILL)
    await desk.until(lambda: desk.session._agent is not None and desk.session._agent.ended)
    assert (await desk.session.call("hello", ASK, Hello)).pid != hello.pid
    assert desk.dialled == 1
