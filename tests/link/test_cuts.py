"""A link that is cut again and again at random: what is shown is whole, and nothing is left of what broke."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import getpass
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagle3_console.link.base import Link
from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.target import parse
from eagle3_console.session import Session
from eagle3_console.watch import Patience, Watcher
from tests.link.conftest import options_for
from tests.link.inprocess import inprocess_server
from tests.link.proxy import Proxy
from tests.link.sshd import SshdBox
from tests.link.watched import QuickClock, Seen, agents, busy_box, descriptors, resident

CUTS = {"openssh": 100, "asyncssh": 30}
SPEED = 300.0
MEMORY = 48 << 20
"""Bytes by which the process may grow between the first fifth of the cuts and the last."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead link is seen in half a second instead of in twenty."""
    monkeypatch.setattr("eagle3_console.link.connect.KEEPALIVE_INTERVAL", 0.25)
    monkeypatch.setattr("eagle3_console.link.connect.KEEPALIVE_COUNT", 1)
    monkeypatch.setattr("eagle3_console.link.connect.LOGIN_TIMEOUT", 2.0)


@pytest.fixture(params=sorted(CUTS))
async def way(request: pytest.FixtureRequest, box: SshdBox) -> AsyncIterator[tuple[Proxy, str, int]]:
    """A proxy in front of a server, who logs in, and how often it is cut."""
    async with contextlib.AsyncExitStack() as stack:
        port = box.port if request.param == "openssh" else await stack.enter_async_context(inprocess_server())
        proxy = await stack.enter_async_context(Proxy("127.0.0.1", port))
        yield proxy, getpass.getuser(), CUTS[request.param]


async def cut(proxy: Proxy, box: SshdBox, chance: random.Random) -> None:
    """One fault of a random kind. All but the delay and the dribble cost the connection."""
    kind = chance.choice(
        ("reset", "reset", "after", "after", "freeze", "up", "down", "refuse", "drop", "dribble", "slow")
    )
    if kind == "reset":
        proxy.reset()
    elif kind == "after":
        proxy.cut_after(chance.randrange(3000))
    elif kind == "freeze":
        proxy.freeze()
    elif kind in ("up", "down"):
        proxy.half_open("up" if kind == "up" else "down")
    elif kind == "drop":
        box.drop()
    elif kind == "refuse":
        await proxy.refuse()
        proxy.reset()
        await asyncio.sleep(chance.uniform(0, 0.3))
        await proxy.accept()
    elif kind == "dribble":
        proxy.dribble = True
        await asyncio.sleep(chance.uniform(0, 0.1))
        proxy.reset()
        proxy.dribble = False
    else:
        proxy.delay = 0.02
        await asyncio.sleep(chance.uniform(0, 0.2))
        proxy.reset()
        proxy.delay = 0.0


async def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait for what other processes and tasks make true."""
    try:
        async with asyncio.timeout(40):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"did not come true: {what()}")


async def test_random_cuts(way: tuple[Proxy, str, int], box: SshdBox, tmp_path: Path) -> None:
    proxy, user, cuts = way
    home = tmp_path / "box home"
    options = options_for(box, accept_new=True, known_hosts=tmp_path / "hosts", connect_timeout=2.0)

    async def dial() -> Link:
        return await connect(parse(f"{user}@127.0.0.1:{proxy.port}"), options, RefusingPrompter())

    seen, chance = Seen(), random.Random(7)
    session = Session(dial, "the box", box_home=str(home))
    patience = Patience(look=0.05, quiet=10, probe=0.5 * SPEED, log=10)
    watcher = Watcher(session, seen.take, log="whole", patience=patience, clock=QuickClock(SPEED))

    with busy_box(home, tmp_path / "scratch") as job:
        await watcher.connect()  # what is loaded once is loaded before the counting
        await watcher.greet()
        await session.drop()
        await until(lambda: not agents(home), lambda: "the first agent ends")
        tasks, files, threads = asyncio.all_tasks(), descriptors(), _threads()

        watching = asyncio.create_task(watcher.run(0.02), name="watch")
        memory = 0
        for number in range(cuts):
            if number == cuts // 5:
                gc.collect()
                memory = resident()
            if number % 2:  # half of them meet a link that works, half one that is being made
                await _snapshot(seen, watching, 1)
            await until_either(watching, chance.uniform(0, 0.3))
            await cut(proxy, box, chance)
        await _snapshot(seen, watching, 3)
        gc.collect()
        assert resident() - memory < MEMORY
        await _ended(watching)
        await watcher.pull()
        await session.drop()

        assert seen.restarts == 1
        assert seen.log_size > 10_000
        assert seen.shows(job.log_path)
        assert seen.words.count("connected") > cuts // 4
        await until(lambda: not agents(home), lambda: "no agent is left on the box")
        await until(lambda: proxy.standing == 0, lambda: "no connection is left")
        await until(lambda: asyncio.all_tasks() <= tasks, lambda: f"no task is left: {asyncio.all_tasks() - tasks}")
        gc.collect()
        await until(lambda: descriptors() <= files, lambda: f"no file is left open: {descriptors()} of {files}")
        assert _threads() <= threads


async def _snapshot(seen: Seen, watching: asyncio.Task[None], more: int) -> None:
    """Wait for so many more snapshots."""
    wanted = seen.snapshots + more
    await until(lambda: seen.snapshots >= wanted or watching.done(), lambda: f"the link stands again: {seen.said}")


async def until_either(watching: asyncio.Task[None], seconds: float) -> None:
    """Let it run for so long; an error of the watcher is this test's."""
    await asyncio.wait({watching}, timeout=seconds)
    if watching.done():
        watching.result()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
