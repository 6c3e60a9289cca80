"""A link that breaks while a command is being started is a lost link, never a refusing shell."""

from __future__ import annotations

import asyncio

import asyncssh
import pytest

from eagle3_console.link.channel import SshChannel
from eagle3_console.link.errors import LinkLost, ShellRefused


@pytest.fixture
async def pair() -> object:
    """A connected client and a server whose sessions never print anything."""

    async def silent(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if process.command == "refuse":
            process.exit(1)
            return
        await asyncio.Event().wait()

    key = asyncssh.generate_private_key("ssh-ed25519")
    accepted: list[asyncssh.SSHServerConnection] = []

    class Server(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            accepted.append(conn)

        def begin_auth(self, username: str) -> bool:
            return False

    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=Server, server_host_keys=[key], process_factory=silent, encoding=None
    )
    client = await asyncssh.connect(
        "127.0.0.1", server.get_port(), known_hosts=None, config=None, client_keys=None, username="x"
    )
    yield client, accepted
    client.abort()
    server.close()
    await server.wait_closed()


async def start(client: asyncssh.SSHClientConnection, command: str) -> SshChannel:
    process = await client.create_process(command, encoding=None, request_pty=False, term_type=None)
    # The end of a session's output is often seen before the connection knows that it is closed: never say so here.
    return SshChannel(process, "mark", lambda: False, lambda error: LinkLost("lost"))


async def test_cut_while_starting(
    pair: tuple[asyncssh.SSHClientConnection, list[asyncssh.SSHServerConnection]],
) -> None:
    client, accepted = pair
    channel = await start(client, "hang")
    beginning = asyncio.create_task(channel.begin())
    await asyncio.sleep(0.05)
    accepted[0].abort()
    with pytest.raises(LinkLost):
        await beginning
    channel.abandon()


async def test_shell_that_ends_at_once(
    pair: tuple[asyncssh.SSHClientConnection, list[asyncssh.SSHServerConnection]],
) -> None:
    client, _ = pair
    channel = await start(client, "refuse")
    with pytest.raises(ShellRefused):
        await channel.begin()
    channel.abandon()
