"""One program on the box, in an exec channel of an SSH connection."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

import asyncssh

from eagle3_console.link.base import STDERR_TAIL
from eagle3_console.link.errors import ChannelClosed, LinkError, ShellRefused

_PIECE = 64 * 1024
_NOISE_LIMIT = 4 * 1024 * 1024
"""Bytes that login scripts may print before our command begins."""
_GRACE = 2.0
"""Seconds that a program gets to end after its input did."""
_BROKEN = (OSError, asyncssh.Error)


class SshChannel:
    """See `eagle3_console.link.base.Channel`.

    Args:
        process: just started.
        mark: the line that comes before the program's own output, on both streams.
        is_lost: whether the connection is gone.
        lost: the error to raise then.
    """

    def __init__(
        self,
        process: asyncssh.SSHClientProcess[bytes],
        mark: str,
        is_lost: Callable[[], bool],
        lost: Callable[[BaseException | None], LinkError],
    ) -> None:
        self._process = process
        self._mark = mark.encode() + b"\n"
        self._is_lost = is_lost
        self._lost = lost
        self._ahead = b""
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._drain_stderr(), name="stderr of a channel")
        self._closing = False
        self.on_close: Callable[[], object] | None = None

    async def begin(self) -> None:
        """Read away what login scripts print, up to the mark.

        Raises:
            ShellRefused: the output ended without it.
            LinkLost: the link broke.
        """
        seen = b""
        while self._mark not in seen:
            piece = await self.read(_PIECE)
            seen += piece
            if not piece and await self.wait() is None:
                # A shell that refuses ends with a status. The end of the output may come before the end of the link.
                raise self._lost(None)
            if not piece or len(seen) > _NOISE_LIMIT:
                await self.stderr_done()
                said = (seen + bytes(self._stderr))[-400:].decode(errors="replace").strip()
                raise ShellRefused(
                    "The login worked, but the login shell did not run our command. "
                    + (f"It said: {said!r}. " if said else "It said nothing. ")
                    + "Use an account with a normal shell, without a ForceCommand, and with login scripts that end."
                )
        self._ahead = seen.partition(self._mark)[2]

    async def read(self, n: int) -> bytes:
        if self._ahead:
            piece, self._ahead = self._ahead[:n], self._ahead[n:]
            return piece
        try:
            piece = await self._process.stdout.read(n)
        except _BROKEN as error:
            raise self._lost(error) from error
        if not piece and self._is_lost() and exit_status(self._process) is None:
            raise self._lost(None)
        return piece

    async def write(self, data: bytes) -> None:
        if self._closing and not self._is_lost():
            raise ChannelClosed("This channel was closed here; nothing more can be written to it.")
        try:
            for at in range(0, len(data), _PIECE):
                self._process.stdin.write(data[at : at + _PIECE])
                await self._process.stdin.drain()
            if self._process.is_closing():
                raise BrokenPipeError
        except _BROKEN as error:
            raise await self._gone(error) from error

    async def feed(self, data: bytes) -> None:
        """Write all the input and end it. A program that ends before it has read everything is no error."""
        with contextlib.suppress(LinkError):
            await self.write(data)
        self._end_input()

    def stderr_tail(self) -> bytes:
        before, mark, after = bytes(self._stderr).partition(self._mark)
        return after if mark else before

    async def close(self) -> None:
        self._closing = True
        try:
            self._end_input()
            with contextlib.suppress(TimeoutError, *_BROKEN):
                async with asyncio.timeout(_GRACE):
                    while await self._process.stdout.read(_PIECE):  # a program with a full pipe cannot end
                        pass
                    await self._process.wait_closed()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go at once."""
        self._closing = True
        self._process.close()
        self._drain.cancel()
        if self.on_close is not None:
            callback, self.on_close = self.on_close, None
            callback()

    async def wait(self) -> int | None:
        with contextlib.suppress(*_BROKEN):
            await self._process.wait_closed()
        return exit_status(self._process)

    async def stderr_done(self) -> None:
        """Wait until all of standard error has come in."""
        await asyncio.wait([self._drain])

    def _end_input(self) -> None:
        with contextlib.suppress(*_BROKEN):
            self._process.stdin.write_eof()

    async def _gone(self, error: BaseException) -> LinkError:
        if self._is_lost():
            return self._lost(error)
        await asyncio.wait([self._drain], timeout=_GRACE)  # its last words may still be under way
        status = exit_status(self._process)
        said = self.stderr_tail()[-400:].decode(errors="replace").strip()
        ended = f" with exit status {status}" if status is not None else ""
        return ChannelClosed(f"The program on the box ended{ended}." + (f" It said: {said}" if said else ""))

    async def _drain_stderr(self) -> None:
        with contextlib.suppress(*_BROKEN):
            while piece := await self._process.stderr.read(_PIECE):
                self._stderr += piece
                del self._stderr[:-STDERR_TAIL]


def exit_status(process: asyncssh.SSHClientProcess[bytes]) -> int | None:
    """Exit status as a shell counts (128 + n for signal n); `None` if the box never told it."""
    if process.exit_signal is not None:
        name = process.exit_signal[0]
        number = getattr(signal, f"SIG{name}", None)
        return 128 + int(number) if number is not None else 255
    return process.exit_status
