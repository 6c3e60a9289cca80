"""One box: its link, the release deployed on it, and the agent that answers from there."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import getpass
import json
import os
import secrets
import shlex
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from eagle3_console import release, starting
from eagle3_console.agent import AgentClient
from eagle3_console.errors import AgentFault, AgentSilent, BoxNotFit, BoxRefused, ConsoleError
from eagle3_console.link.base import Completed, Link
from eagle3_console.link.errors import LinkError, LinkLost
from eagle3_remote import protocol

T = TypeVar("T")
Dial = Callable[[], Awaitable[Link]]

_BOOTSTRAP_NEEDS = 10
_TIDY_WAIT = 10.0
"""Seconds that removing unused releases may hold up the first answer."""


@dataclasses.dataclass(frozen=True)
class Deployment:
    """What a deploy did."""

    path: str
    """The release directory on the box."""
    sha256: str
    uploaded: int
    """Bytes sent; 0 when the box had this release already."""


class Session:
    """Everything the console does on one box goes through here.

    Args:
        dial: makes a connected link; called again after the link was lost.
        where: what a person calls the box.
        box_home: where releases and runs lie on the box; empty: ``~/.eagle3-console``.
        python: a Python on the box to try first.
        name: who this console is to the others; empty: ``user@machine``.
        again: how a shell names the box in a command; empty: as `where`.
        readonly: have the box refuse whatever would change something.
        take_over: steer though another console does, from the first change on.
    """

    def __init__(
        self,
        dial: Dial,
        where: str,
        *,
        box_home: str = "",
        python: str = "",
        name: str = "",
        again: str = "",
        readonly: bool = False,
        take_over: bool = False,
    ) -> None:
        self.where = where
        self.again = again or shlex.quote(where)
        self.readonly = readonly
        self._name = name or console_name()
        self._id = secrets.token_hex(8)
        self._take_over = take_over
        self._changed = False
        self._sent = False
        self._dial = dial
        self._box_home = box_home
        self._python = python
        self._found_python = ""
        self._link: Link | None = None
        self._agent: AgentClient | None = None
        self._attaching = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self.hello: protocol.Hello | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a link; it may have been lost without our knowing yet."""
        return self._link is not None

    @property
    def link(self) -> Link:
        """The connected link.

        Raises:
            LinkLost: there is none now.
        """
        if self._link is None:
            raise LinkLost(f"There is no link to {self.where} now.")
        return self._link

    async def connect(self) -> None:
        """Dial. Raises what the dialling raises (`eagle3_console.link.errors`)."""
        self.let_go()
        self._link = await self._dial()

    async def drop(self) -> None:
        """Forget the link and the agent, and see them closed. Jobs on the box go on."""
        self.let_go()
        if self._closing:
            await asyncio.wait(self._closing)

    def let_go(self) -> None:
        """Forget the link and the agent at once: a dead link takes seconds to close, which nobody who dials again waits for."""
        agent, self._agent = self._agent, None
        link, self._link = self._link, None
        if agent is not None or link is not None:
            closing = asyncio.create_task(_close(agent, link), name=f"close the link to {self.where}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def leave(self) -> None:
        """Let others steer, and drop the link."""
        if self._changed and self._agent is not None:
            with contextlib.suppress(LinkError, ConsoleError):
                await self._agent.call("steer.release", {}, str, wait=5)
        await self.drop()

    async def doctor(self, query: protocol.DoctorQuery) -> protocol.Facts:
        """What the box tells of itself and of the paths asked for. Leaves nothing on the box.

        Raises:
            BoxNotFit: no Python 3.10 or newer on the box.
            AgentFault: the doctor's answer makes no sense.
        """
        python = await self._python_for_us()
        source = release.script("doctor").encode()
        wish = json.dumps(protocol.encode(query))
        done = await self.link.run('exec "$1" -I - "$2"', argv=(python, wish), stdin=source, timeout=60)
        for line in reversed(done.stdout.splitlines()):
            if line.startswith(b"{"):
                return protocol.decode(protocol.Facts, json.loads(line))
        raise AgentFault(f"The doctor got no answer from {self.where}: {_tail(done)}")

    async def deploy(self) -> Deployment:
        """Put the release on the box, unless it is there already.

        Raises:
            BoxNotFit: no Python, or no place for the release; the box's own words are in the text.
        """
        python = await self._python_for_us()
        wanted = release.build()
        word, path = await self._bootstrap(python, wanted.sha256, b"")
        uploaded = 0
        if word == "need":
            word, path = await self._bootstrap(python, wanted.sha256, wanted.payload)
            uploaded = len(wanted.payload)
            self._sent = True
        if word not in ("have", "done"):
            raise BoxNotFit(f"The release cannot be put on {self.where}: {path}")
        return Deployment(path, wanted.sha256, uploaded)

    async def attach(self) -> protocol.Hello:
        """Start an agent, deployed where it is not there yet; a running one of this session is used again. Where a release
        was sent, those that nothing uses any more are removed."""
        await self._attach(None)
        assert self.hello is not None
        return self.hello

    async def _attach(self, first: tuple[str, Any] | None) -> bool:
        """As `attach`; whether the call `first` (method and parameters) went with the agent's start."""
        async with self._attaching:  # two callers at once share one agent
            if self._agent is not None and self.hello is not None:
                if not self._agent.ended:
                    return False
                ended, self._agent = self._agent, None  # it alone: where the link broke, the start says so
                await ended.close()
            if not await self._start("", first):
                deployed = await self.deploy()
                if not await self._start(deployed.path, first):
                    raise AgentFault(f"The release {deployed.path} was removed on {self.where} just now. Try again.")
            if self._sent and not self.readonly:
                self._sent = False
                assert self._agent is not None
                # Tidying is done by the next deploy as well; on a box of many processes and jobs it takes its time.
                with contextlib.suppress(AgentFault, AgentSilent, BoxRefused):
                    await self._agent.call("releases.clean", {}, list, wait=_TIDY_WAIT)
            return first is not None

    async def _start(self, release_path: str, first: tuple[str, Any] | None) -> bool:
        """Start the agent, with the greeting and the first request; false where there is no such release.

        Args:
            release_path: empty: where it usually lies.
        """
        who = {"console": self._name, "id": self._id, "readonly": self.readonly, "take_over": self._take_over}
        calls = [("hello", {"protocol": protocol.PROTOCOL_VERSION, **who}), *([first] if first is not None else [])]
        argv = starting.arguments(
            self._python,
            self._found_python,
            self._box_home,
            release_path,
            release.build().sha256,
            [starting.request(number, *call) for number, call in enumerate(calls, start=1)],
        )
        channel = await self.link.open(starting.START_AGENT, argv=argv)
        try:
            self._agent, self.hello = await AgentClient.start(channel, self.where, sent=len(calls))
        except LinkLost:
            status = await channel.wait()
            if status == protocol.NO_RELEASE:
                return False
            if status == starting.NO_PYTHON:
                raise self._no_python() from None
            raise
        self._found_python = self._found_python or self.hello.python.rpartition(" ")[0]
        return True

    async def call(self, method: str, params: Any, kind: type[T], wait: float = 60.0, key: str = "") -> T:
        """One call of the agent; see `AgentClient.call`.

        Args:
            key: of a call that changes the box: made again with the same key, it is done once.
        """
        # What changes something waits until the box has heard who we are.
        early = not key and method in starting.FIRST_CALLS
        sent = await self._attach((method, params) if early else None)
        assert self._agent is not None
        if sent:
            return await self._agent.answer(2, method, kind, wait)
        if key:
            self._changed = True
        answer = await self._agent.call(method, params, kind, wait, key)
        if key:
            self._take_over = False  # it was: a new agent of ours shall not do it again to whoever took over since
        return answer

    async def call_list(self, method: str, params: Any, kind: type[T], wait: float = 60.0) -> list[T]:
        """One call of the agent whose result is a list."""
        await self.attach()
        assert self._agent is not None
        return await self._agent.call_list(method, params, kind, wait)

    async def _python_for_us(self) -> str:
        if self._found_python:
            return self._found_python
        done = await self.link.run(starting.FIND_PYTHON, argv=(self._python,), timeout=30)
        for line in done.stdout.splitlines():
            if line.startswith(starting.PYTHON_MARK):
                self._found_python = line.removeprefix(starting.PYTHON_MARK).decode()
                return self._found_python
        if done.exit_status != starting.NO_PYTHON:
            raise AgentFault(f"Looking for a Python on {self.where} failed: {_tail(done)}")
        raise self._no_python()

    def _no_python(self) -> BoxNotFit:
        return BoxNotFit(
            f"No Python 3.10 or newer was found on {self.where}: looked at VIRTUAL_ENV, conda, PATH and the usual places. "
            "Name one with --python."
        )

    async def _bootstrap(self, python: str, sha256: str, payload: bytes) -> tuple[str, str]:
        """Run the bootstrap script; its last answer: ``have``, ``need`` or ``done`` and the path, or ``error`` and why."""
        source = release.script("bootstrap")
        framed = len(payload).to_bytes(8, "big") + payload if payload else b""
        done = await self.link.run(
            'exec "$1" -I -c "$2" "$3" "$4"', argv=(python, source, self._box_home, sha256), stdin=framed, timeout=120
        )
        lines = done.stdout.decode(errors="surrogateescape").splitlines()
        if done.exit_status not in (0, _BOOTSTRAP_NEEDS) or not lines:
            return "error", done.stderr.decode(errors="replace").strip() or _tail(done)
        word, _, path = lines[-1].partition(" ")
        return word, path


def console_name() -> str:
    """``user@machine`` of the person at this console."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname().partition('.')[0]}"


async def _close(agent: AgentClient | None, link: Link | None) -> None:
    try:
        if agent is not None:
            await agent.close()
    finally:
        if link is not None:
            await link.close()


def _tail(done: Completed) -> str:
    text = (done.stderr or done.stdout).decode(errors="replace").strip()
    return f"exit status {done.exit_status}, {text[-600:] or 'no output'}"
