"""Watching a box: snapshots and the server's log, pulled over and over, and the link dialled again when it is lost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeAlias, TypeVar

from eagle3_console import units
from eagle3_console.backoff import Backoff
from eagle3_console.clock import Clock, slept
from eagle3_console.errors import AgentFault, AgentSilent, ConsoleError
from eagle3_console.events import (
    CONNECTED,
    Connection,
    ConnectionChanged,
    Event,
    Greeted,
    LogArrived,
    LogRestarted,
    SnapshotArrived,
    ended_by,
)
from eagle3_console.exit_codes import ExitCode
from eagle3_console.link.base import Link
from eagle3_console.link.errors import LinkError, LinkLost
from eagle3_console.session import Session
from eagle3_remote.protocol import Hello, JobStatus, LogChunk, Snapshot

T = TypeVar("T")
Emit = Callable[[Event], None]
Log: TypeAlias = Literal["none", "tail", "whole"]

_FIRST_LOOK = 256 * 1024
_LOG_CHUNK = 512 * 1024
_LEAST_CHUNK = 16 * 1024


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long what is waited for, in seconds."""

    look: float = 1.0
    """Between two looks at the clocks while an answer is waited for."""
    quiet: float = 5.0
    """Without an answer, until the link itself is asked."""
    probe: float = 4.0
    """For the link's answer then."""
    log: float = 1.0
    """For the log of one pull; the next snapshot comes before the rest of it."""


class Watcher:
    """Turns one session into a stream of events. All that it shows is absolute, so a lost link costs nothing.

    It is the connection's state machine too::

        connecting -> attaching -> connected <-> silent
            ^             |            |           |
            +-- waiting <-+-- lost <---+-----------+        refused: by login or host key, nobody tries again unasked

    Args:
        session: connected or not; `connect` does it.
        emit: takes each event, in order.
        paths: file systems to measure besides the box's own, label to path.
        log: how much of the server's log to emit: ``none``, ``tail`` (from its last 256 KiB on) or ``whole``.
        patience: how long what is waited for.
        clock: what time it is.
    """

    def __init__(
        self,
        session: Session,
        emit: Emit,
        paths: dict[str, str] | None = None,
        log: Log = "none",
        *,
        patience: Patience | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.session = session
        self.paths = paths if paths is not None else {}
        self.emit = emit
        self._log = log
        self._hello: Hello | None = None
        self._measured: Link | None = None
        self._log_job = ""
        self._log_inode = 0
        self._log_offset = 0
        self._log_limit = _FIRST_LOOK
        self._hurry = asyncio.Event()
        self._pulling = asyncio.Lock()
        self._dialling = asyncio.Lock()
        self._dialled = 0
        self._patience = patience if patience is not None else Patience()
        self._clock = clock if clock is not None else Clock()
        self._looked = self._clock.now()
        self._stands_since: float | None = None
        self._backoff = Backoff()
        self._word = ""
        self.pace: Callable[[], Awaitable[object]] | None = None
        """Awaited before more is fetched: a screen that is slow gets fewer events, not a longer queue of them."""

    async def connect(self) -> None:
        """Dial once, unless the session is connected.

        Raises:
            LinkError: as the dialling says.
        """
        if not self.session.connected:
            self._say("connecting", f"connecting to {self.session.where}")
            await self.session.connect()
        self._stands()

    async def greet(self) -> None:
        """Shake hands with the agent, deploying it where it is not there yet; a lost link is dialled again."""
        while True:
            dialled = self._dialled
            try:
                hello = await self._attend(self.session.attach())
            except (LinkError, AgentSilent) as lost:
                if lost.exit_code == ExitCode.LOGIN:
                    raise
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
                return await self._attend(self.session.call(method, params, kind, wait, key))
            except (LinkError, AgentSilent) as lost:
                if lost.exit_code == ExitCode.LOGIN:
                    raise
                await self._reconnect(lost, dialled)

    async def call_list(self, method: str, params: Any, kind: type[T], wait: float = 60.0) -> list[T]:
        """As `call`, for methods whose result is a list."""
        while True:
            dialled = self._dialled
            try:
                return await self._attend(self.session.call_list(method, params, kind, wait))
            except (LinkError, AgentSilent) as lost:
                if lost.exit_code == ExitCode.LOGIN:
                    raise
                await self._reconnect(lost, dialled)

    async def pull(self) -> Snapshot:
        """The next snapshot and the log up to it, for as long as it takes when the link is lost.

        Whoever pulls at the same time waits: two reads from one place of the log would show its lines twice.
        """
        async with self._pulling:
            await self._paced()
            # A log that no release like ours has read yet takes a while; a dead link is seen by its keepalive.
            snapshot = await self.call("snapshot", {"paths": self.paths}, Snapshot, wait=60)
            self._greeted(self.session.hello)
            self.emit(SnapshotArrived(snapshot, self._clock.now().wall))
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
        """Do not wait for the next try; a link that is believed to stand has to answer now, or it is dialled again."""
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
                self._say(CONNECTED, "connected", latency_ms=await self._attend(link.ping()) * 1000)

    async def _pull_log(self, job: JobStatus) -> None:
        """What the log had when the snapshot was taken, in order; of a followed tail only as much as there is time for."""
        if job.id != self._log_job:
            self._log_job, self._log_inode = job.id, job.log_inode
            self._log_offset = 0 if self._log == "whole" else max(0, job.log_size - _FIRST_LOOK)
            self.emit(LogRestarted(job.id))
        until = self._clock.now().monotonic + self._patience.log
        while True:
            await self._paced()
            began = self._clock.now().monotonic
            where = {"job": job.id, "inode": self._log_inode, "offset": self._log_offset, "limit": self._log_limit}
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
            now = self._clock.now().monotonic
            self._log_limit = _next_limit(self._log_limit, now - began, self._patience.log)
            # a log that grows faster than the link carries it would never end
            if chunk.next_offset >= min(chunk.size, job.log_size) or (self._log == "tail" and now > until):
                return

    async def _paced(self) -> None:
        if self.pace is not None:
            await self.pace()

    async def _attend(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives; the link is looked after meanwhile.

        Raises:
            LinkLost: the machine slept or somebody doubted the link, and it does not answer.
        """
        task = asyncio.create_task(work, name=f"call to {self.session.where}")
        began = asked = self._clock.now().monotonic
        try:
            while True:
                if self._doubtful() and not await self._answers():
                    raise LinkLost(f"{self.session.where} does not answer on the connection that stood.")
                done, _ = await asyncio.wait({task}, timeout=self._patience.look)
                if done:
                    break
                now = self._clock.now().monotonic
                if now - asked >= self._patience.quiet:
                    asked = now
                    if not await self._answers() and self._word == CONNECTED and not task.done():
                        self._say("silent", f"no answer from {self.session.where} for {now - began:.0f} s")
        finally:
            await _end(task)
        result = task.result()
        if self._word == "silent":
            self._say(CONNECTED, "connected")
        return result

    def _doubtful(self) -> bool:
        """Whether the machine slept since the last look, or a person asks for another link."""
        before, self._looked = self._looked, self._clock.now()
        hurried = self._hurry.is_set()
        self._hurry.clear()
        return hurried or slept(before, self._looked)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._patience.probe):
                await self.session.link.ping()
        except (TimeoutError, LinkError):
            return False
        return True

    async def _reconnect(self, cause: ConsoleError, dialled: int) -> None:
        """Dial until there is a link again; once for all callers that lost the link of dial number `dialled`."""
        async with self._dialling:
            if self._dialled == dialled:
                await self._dial_again(cause)
                self._dialled += 1

    async def _dial_again(self, cause: ConsoleError) -> None:
        if self._stands_since is not None:
            self._backoff.held(self._clock.now().monotonic - self._stands_since)
            self._stands_since = None
        for attempt in itertools.count(1):
            self.session.let_go()
            delay = self._backoff.next()
            at = self._clock.now().wall + delay
            # what happens next comes first: on a narrow screen the end of the line is cut
            when = f"at {units.clock(at)}" if delay else "now"
            self._say("waiting" if delay else "lost", f"link lost; trying again {when} (try {attempt}). {cause}", at)
            await self._wait(delay)
            try:
                await self._dial(attempt)
                return
            except (LinkError, AgentFault) as error:
                if error.exit_code == ExitCode.LOGIN:
                    self._refused(error)
                    raise
                cause = error
            except ConsoleError as error:
                self._refused(error)
                raise

    async def _dial(self, attempt: int) -> None:
        """One try; begun anew at once when the machine slept meanwhile, or when somebody cannot wait."""
        while True:
            self._say("connecting", f"connecting to {self.session.where} (try {attempt})")
            dialling = asyncio.create_task(self._dial_and_greet(), name=f"dial {self.session.where}")
            try:
                while not (await asyncio.wait({dialling}, timeout=self._patience.look))[0]:
                    if self._doubtful():
                        break
                else:
                    return dialling.result()
            finally:
                await _end(dialling)
            self.session.let_go()

    async def _dial_and_greet(self) -> None:
        await self.session.connect()
        self._say("attaching", f"connected to {self.session.where}; starting the agent there")
        hello = await self.session.attach()
        self._stands()
        self._greeted(hello)

    def _stands(self) -> None:
        self._stands_since = self._clock.now().monotonic
        self._say(CONNECTED, "connected")

    async def _wait(self, delay: float) -> None:
        until = self._clock.now().monotonic + delay
        while (left := until - self._clock.now().monotonic) > 0 and not self._doubtful():
            await self._clock.wait(self._hurry, min(left, self._patience.look))

    def _refused(self, error: ConsoleError) -> None:
        self.session.let_go()
        ended = ended_by(error, self._clock.now().wall)
        self._word = ended.word
        self.emit(ConnectionChanged(ended))

    def _say(self, word: str, sentence: str, next_try: float | None = None, *, latency_ms: float | None = None) -> None:
        self._word = word
        self.emit(ConnectionChanged(Connection(word, sentence, self._clock.now().wall, latency_ms, next_try)))


def _next_limit(limit: int, seconds: float, wanted: float) -> int:
    """Bytes to ask for next, after `limit` bytes took so long: a slow link gets pieces that it carries in time."""
    if seconds > wanted:
        return max(limit // 2, _LEAST_CHUNK)
    return min(limit * 2, _LOG_CHUNK) if seconds < wanted / 4 else limit


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel `task`, unless it is done, and see it end."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at: it may be nobody's any more
