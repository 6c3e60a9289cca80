"""Every way in which a connection does not come about, really produced: the kind of error, its exit code, and what the sentence says."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from eagle3_console.link import errors
from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions
from eagle3_console.link.target import Target, parse
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox, ordinary_user, running_sshd

NO_CONNECTION, LOGIN = 3, 4
NOTHING = SshOptions(config_files=(), connect_timeout=5)


async def refused(
    target: Target | str,
    options: SshOptions,
    kind: type[errors.LinkError],
    code: int,
    *parts: str,
    person: Person | None = None,
) -> str:
    """The connection fails in this way, with one full sentence or more, and leaves no task behind."""
    with pytest.raises(errors.LinkError) as caught:
        await connect(parse(target) if isinstance(target, str) else target, options, person or RefusingPrompter())
    text = str(caught.value)
    assert type(caught.value) is kind, text
    assert caught.value.exit_code == code
    for part in parts:
        assert part in text
    assert text.endswith((".", "'"))
    await asyncio.sleep(0)
    ours = [task for task in asyncio.all_tasks() if not task.done() and task is not asyncio.current_task()]
    assert [task for task in ours if "serve" not in repr(task.get_coro())] == []
    return text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def speaking(reply: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[int]:
    """Something on loopback that is no SSH server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            reply(writer)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_name_that_does_not_exist() -> None:
    await refused(
        "no-such-box.invalid",
        NOTHING,
        errors.UnknownHost,
        NO_CONNECTION,
        "no host named 'no-such-box.invalid'",
        "spelling",
    )


async def test_a_name_that_cannot_exist() -> None:
    await refused("gpu..box", NOTHING, errors.UnknownHost, NO_CONNECTION, "no host named 'gpu..box'")


async def test_a_port_where_nothing_listens() -> None:
    port = free_port()
    await refused(
        f"127.0.0.1:{port}", NOTHING, errors.RefusedPort, NO_CONNECTION, f"127.0.0.1:{port} refused", "sshd runs"
    )
    await refused(f"localhost:{port}", NOTHING, errors.RefusedPort, NO_CONNECTION, f"localhost:{port} refused")


async def test_no_route() -> None:
    # the kernel itself refuses TCP to a multicast address: nothing leaves this machine
    await refused("224.0.0.1", NOTHING, errors.Unreachable, NO_CONNECTION, "224.0.0.1:22 cannot be reached", "VPN")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A listener with a full queue: the kernel drops further connections, as a firewall does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with contextlib.ExitStack() as waiting:
            for _ in range(4):
                client = waiting.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(listener.getsockname())
            yield listener.getsockname()[1]


async def test_no_answer(silent_port: int) -> None:
    options = SshOptions(config_files=(), connect_timeout=0.5)
    await refused(
        f"127.0.0.1:{silent_port}",
        options,
        errors.LinkTimeout,
        NO_CONNECTION,
        "No answer from",
        "in 0.5 s",
        "firewall",
        "--connect-timeout",
    )


async def test_a_port_that_says_nothing() -> None:
    async with speaking(lambda writer: None) as port:
        options = SshOptions(config_files=(), connect_timeout=0.5)
        await refused(f"127.0.0.1:{port}", options, errors.LinkTimeout, NO_CONNECTION, "did not speak SSH within 0.5 s")


async def test_a_port_that_hangs_up() -> None:
    async with speaking(lambda writer: writer.close()) as port:
        await refused(
            f"127.0.0.1:{port}", NOTHING, errors.HandshakeFailed, NO_CONNECTION, "before SSH began", "MaxStartups"
        )


async def test_a_port_that_speaks_something_else() -> None:
    def http(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"<html></html>\n" * 2000)
        writer.close()

    async with speaking(http) as port:
        await refused(f"127.0.0.1:{port}", NOTHING, errors.HandshakeFailed, NO_CONNECTION, "it is an SSH port")


async def test_ssh_of_the_wrong_version() -> None:
    async with speaking(lambda writer: writer.write(b"SSH-1.5-old\r\n")) as port:
        await refused(
            f"127.0.0.1:{port}", NOTHING, errors.HandshakeFailed, NO_CONNECTION, "does not speak SSH as it should"
        )


async def test_no_algorithm_in_common() -> None:
    def kex(writer: asyncio.StreamWriter) -> None:
        names = b"".join(struct.pack(">I", len(name)) + name for name in [b"rot13"] * 8 + [b"", b""])
        payload = bytes([20]) + bytes(16) + names + bytes(5)
        padding = 8 - (len(payload) + 5) % 8 + 8
        writer.write(
            b"SSH-2.0-old\r\n" + struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)
        )

    async with speaking(kex) as port:
        await refused(
            f"127.0.0.1:{port}",
            NOTHING,
            errors.HandshakeFailed,
            NO_CONNECTION,
            "no SSH algorithm in common",
            "KexAlgorithms",
        )


async def test_an_unknown_host_key_and_nobody_to_ask(box: SshdBox, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh" / "known_hosts"
    text = await refused(
        box.address,
        options_for(box, known_hosts=fresh),
        errors.HostKeyUnknown,
        LOGIN,
        "is not known here",
        "--host-key SHA256:",
    )
    assert "--accept-new-host-key" in text
    assert not fresh.exists()


async def test_a_person_who_says_no(box: SshdBox, tmp_path: Path) -> None:
    fresh, person = tmp_path / "known_hosts", Person(host_key=False)
    await refused(box.address, options_for(box, known_hosts=fresh), errors.HostKeyUnknown, LOGIN, person=person)
    assert [asked[0] for asked in person.asked] == ["host key"]
    assert not fresh.exists()


@pytest.mark.parametrize("accept_new", [False, True])
async def test_a_changed_host_key(box: SshdBox, tmp_path: Path, accept_new: bool) -> None:
    with running_sshd(box.user, tmp_path / "other") as other:
        file = tmp_path / "known_hosts"
        file.write_text(f"[127.0.0.1]:{box.port} " + other.known_hosts_line.split(" ", 1)[1])
        person = Person(host_key=True)
        text = await refused(
            box.address,
            options_for(box, known_hosts=file, accept_new=accept_new),
            errors.HostKeyChanged,
            LOGIN,
            "has changed",
            f"ssh-keygen -R '[127.0.0.1]:{box.port}' -f '{file}'",
            person=person,
        )
        assert text.count("SHA256:") == 2
        assert not person.asked
        assert other.known_hosts_line.split()[2] in file.read_text()


async def test_a_host_known_only_by_another_kind_of_key(box: SshdBox, tmp_path: Path) -> None:
    with running_sshd(box.user, tmp_path / "other", key="ecdsa") as other:
        file = tmp_path / "known_hosts"
        file.write_text(f"[127.0.0.1]:{box.port} " + other.known_hosts_line.split(" ", 1)[1])
        text = await refused(
            box.address, options_for(box, known_hosts=file), errors.HostKeyChanged, LOGIN, "(ECDSA)", "(ED25519)"
        )
        assert text.count("SHA256:") == 2


async def test_a_revoked_host_key(box: SshdBox, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(box.known_hosts_line + "@revoked * " + box.known_hosts_line.split(" ", 1)[1])
    person = Person(host_key=True)
    await refused(
        box.address,
        options_for(box, known_hosts=file),
        errors.HostKeyRevoked,
        LOGIN,
        "marked as revoked",
        "SHA256:",
        person=person,
    )
    assert not person.asked


async def test_another_key_than_the_one_asked_for(box: SshdBox) -> None:
    options = options_for(box, host_key="SHA256:" + "A" * 43, accept_new=True)
    await refused(
        box.address,
        options,
        errors.HostKeyChanged,
        LOGIN,
        "--host-key asks for SHA256:AAAA",
        "shows the host key SHA256:",
    )


async def test_a_key_that_the_box_does_not_know(box: SshdBox, tmp_path: Path) -> None:
    with running_sshd(box.user, tmp_path / "other") as other:
        options = options_for(box, identity_files=(other.identity_file,))
        await refused(
            box.address,
            options,
            errors.LoginRefused,
            LOGIN,
            f"as '{box.user}'",
            str(other.identity_file),
            "allows publickey",
            "authorized_keys",
        )


async def test_no_key_at_all(box: SshdBox) -> None:
    await refused(
        box.address,
        options_for(box, identity_files=()),
        errors.LoginRefused,
        LOGIN,
        "tried nothing",
        "allows publickey",
    )


async def test_a_user_that_does_not_exist(box: SshdBox) -> None:
    await refused(f"nobody-here@127.0.0.1:{box.port}", options_for(box), errors.LoginRefused, LOGIN, "as 'nobody-here'")


async def test_a_wrong_password(tmp_path: Path) -> None:
    with (
        ordinary_user(password="right horse") as account,
        running_sshd(account.name, tmp_path / "box", "PasswordAuthentication yes\nPubkeyAuthentication no") as box,
    ):
        person = Person(passwords=["wrong 1", "wrong 2", "wrong 3", "right horse"])
        text = await refused(
            box.address,
            options_for(box, identity_files=()),
            errors.LoginRefused,
            LOGIN,
            "password (3 times)",
            "allows password",
            person=person,
        )
        assert "wrong" not in text.replace("wrong one", "")
        assert len(person.asked) == 3
        await refused(
            box.address,
            options_for(box, identity_files=()),
            errors.LoginRefused,
            LOGIN,
            "password (no answer)",
            "from a terminal",
        )


async def test_too_many_keys(tmp_path: Path) -> None:
    with running_sshd(getpass.getuser(), tmp_path / "box", "MaxAuthTries 1") as box:
        with running_sshd(getpass.getuser(), tmp_path / "a") as a, running_sshd(getpass.getuser(), tmp_path / "b") as b:
            options = options_for(box, identity_files=(a.identity_file, b.identity_file, box.identity_file))
        await refused(box.address, options, errors.LoginRefused, LOGIN, "after too many tries", "IdentitiesOnly yes")


async def test_a_key_file_that_is_not_there(box: SshdBox, tmp_path: Path) -> None:
    options = options_for(box, identity_files=(tmp_path / "no key",))
    await refused(box.address, options, errors.KeyUnusable, LOGIN, "no key cannot be read", "-i")


async def test_a_key_file_that_is_no_key(box: SshdBox) -> None:
    options = options_for(box, identity_files=(box.identity_file.with_suffix(".pub"),))
    await refused(box.address, options, errors.KeyUnusable, LOGIN, "is no private key that can be used")


async def test_a_configuration_that_is_wrong(box: SshdBox, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port many\n")
    await refused(
        "box", options_for(box, config_files=(config,)), errors.ConfigError, NO_CONNECTION, f"{config} line 2", "-F"
    )
    await refused(
        "box", options_for(box, config_files=(tmp_path / "none",)), errors.ConfigError, NO_CONNECTION, "No such file"
    )


async def test_jump_hosts_in_a_circle(box: SshdBox, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    await refused(
        "a", options_for(box, config_files=(config,)), errors.ConfigError, NO_CONNECTION, "perhaps in a circle"
    )


async def test_a_jump_host_that_forwards_nothing(tmp_path: Path) -> None:
    with running_sshd(getpass.getuser(), tmp_path / "jump", "AllowTcpForwarding no") as jump:
        options = options_for(jump, config_files=(_jumping(jump, tmp_path, 22),))
        await refused(
            "inner",
            options,
            errors.ChannelRefused,
            NO_CONNECTION,
            f"jump host {jump.address} forwards no",
            "AllowTcpForwarding",
        )


async def test_a_jump_host_that_does_not_reach_the_box(box: SshdBox, tmp_path: Path) -> None:
    port = free_port()
    options = options_for(box, config_files=(_jumping(box, tmp_path, port),))
    await refused(
        "inner",
        options,
        errors.NoConnection,
        NO_CONNECTION,
        f"jump host {box.address} does not reach 127.0.0.1:{port} (inner)",
    )


async def test_a_proxy_command_that_fails(box: SshdBox, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host inner\n  ProxyCommand echo the gateway is closed. >&2; exit 3\n")
    options = options_for(box, config_files=(config,))
    await refused(
        "inner",
        options,
        errors.NoConnection,
        NO_CONNECTION,
        "through the proxy command",
        "It said: the gateway is closed",
    )


def _jumping(jump: SshdBox, tmp_path: Path, port: int) -> Path:
    config = tmp_path / "config"
    config.write_text(f"Host inner\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump {jump.address}\n")
    return config
