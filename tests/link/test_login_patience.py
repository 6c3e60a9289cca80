"""How long a login waits for the box, for its network and for a person."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncssh
import pytest

from eagle3_console.link import login
from eagle3_console.link.connect import connect
from eagle3_console.link.errors import LinkTimeout
from eagle3_console.link.failures import Attempt, translate
from eagle3_console.link.route import SshOptions
from eagle3_console.link.target import parse
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.logins import PASSPHRASE, locked_copy, whoami
from tests.link.proxy import Proxy
from tests.link.sshd import SshdBox
from tests.link.test_config import RELAY


@pytest.mark.parametrize("way", ["direct", "through a jump host", "by a proxy command"])
async def test_a_network_that_dies_during_the_login_is_not_waited_for_as_for_a_person(
    box: SshdBox, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "SILENT_LOGIN", 1)
    async with Proxy(box.host, box.port) as proxy:
        config, relay, begin = tmp_path / "config", tmp_path / "relay.py", login.Login.begin_auth
        relay.write_text(RELAY)
        config.write_text(
            f"Host far\n  HostName 127.0.0.1\n  Port {proxy.port}\n"
            + (f"  ProxyJump {box.address}\n" if way == "through a jump host" else "")
            + (f"  ProxyCommand {sys.executable} {relay} %h %p\n" if way == "by a proxy command" else "")
        )

        def begins(self: login.Login, username: str) -> None:
            begin(self, username)
            proxy.freeze()

        monkeypatch.setattr(login.Login, "begin_auth", begins)
        options = options_for(box, config_files=(config,), known_hosts=tmp_path / "hosts", accept_new=True)
        with pytest.raises(
            LinkTimeout,
            match=r"fell silent during the login of '\w+': the box.* on the way to it, died, hangs or is very slow",
        ):
            await whoami("far", options)


async def test_a_person_and_what_a_password_sets_going_on_the_box_may_take_their_time(
    box: SshdBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "SILENT_LOGIN", 1)

    class Slow(Person):
        async def passphrase(self, path: str) -> str | None:
            await asyncio.sleep(2)
            return await super().passphrase(path)

    class Thorough(asyncssh.SSHServer):
        def password_auth_supported(self) -> bool:
            return True

        def kbdint_auth_supported(self) -> bool:
            return False

        async def validate_password(self, username: str, password: str) -> bool:
            await asyncio.sleep(2)  # as when a phone is asked
            return password == PASSPHRASE

    key = locked_copy(box, tmp_path / "key")
    person = Slow(passphrases=[PASSPHRASE], passwords=[PASSPHRASE])
    assert await whoami(box.address, options_for(box, identity_files=(key,)), person) == box.user
    async with asyncssh.listen(
        "127.0.0.1", 0, server_factory=Thorough, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")]
    ) as server:
        options = SshOptions(config_files=(), known_hosts=tmp_path / "hosts", accept_new=True)
        async with await connect(parse(f"a@127.0.0.1:{server.get_port()}"), options, person) as link:
            await link.ping()
    assert [kind for kind, *_ in person.asked] == ["passphrase", "password"]


@pytest.mark.parametrize("says", ["", "To log in, visit:\r\n  https://consent.example/\x1b[2J\r\n"])
async def test_a_box_may_take_long_to_greet_and_longer_for_what_a_banner_asks_of_a_person(
    says: str, box: SshdBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "DEAD_AFTER", 0)
    monkeypatch.setattr(login, "SILENT_LOGIN", 0.5 if says else 60)
    for name in ("begin_auth", "validate_public_key"):

        class Slow(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                self.conn = conn

            async def begin_auth(self, username: str) -> bool:
                if says:
                    self.conn.send_auth_banner(says)
                await asyncio.sleep(2 if name == "begin_auth" else 0)  # noqa: B023
                return True

            def public_key_auth_supported(self) -> bool:
                return True

            async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
                await asyncio.sleep(2 if name == "validate_public_key" else 0)  # noqa: B023
                return True

        async with asyncssh.listen(
            "127.0.0.1", 0, server_factory=Slow, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")]
        ) as server:
            options = options_for(box, known_hosts=tmp_path / name, accept_new=True)
            async with await connect(parse(f"a@127.0.0.1:{server.get_port()}"), options, Person()) as link:
                await link.ping()


def test_what_a_banner_asked_is_told_when_nobody_did_it() -> None:
    told = Attempt("far", "far", 22, "a", authenticating=True, box_said="To log in, visit: https://consent.example/")
    assert "It had said: To log in, visit: https://consent.example/" in str(translate(TimeoutError(), told))
