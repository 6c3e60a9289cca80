"""A link over one SSH connection: programs in exec channels, bytes in and out, four channels at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from types import TracebackType

import asyncssh

from eagle3_console.link.base import Completed
from eagle3_console.link.channel import SshChannel
from eagle3_console.link.errors import ChannelRefused, LinkError, LinkLost, LinkTimeout
from eagle3_console.link.failures import Attempt, translate
from eagle3_console.link.login import Login
from eagle3_console.link.shell import command_line, new_mark

MAX_CHANNELS = 4
"""sshd allows 10 sessions on a connection unless it is told otherwise (MaxSessions); others may share it."""
START_TIMEOUT = 20.0
"""Seconds that a login shell may take to come to our command."""
_CLOSE_TIMEOUT = 3.0


class Slots:
    """So many channels at once; the rest wait, but only for programs that end by themselves."""

    def __init__(self, limit: int, target: str) -> None:
        self._limit = limit
        self._target = target
        self._changed = asyncio.Event()
        self.used = 0
        self._short = 0

    async def take(self, short: bool) -> None:
        """Take a slot, `short` for a program that ends soon.

        Raises:
            ChannelRefused: all are taken by programs that stay.
        """
        while self.used >= self._limit:
            if not await self.change():
                raise ChannelRefused(
                    f"All {self._limit} channels to {self._target} are taken by programs that stay. Close one of them first."
                )
        self.used += 1
        self._short += short

    def give(self, short: bool) -> None:
        """Give a slot back."""
        self.used -= 1
        self._short -= short
        self._changed.set()

    async def change(self) -> bool:
        """Wait until a slot was given back; `False` at once if nobody holds one for a short time."""
        if not self._short:
            return False
        self._changed.clear()
        await self._changed.wait()
        return True


class SshLink:
    """See `eagle3_console.link.base.Link`. Made by `eagle3_console.link.connect.connect`.

    Args:
        connection: logged in.
        login: saw the connection come and will see it go.
        attempt: how it was made, for the sentences.
        hops: jump hosts in between, nearest first; closed with the link.
        notes: sentences worth showing once, for example that a host key could not be stored.
    """

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        login: Login,
        attempt: Attempt,
        hops: Sequence[asyncssh.SSHClientConnection] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._login = login
        self._attempt = attempt
        self._hops = tuple(hops)
        self._slots = Slots(MAX_CHANNELS, attempt.target)
        self._channels: set[SshChannel] = set()
        self._closing = False
        self.notes = tuple(notes)

    @property
    def target(self) -> str:
        return self._attempt.target

    async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
        started = False
        channel: SshChannel | None = None
        try:
            async with asyncio.timeout(timeout):
                channel = await self._start(script, argv, short=True)
                started = True
                return await self._finish(channel, stdin)
        except TimeoutError:
            what = (
                "It may still be running there."
                if started
                else "It was not started: no channel came free, or the box is overloaded."
            )
            raise LinkTimeout(f"A command on {self.target} did not end within {timeout:g} s. {what}") from None
        finally:
            if channel is not None:
                channel.abandon()

    async def open(self, script: str, *, argv: Sequence[str] = ()) -> SshChannel:
        return await self._start(script, argv, short=False)

    async def ping(self) -> float:
        began = time.monotonic()
        if not self._connection.is_closed():
            # asyncssh offers no public way to ask; its own keepalive does exactly this.
            await self._connection._make_global_request(b"keepalive@openssh.com")
        if self._connection.is_closed():
            raise self._lost(None)
        return time.monotonic() - began

    async def close(self) -> None:
        self._closing = True
        for channel in tuple(self._channels):
            channel.abandon()
        await close_connections([*self._hops, self._connection])

    async def __aenter__(self) -> SshLink:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _start(self, script: str, argv: Sequence[str], short: bool) -> SshChannel:
        mark = new_mark()
        line = command_line(script, argv, mark)
        process = await self._session(line, short)
        channel = SshChannel(process, mark, self._connection.is_closed, self._lost)
        self._channels.add(channel)

        def released() -> None:
            self._channels.discard(channel)
            self._slots.give(short)

        channel.on_close = released
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await channel.begin()
        except TimeoutError:
            channel.abandon()
            raise LinkTimeout(
                f"The login shell on {self.target} did not come to our command within {START_TIMEOUT:g} s. "
                "Check the account's login scripts, and whether the box is overloaded."
            ) from None
        except BaseException:
            channel.abandon()
            raise
        return channel

    async def _session(self, line: str, short: bool) -> asyncssh.SSHClientProcess[bytes]:
        """A slot and a session in it; a refused one is asked for again when one of ours has ended."""
        while True:
            await self._slots.take(short)
            used = self._slots.used
            try:
                return await self._connection.create_process(line, encoding=None, request_pty=False, term_type=None)
            except BaseException as error:
                self._slots.give(short)
                if not isinstance(error, (asyncssh.Error, OSError)):
                    raise
                if self._connection.is_closed():
                    raise self._lost(error) from error
                refused = self._explain(error, used - 1)
                if not (isinstance(refused, ChannelRefused) and await self._slots.change()):
                    raise refused from error

    async def _finish(self, channel: SshChannel, stdin: bytes) -> Completed:
        feeder = asyncio.create_task(channel.feed(stdin), name="input of a command")
        parts = []
        try:
            while part := await channel.read(1 << 20):
                parts.append(part)
            status = await channel.wait()
            if status is None:
                raise self._lost(None)
            await channel.stderr_done()
        finally:
            feeder.cancel()
        return Completed(status, b"".join(parts), channel.stderr_tail())

    def _explain(self, error: BaseException, sessions: int) -> LinkError:
        return translate(error, self._login.attempt(self._attempt, established=True, sessions=sessions))

    def _lost(self, error: BaseException | None) -> LinkError:
        if self._closing:
            return LinkLost(f"The connection to {self.target} was closed here.")
        reason = error if isinstance(error, (OSError, asyncssh.DisconnectError)) else self._login.lost
        if reason is None:
            closed = self._connection.is_closed()
            why = "the box closed it" if closed else "the session ended without an exit status"
            return LinkLost(
                f"The connection to {self._attempt.address} was lost: {why}. What runs detached on the box goes on."
            )
        lost = self._explain(reason, self._slots.used)
        return lost if isinstance(lost, LinkLost) else LinkLost(str(lost))


async def close_connections(connections: Sequence[asyncssh.SSHClientConnection]) -> None:
    """Close connections, the last first, and wait a little for each; never raises for a broken one."""
    for connection in reversed(connections):
        connection.close()
        with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await connection.wait_closed()
                continue
        connection.abort()
