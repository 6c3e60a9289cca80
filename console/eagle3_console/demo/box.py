"""The embedded box: an SSH server inside this process, on loopback, with its own throw-away keys and home.

It runs what a client asks for with ``/bin/sh -c`` in an environment of its own, as sshd does, and knows nothing of what
the console does there. Jobs that detach outlive it, as they outlive a connection to a real box.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import getpass
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import asyncssh

USER = "demo"


@dataclasses.dataclass(frozen=True)
class EmbeddedBox:
    """Where it listens, and what a client needs to log in."""

    host: str
    port: int
    user: str
    identity_file: Path
    known_hosts: Path
    home: Path
    connections: set[asyncssh.SSHServerConnection]

    def cut(self) -> None:
        """Break every connection, as a pulled cable does. What runs on the box goes on."""
        for connection in tuple(self.connections):
            connection.abort()

    @property
    def address(self) -> str:
        """What a person would type."""
        return f"{self.user}@{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def embedded_box(root: Path, env: dict[str, str]) -> AsyncIterator[EmbeddedBox]:
    """Listen on a free loopback port until the context ends.

    Args:
        root: an existing directory for keys and home.
        env: what the box exports to every program, on top of a bare PATH and HOME.
    """
    home, keys = root / "home", root / "keys"
    home.mkdir(mode=0o700, exist_ok=True)
    keys.mkdir(mode=0o700, exist_ok=True)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    identity = keys / "id_ed25519"
    client_key.write_private_key(str(identity))
    authorized = keys / "authorized_keys"
    client_key.write_public_key(str(authorized))
    shell = _Shell(home, env)
    connections: set[asyncssh.SSHServerConnection] = set()

    class Server(asyncssh.SSHServer):
        """Keeps count of who is connected."""

        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            self._connection = conn
            connections.add(conn)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.discard(self._connection)

    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=Server,
        server_host_keys=[host_key],
        authorized_client_keys=str(authorized),
        process_factory=shell.serve,
        encoding=None,
        allow_scp=False,
    )
    try:
        port = server.get_port()
        known_hosts = keys / "known_hosts"
        known_hosts.write_bytes(b"[127.0.0.1]:%d " % port + host_key.export_public_key())
        yield EmbeddedBox("127.0.0.1", port, USER, identity, known_hosts, home, connections)
    finally:
        server.close()
        await server.wait_closed()
        await shell.close()


class _Shell:
    """Runs programs for SSH sessions."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self._home = home
        self._env = (
            {
                "HOME": str(home),
                "USER": getpass.getuser(),
                "LOGNAME": getpass.getuser(),
                "SHELL": "/bin/sh",
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
            }
            | {key: os.environ[key] for key in ("TMPDIR", "LD_LIBRARY_PATH") if key in os.environ}
            | env
        )
        self._programs: set[asyncio.subprocess.Process] = set()

    async def serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """One exec request: its pipes are the channel's, its exit status the channel's."""
        program = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command or "exit 0",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._home,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        self._programs.add(program)
        feeder = asyncio.create_task(_feed(process.stdin, program.stdin), name="input of a program")
        try:
            # all of the output first, then the exit status: the status closes the channel
            await asyncio.gather(_pump(program.stdout, process.stdout), _pump(program.stderr, process.stderr))
            process.exit(await program.wait())
        finally:
            feeder.cancel()
            self._programs.discard(program)

    async def close(self) -> None:
        """Wait for the programs of closed sessions: their input has ended, so they end by themselves."""
        for program in list(self._programs):
            if program.stdin is not None:
                program.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await program.wait()


class _Source(Protocol):
    async def read(self, n: int) -> bytes: ...


class _Sink(Protocol):
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...


async def _feed(source: _Source, sink: asyncio.StreamWriter) -> None:
    try:
        await _pump(source, sink)
    finally:
        sink.close()


async def _pump(source: _Source, sink: _Sink) -> None:
    """Copy to the end of `source`; where `sink` is gone, read on and drop, so that nobody blocks."""
    broken = (OSError, asyncssh.Error)
    with contextlib.suppress(*broken):
        while data := await source.read(65536):
            with contextlib.suppress(*broken):
                sink.write(data)
                await sink.drain()
