"""What only a connection can do: break, run out of sessions, hang."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3_console.link.connect import KEEPALIVE_COUNT, KEEPALIVE_INTERVAL, connect
from eagle3_console.link.errors import ChannelRefused, LinkLost
from eagle3_console.link.login import DEAD_AFTER
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.ssh import MAX_CHANNELS, SshLink
from eagle3_console.link.target import parse
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox, running_sshd


async def _link(box: SshdBox, **changed: object) -> SshLink:
    return await connect(parse(box.address), options_for(box, **changed), RefusingPrompter())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (another process makes it true)
            await asyncio.sleep(0.02)


@pytest.fixture
def own_box(tmp_path: Path) -> object:
    """A server that may be killed."""
    with running_sshd(getpass.getuser(), tmp_path / "own") as box:
        yield box


async def test_a_killed_server_is_a_lost_link_and_not_a_success(own_box: SshdBox, tmp_path: Path) -> None:
    started = tmp_path / "started"
    async with await _link(own_box) as link:
        channel = await link.open("cat")
        running = asyncio.create_task(link.run('echo before; : >"$1"; sleep 20', argv=[str(started)], timeout=120))
        await _until(started.exists)
        own_box.cut()
        with pytest.raises(LinkLost, match=r"was lost: .*\. What runs detached on the box goes on\.") as error:
            await running
        assert error.value.exit_code == 3
        with pytest.raises(LinkLost):
            await channel.read(10)
        with pytest.raises(LinkLost):
            await channel.write(b"x")
        assert await channel.wait() is None
        for again in (link.ping(), link.run("true", timeout=5), link.open("true")):
            with pytest.raises(LinkLost):
                await again
        await channel.close()


async def test_a_dropped_connection_and_a_new_one(box: SshdBox) -> None:
    async with await _link(box) as link:
        box.drop()
        with pytest.raises(LinkLost):
            await link.run("sleep 60", timeout=120)
    async with await _link(box) as link:
        assert (await link.run("echo back", timeout=30)).stdout == b"back\n"


async def test_output_that_came_before_the_cut_can_be_read(own_box: SshdBox) -> None:
    async with await _link(own_box) as link:
        channel = await link.open("echo first; exec cat")
        assert await channel.read(6) == b"first\n"
        own_box.cut()
        with pytest.raises(LinkLost):
            await channel.read(6)
        await channel.close()


async def test_a_remote_command_of_the_configuration_is_not_ours(box: SshdBox, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("RemoteCommand tmux attach\nRequestTTY force\nForwardAgent yes\n")
    async with await _link(box, config_files=(config,)) as link:
        done = await link.run('if [ -t 0 ]; then echo terminal; else echo "pipe $SSH_AUTH_SOCK"; fi', timeout=30)
        assert done.stdout == b"pipe \n"


async def test_more_commands_than_channels_wait_their_turn(box: SshdBox, tmp_path: Path) -> None:
    script = 'mkdir "$1/$2"; ls "$1" | wc -l; sleep 0.2; rmdir "$1/$2"'
    place = tmp_path / "running"
    place.mkdir()
    async with await _link(box) as link:
        jobs = [link.run(script, argv=[str(place), str(number)], timeout=60) for number in range(12)]
        done = await asyncio.gather(*jobs)
    assert [one.exit_status for one in done] == [0] * 12
    assert max(int(one.stdout) for one in done) <= MAX_CHANNELS


async def test_two_sessions_are_enough(tmp_path: Path) -> None:
    with running_sshd(getpass.getuser(), tmp_path / "box", "MaxSessions 2") as box:
        async with await _link(box) as link:
            agent = await link.open("cat")
            done = await asyncio.gather(*(link.run("echo $$", timeout=60) for _ in range(6)))
            assert len({one.stdout for one in done}) == 6
            tail = await link.open("cat")
            with pytest.raises(ChannelRefused, match=r"opens no further session .* 2 of ours are open.*MaxSessions"):
                await link.run("true", timeout=60)
            await tail.close()
            assert (await link.run("echo again", timeout=60)).stdout == b"again\n"
            await agent.write(b"alive")
            assert await agent.read(10) == b"alive"
            await agent.close()


async def test_channels_that_stay_are_not_waited_for(box: SshdBox) -> None:
    async with await _link(box) as link:
        channels = [await link.open("cat") for _ in range(MAX_CHANNELS)]
        with pytest.raises(ChannelRefused, match="All 4 channels"):
            await link.run("true", timeout=60)
        await channels.pop().close()
        assert (await link.run("echo free", timeout=60)).stdout == b"free\n"


async def test_a_cancelled_command_gives_its_channel_back(box: SshdBox) -> None:
    async with await _link(box) as link:
        for _ in range(MAX_CHANNELS + 1):
            running = asyncio.create_task(link.run("cat; sleep 0.1", timeout=60))
            await asyncio.sleep(0.1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await link.run("echo free", timeout=60)).stdout == b"free\n"


async def test_nothing_is_left_behind(box: SshdBox) -> None:
    async with await _link(box) as link:
        channel = await link.open("cat")
        await link.run("true", timeout=30)
        await channel.close()
        await link.open("cat")
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()] == []


async def test_a_frozen_box_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle3_console.link.connect.KEEPALIVE_INTERVAL", 0.2)
    with running_sshd(getpass.getuser(), tmp_path / "box") as box:
        frozen = asyncio.Event()
        writers: list[asyncio.StreamWriter] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner_reader, inner_writer = await asyncio.open_connection(box.host, box.port)
            writers.extend((writer, inner_writer))

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    if not frozen.is_set():
                        sink.write(data)

            await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        options = options_for(box, accept_new=True, known_hosts=tmp_path / "hosts")
        link = await connect(parse(f"{box.user}@127.0.0.1:{port}"), options, RefusingPrompter())
        assert (await link.run("echo up", timeout=30)).stdout == b"up\n"
        frozen.set()
        with pytest.raises(LinkLost):
            await link.run("echo lost", timeout=60)
        await link.close()
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_the_kernel_watches_over_a_connection_too(box: SshdBox) -> None:
    """SSH's keepalive begins after the login; a network that dies during the login is seen by TCP, within the same time."""
    async with await _link(box) as link:
        opened = link._connection.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, every, count = (
            opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        )
        assert idle + every * count <= DEAD_AFTER
        assert KEEPALIVE_INTERVAL * (KEEPALIVE_COUNT + 1) <= DEAD_AFTER
