"""This machine as the box, without SSH, behind the same interface."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from types import TracebackType

from eagle3_console.link.base import STDERR_TAIL, Completed
from eagle3_console.link.errors import ChannelClosed, LinkError, LinkLost, LinkTimeout

_PIECE = 64 * 1024
_GRACE = 2.0
"""Seconds that a program gets to end after its input did."""


class LocalChannel:
    """See `eagle3_console.link.base.Channel`. What does not end with its input is killed, with its process group."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._drain_stderr(), name="stderr of a local channel")
        self._closing = False

    async def read(self, n: int) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(n)

    async def write(self, data: bytes) -> None:
        if self._closing:
            raise ChannelClosed("This channel was closed here; nothing more can be written to it.")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            said = self.stderr_tail()[-400:].decode(errors="replace").strip()
            raise ChannelClosed("The program ended." + (f" It said: {said}" if said else "")) from error

    async def feed(self, data: bytes) -> None:
        """Write all the input and end it. A program that ends before it has read everything is no error."""
        with contextlib.suppress(LinkError):
            await self.write(data)
        await self._end_input()

    def stderr_tail(self) -> bytes:
        return bytes(self._stderr)

    async def close(self) -> None:
        self._closing = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await self._end_input()
                    while await self.read(_PIECE):  # a program with a full pipe cannot end
                        pass
                    await self._process.wait()
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End the program and its process group now. It is our own child, not yet waited for, so its id cannot be another's."""
        self._closing = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._drain.cancel()
        # The pipes may still be held by programs that detached themselves.
        self._process._transport.close()  # type: ignore[attr-defined]

    async def wait(self) -> int | None:
        code = await self._process.wait()
        return 128 - code if code < 0 else code

    async def stderr_done(self) -> None:
        """Wait until all of standard error has come in."""
        await asyncio.wait([self._drain])

    async def _end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        # A task of its own: whoever is cancelled here would cancel asyncio's own future of the pipe's end, which it cannot set then.
        closed = asyncio.ensure_future(self._process.stdin.wait_closed())
        closed.add_done_callback(lambda done: done.cancelled() or done.exception())  # a broken pipe is no error
        await asyncio.wait([closed])

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(_PIECE):
            self._stderr += piece
            del self._stderr[:-STDERR_TAIL]


class LocalLink:
    """See `eagle3_console.link.base.Link`."""

    def __init__(self) -> None:
        self._channels: set[LocalChannel] = set()
        self._closed = False

    @property
    def target(self) -> str:
        return "local"

    async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
        channel = await self.open(script, argv=argv)
        feeder = asyncio.create_task(channel.feed(stdin), name="input of a local command")
        try:
            async with asyncio.timeout(timeout):
                parts = []
                while part := await channel.read(1 << 20):
                    parts.append(part)
                status = await channel.wait()
                await channel.stderr_done()
                assert status is not None
                return Completed(status, b"".join(parts), channel.stderr_tail())
        except TimeoutError:
            raise LinkTimeout(f"A command on this machine did not end within {timeout:g} s. It was killed.") from None
        finally:
            feeder.cancel()
            await channel.kill()
            self._channels.discard(channel)

    async def open(self, script: str, *, argv: Sequence[str] = ()) -> LocalChannel:
        if self._closed:
            raise LinkLost("The link to this machine was closed here.")
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", script, "sh", *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            raise LinkError(f"This machine cannot start /bin/sh: {error.strerror}.") from error
        channel = LocalChannel(process)
        self._channels.add(channel)
        return channel

    async def ping(self) -> float:
        began = time.monotonic()
        if self._closed:
            raise LinkLost("The link to this machine was closed here.")
        await asyncio.sleep(0)
        return time.monotonic() - began

    async def close(self) -> None:
        self._closed = True
        channels, self._channels = self._channels, set()
        for channel in channels:
            await channel.close()

    async def __aenter__(self) -> LocalLink:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
