"""How an agent is started: by one command where all is there, and by what it takes where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eagle3_console import release
from eagle3_console.errors import BoxNotFit, BoxRefused, ConsoleError
from eagle3_console.events import ConnectionChanged, Event, Greeted, SnapshotArrived
from eagle3_console.link.base import Completed
from eagle3_console.link.local import LocalChannel, LocalLink
from eagle3_console.session import Session
from eagle3_console.watch import Watcher
from eagle3_remote import protocol


class Counting(LocalLink):
    """This machine; what is asked of it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
        self.asked.append("run")
        return await super().run(script, argv=argv, stdin=stdin, timeout=timeout)

    async def open(self, script: str, *, argv: Sequence[str] = ()) -> LocalChannel:
        if self.asked[-1:] != ["run"] or "requests=" in script:
            self.asked.append("open")
        channel = await super().open(script, argv=argv)
        write = channel.write

        async def counted(data: bytes) -> None:
            if b"jsonrpc" in data:
                self.asked.append("write")
            await write(data)

        channel.write = counted  # type: ignore[method-assign]
        return channel

    async def ping(self) -> float:
        self.asked.append("ping")
        return await super().ping()


def session(link: Counting, home: str, python: str = sys.executable) -> Session:
    async def dial() -> Counting:
        return link

    return Session(dial, "local", box_home=home, python=python)


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A box folder with an odd name, in which the release lies."""
    folder = str(tmp_path / "a box's $HOME")

    async def deploy() -> None:
        one = session(Counting(), folder)
        await one.connect()
        await one.deploy()
        await one.drop()

    asyncio.run(deploy())
    return folder


async def test_a_snapshot_is_there_after_one_command(home: str) -> None:
    link, events = Counting(), list[Event]()
    watcher = Watcher(session(link, home), events.append)
    await watcher.connect()
    snapshot = await watcher.pull()
    assert link.asked == ["open", "ping"]  # and only then is the latency asked for
    assert snapshot.server.phase is protocol.Phase.NOT_RUNNING
    await watcher.pull()
    assert link.asked == ["open", "ping", "write"]
    await watcher.greet()
    await watcher.session.drop()
    kinds = [type(event) for event in events if not isinstance(event, ConnectionChanged)]
    assert kinds == [Greeted, SnapshotArrived, SnapshotArrived]
    assert watcher.session.hello is not None
    assert watcher.session.hello.home == home


async def test_the_release_is_deployed_where_it_is_not(tmp_path: Path) -> None:
    link = Counting()
    one = session(link, str(tmp_path / "new"))
    await one.connect()
    snapshot = await one.call("snapshot", {"paths": {}}, protocol.Snapshot)
    assert snapshot.extract is None
    assert link.asked.count("open") == 2
    assert (tmp_path / "new" / "releases" / release.build().sha256 / ".complete").exists()
    await one.drop()


async def test_a_home_that_only_the_bootstrap_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    one = session(Counting(), "~/box")
    await one.connect()
    assert (await one.attach()).home == str(tmp_path / "box")
    await one.drop()


async def test_the_usual_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EAGLE3_HOME", raising=False)
    for asked in (2, 1):
        link = Counting()
        one = session(link, "")
        await one.connect()
        assert (await one.attach()).home == str(tmp_path / ".eagle3-console")
        assert link.asked.count("open") == asked
        await one.drop()


async def test_no_python_is_said(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle3_console.starting.START_AGENT", "exit 9")
    one = session(Counting(), home)
    await one.connect()
    with pytest.raises(BoxNotFit, match=r"No Python 3\.10 or newer was found on local"):
        await one.attach()
    await one.drop()


async def test_a_first_call_that_is_refused(home: str) -> None:
    one = session(Counting(), home)
    await one.connect()
    with pytest.raises(BoxRefused, match="There is no job x"):
        await one.call("jobs.show", {"job": "x", "lines": 1}, protocol.JobDetail)
    assert (await one.call("snapshot", {"paths": {}}, protocol.Snapshot)).extract is None
    await one.drop()


API_KEY, TOKEN = "key-of-the-server-4711", "hf_tokenofthemodel4711"
SERVER = protocol.ServerSpec(
    "/no/such/model", "/no/such/python", env={"HF_TOKEN": TOKEN}, extra_args=("--api-key", API_KEY)
)


@pytest.mark.parametrize("method", ["server.plan", "verify", "a call of tomorrow"])
async def test_no_first_call_that_may_hold_a_secret_stands_in_a_command_line(home: str, method: str) -> None:
    one = session(Counting(), home)
    await one.connect()
    with pytest.raises(ConsoleError):
        await one.call(method, SERVER, protocol.LaunchPlan)
    assert one.hello is not None
    assert f"{home}/releases" in "".join(command_lines(one.hello.pid))  # the agent lives still, and is looked at
    for line in command_lines():
        assert API_KEY not in line
        assert TOKEN not in line
    await one.drop()


def command_lines(pid: int | None = None) -> list[str]:
    """Those of all processes, as every user sees them; or of one."""
    lines = []
    for path in Path("/proc").glob(f"{pid or '[0-9]*'}/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().decode(errors="replace"))
    return lines
