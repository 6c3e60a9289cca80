"""A link over one SSH connection: programs in exec channels, bytes in and out, four channels at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
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
_REFUSED_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between the tries of a refused session."""


class Slots:
    """So many channels at once; the rest wait, but only for programs that end by themselves."""

    def __init__(self, limit: int, target: str) -> None:
        self._limit = limit
        self._target = target
        self._ended = asyncio.Event()
        self.used = 0
        self.short = 0
        """How many of the used ones hold programs that end soon."""

    async def take(self, short: bool) -> None:
        """Take a slot, `short` for a program that ends soon.

        Raises:
            ChannelRefused: all are taken by programs that stay.
        """
        while self.used >= self._limit:
            if not self.short:
                raise ChannelRefused(
                    f"All {self._limit} channels to {self._target} are taken by programs that stay. Close one of them first."
                )
            await self.one_ended()
        self.used += 1
        self.short += short

    def withdraw(self, short: bool) -> None:
        """Give a slot back in which nothing ran."""
        self.used -= 1
        self.short -= short

    def give(self, short: bool) -> None:
        """Give a slot back whose program has ended, or which was given up."""
        self.withdraw(short)
        self._ended.set()

    def wake(self) -> None:
        """Let those that wait look again: nobody may be left to wake them."""
        self._ended.set()

    async def one_ended(self) -> None:
        """Wait for the next `give`."""
        self._ended.clear()
        await self._ended.wait()


class SshLink:
    """See `eagle3_console.link.base.Link`. Made by `eagle3_console.link.connect.connect`.

    Args:
        connection: logged in.
        login: saw the connection come and will see it go.
        attempt: how it was made, for the sentences.
        beneath: what carries the connection (jump hosts, a proxy command); closed after it.
        notes: sentences worth showing once, for example that a host key could not be stored.
    """

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        login: Login,
        attempt: Attempt,
        beneath: contextlib.AsyncExitStack,
        notes: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._login = login
        self._attempt = attempt
        self._beneath = beneath
        self._slots = Slots(MAX_CHANNELS, attempt.target)
        self._channels: set[SshChannel] = set()
        self._closing = False
        self.notes = tuple(notes)

    @property
    def target(self) -> str:
        return self._attempt.target

    async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
        channel: SshChannel | None = None
        try:
            async with asyncio.timeout(timeout):
                channel = await self._start(script, argv, short=True)
                return await self._finish(channel, stdin)
        except TimeoutError:
            raise LinkTimeout(
                f"A command on {self.target} did not end within {timeout:g} s. "
                + (
                    "It may still be running there."
                    if channel
                    else "It may not have begun: the box is slow, or no channel came free."
                )
            ) from None
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
        await close_connection(self._connection)
        await self._beneath.aclose()

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
        """A slot and a session in it. A refused one is asked for again when one of ours has ended, and a few times anyhow:
        sshd counts a session for a moment longer than it lasts."""
        pauses = iter(_REFUSED_PAUSES)
        while True:
            await self._slots.take(short)
            try:
                return await self._connection.create_process(line, encoding=None, request_pty=False, term_type=None)
            except (OSError, asyncssh.Error) as error:
                self._slots.withdraw(short)
                refusal = self._lost(error) if self._connection.is_closed() else self._explain(error, self._slots.used)
                try:
                    await self._after(refusal, pauses)
                except BaseException:
                    self._slots.wake()
                    raise
            except BaseException:
                self._slots.give(short)
                raise

    async def _after(self, refusal: LinkError, pauses: Iterator[float]) -> None:
        """Wait until a refused session may be asked for again; raise the refusal where that makes no sense."""
        if not isinstance(refusal, ChannelRefused):
            raise refusal
        if self._slots.short:
            await self._slots.one_ended()
            return
        pause = next(pauses, None)
        if pause is None:
            raise refusal
        await asyncio.sleep(pause)

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


async def close_connection(connection: asyncssh.SSHClientConnection) -> None:
    """Close a connection and wait a little for its end; never raises for a broken one."""
    connection.close()
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await connection.wait_closed()
    except (OSError, asyncssh.Error):  # TimeoutError is an OSError
        connection.abort()
