"""Watching a box: snapshots and the server's log, pulled over and over, and the link dialled again when it is lost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

from eagle3_console import backoff, units
from eagle3_console.errors import AgentFault, AgentSilent
from eagle3_console.events import (
    CONNECTED,
    Connection,
    ConnectionChanged,
    Event,
    Greeted,
    LogArrived,
    LogRestarted,
    SnapshotArrived,
)
from eagle3_console.exit_codes import ExitCode
from eagle3_console.link.base import Link
from eagle3_console.link.errors import LinkError
from eagle3_console.session import Session
from eagle3_remote.protocol import Hello, JobStatus, LogChunk, Snapshot

T = TypeVar("T")
Emit = Callable[[Event], None]
Log: TypeAlias = Literal["none", "tail", "whole"]

_FIRST_LOOK = 256 * 1024
_LOG_CHUNK = 512 * 1024


class Watcher:
    """Turns one session into a stream of events. All that it shows is absolute, so a lost link costs nothing.

    Args:
        session: connected or not; `connect` does it.
        emit: takes each event, in order.
        paths: file systems to measure besides the box's own, label to path.
        log: how much of the server's log to emit: ``none``, ``tail`` (from its last 256 KiB on) or ``whole``.
    """

    def __init__(self, session: Session, emit: Emit, paths: dict[str, str] | None = None, log: Log = "none") -> None:
        self.session = session
        self.paths = paths if paths is not None else {}
        self.emit = emit
        self._log = log
        self._hello: Hello | None = None
        self._measured: Link | None = None
        self._log_job = ""
        self._log_inode = 0
        self._log_offset = 0
        self._hurry = asyncio.Event()
        self._pulling = asyncio.Lock()
        self._dialling = asyncio.Lock()
        self._dialled = 0

    async def connect(self) -> None:
        """Dial once, unless the session is connected.

        Raises:
            LinkError: as the dialling says.
        """
        if not self.session.connected:
            self._say("connecting", f"connecting to {self.session.where}")
            await self.session.connect()
        self._say(CONNECTED, "connected")

    async def greet(self) -> None:
        """Shake hands with the agent, deploying it where it is not there yet; a lost link is dialled again."""
        while True:
            dialled = self._dialled
            try:
                hello = await self.session.attach()
            except (LinkError, AgentSilent) as lost:
                await self._reconnect(lost, dialled)
            else:
                self._greeted(hello)
                return

    async def call(self, method: str, params: Any, kind: type[T], wait: float = 60.0, key: str = "") -> T:
        """A call that may be made twice without harm: when the link is lost it is made again on the next one.

        Args:
            key: of a call that changes the box, for the box to know it again; see `Session.call`.

        Raises:
            LinkError: login or host key refused while dialling again: not retried, a lockout would be our doing.
        """
        while True:
            dialled = self._dialled
            try:
                return await self.session.call(method, params, kind, wait, key)
            except (LinkError, AgentSilent) as lost:
                await self._reconnect(lost, dialled)

    async def call_list(self, method: str, params: Any, kind: type[T], wait: float = 60.0) -> list[T]:
        """As `call`, for methods whose result is a list."""
        while True:
            dialled = self._dialled
            try:
                return await self.session.call_list(method, params, kind, wait)
            except (LinkError, AgentSilent) as lost:
                await self._reconnect(lost, dialled)

    async def pull(self) -> Snapshot:
        """The next snapshot and the log up to it, for as long as it takes when the link is lost.

        Whoever pulls at the same time waits: two reads from one place of the log would show its lines twice.
        """
        async with self._pulling:
            snapshot = await self.call("snapshot", {"paths": self.paths}, Snapshot, wait=20)
            self._greeted(self.session.hello)
            self.emit(SnapshotArrived(snapshot, time.time()))
            await self._measure()
            if self._log != "none" and snapshot.server.job is not None:
                await self._pull_log(snapshot.server.job)
            return snapshot

    async def run(self, interval: float = 1.0) -> None:
        """Pull for ever, one snapshot every `interval` seconds."""
        while True:
            await self.pull()
            await asyncio.sleep(interval)

    def reconnect_now(self) -> None:
        """Do not wait for the next try."""
        self._hurry.set()

    def _greeted(self, hello: Hello | None) -> None:
        if hello is not None and hello is not self._hello:
            self._hello = hello
            self.emit(Greeted(hello))

    async def _measure(self) -> None:
        """The latency of a new link, once what a person waits for is there."""
        with contextlib.suppress(LinkError):  # the next call finds it lost
            link = self.session.link
            if link is not self._measured:
                self._measured = link
                self._say(CONNECTED, "connected", await link.ping() * 1000)

    async def _pull_log(self, job: JobStatus) -> None:
        if job.id != self._log_job:
            self._log_job, self._log_inode = job.id, job.log_inode
            self._log_offset = 0 if self._log == "whole" else max(0, job.log_size - _FIRST_LOOK)
            self.emit(LogRestarted(job.id))
        while True:
            where = {"job": job.id, "inode": self._log_inode, "offset": self._log_offset, "limit": _LOG_CHUNK}
            chunk = await self.call("log.read", where, LogChunk)
            if chunk.inode != self._log_inode or chunk.offset < self._log_offset:
                self.emit(LogRestarted(job.id))
            elif chunk.dropped:
                missed = units.number(chunk.dropped)
                mark = f"\n[console] {missed} bytes were dropped on the box before they were read here\n".encode()
                self.emit(LogArrived(job.id, mark, chunk.offset - len(mark)))
            self._log_inode, self._log_offset = chunk.inode, chunk.next_offset
            if chunk.data:
                self.emit(LogArrived(job.id, base64.b64decode(chunk.data), chunk.offset))
            if chunk.next_offset >= chunk.size:
                return

    async def _reconnect(self, cause: Exception, dialled: int) -> None:
        """Dial until there is a link again; once for all callers that lost the link of dial number `dialled`."""
        async with self._dialling:
            if self._dialled == dialled:
                await self._dial_again(cause)
                self._dialled += 1

    async def _dial_again(self, cause: Exception) -> None:
        await self.session.drop()
        for attempt, delay in enumerate(backoff.delays(), start=1):
            # what happens next comes first: on a narrow screen the end of the line is cut
            text = f"link lost; trying again in {delay:.0f} s (try {attempt}). {cause}"
            self._say("waiting" if delay else "lost", text)
            await self._wait(delay)
            try:
                await self.connect()
                self._greeted(await self.session.attach())
                return
            except LinkError as error:
                if error.exit_code == ExitCode.LOGIN:
                    self._say("refused", str(error))
                    raise
                cause = error
            except AgentFault as error:
                cause = error
            await self.session.drop()

    async def _wait(self, delay: float) -> None:
        self._hurry.clear()
        try:
            async with asyncio.timeout(delay):
                await self._hurry.wait()
        except TimeoutError:
            pass

    def _say(self, word: str, sentence: str, latency_ms: float | None = None) -> None:
        self.emit(ConnectionChanged(Connection(word, sentence, time.time(), latency_ms)))
