"""An SSH server inside the test: asyncssh's own, which runs what it is told in a real shell of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

import asyncssh


class _Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


_BROKEN = (OSError, asyncssh.Error)
_PIECE = 64 * 1024


async def _run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    command = process.command or ""
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    feeding = asyncio.create_task(_feed(process.stdin, child.stdin))
    await asyncio.gather(_carry(child.stdout, process.stdout), _carry(child.stderr, process.stderr))
    feeding.cancel()
    await asyncio.wait({feeding})
    status = await child.wait()
    with contextlib.suppress(*_BROKEN):
        process.exit(status)


async def _feed(source: asyncssh.SSHReader[bytes], sink: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(*_BROKEN):
            while data := await source.read(_PIECE):
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()


async def _carry(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
    """Everything; what a console that is gone does not take is read away."""
    while data := await source.read(_PIECE):
        with contextlib.suppress(*_BROKEN):
            sink.write(data)
            await sink.drain()


@contextlib.asynccontextmanager
async def inprocess_server() -> AsyncIterator[int]:
    """Anybody may log in; gives the port."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=_Open, server_host_keys=[key], process_factory=_run, encoding=None
    )
    try:
        yield server.get_port()
    finally:
        server.close()
        await server.wait_closed()
