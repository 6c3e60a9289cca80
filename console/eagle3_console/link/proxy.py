"""A ProxyCommand of the SSH configuration: a program whose input and output are the way to the box.

asyncssh can run one itself, but it feeds the program's error messages into the SSH stream and takes the end of any pipe for the end of the
connection. Here, as with ssh, the program gets one socket for input and output, and its error messages are kept for the sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from typing import IO

_GRACE = 2.0
"""Seconds that the program gets to end after its socket was closed."""


class ProxyCommand:
    """One running proxy command; `socket` belongs to whoever speaks SSH over it."""

    def __init__(self, process: asyncio.subprocess.Process, ours: socket.socket, words: IO[bytes]) -> None:
        self._process = process
        self._words = words
        self.socket = ours

    @classmethod
    async def start(cls, command: str) -> ProxyCommand:
        """Run `command` in a shell, as ssh does.

        Raises:
            OSError: /bin/sh cannot be started.
        """
        ours, theirs = socket.socketpair()
        words = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                f"exec {command}",
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=words,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            words.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return cls(process, ours, words)

    async def said(self) -> str:
        """The last words on standard error, when the program has ended or a moment has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await self._process.wait()
        self._words.seek(0)
        return " ".join(self._words.read()[-4096:].decode(errors="replace").split())[-300:].rstrip(".")

    async def close(self) -> None:
        """Close the socket and see the program end; one that does not is killed. It is our own child."""
        self.socket.close()
        try:
            async with asyncio.timeout(_GRACE):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        finally:
            self._words.close()
