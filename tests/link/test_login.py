"""Logging in as people really do: agent, encrypted keys, passwords, questions of the server; and nobody is asked in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest

from eagle3_console.link.connect import connect
from eagle3_console.link.errors import KeyUnusable, LoginRefused
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions
from eagle3_console.link.target import parse
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.logins import PASSPHRASE, add, agent, locked_copy, whoami
from tests.link.sshd import SshdBox, ordinary_user, running_sshd


async def test_an_encrypted_key_is_asked_for_once(box: SshdBox, tmp_path: Path) -> None:
    key, person = locked_copy(box, tmp_path / "key"), Person(passphrases=[PASSPHRASE])
    assert await whoami(box.address, options_for(box, identity_files=(key,)), person) == box.user
    assert person.asked == [("passphrase", str(key))]


async def test_a_wrong_passphrase_is_asked_for_again(box: SshdBox, tmp_path: Path) -> None:
    key, person = locked_copy(box, tmp_path / "key"), Person(passphrases=["no", "", PASSPHRASE])
    assert await whoami(box.address, options_for(box, identity_files=(key,)), person) == box.user
    assert len(person.asked) == 3


async def test_three_wrong_passphrases(box: SshdBox, tmp_path: Path) -> None:
    key, person = locked_copy(box, tmp_path / "key"), Person(passphrases=["1", "2", "3", PASSPHRASE])
    with pytest.raises(LoginRefused, match=r"wrong passphrase, 3 times"):
        await whoami(box.address, options_for(box, identity_files=(key,)), person)


async def test_an_encrypted_key_and_nobody_to_ask(box: SshdBox, tmp_path: Path) -> None:
    key = locked_copy(box, tmp_path / "key")
    with pytest.raises(LoginRefused, match=r"key \(encrypted, no passphrase was given\).*ssh-add"):
        await whoami(box.address, options_for(box, identity_files=(key,)))


async def test_no_passphrase_for_a_key_that_the_box_does_not_want(box: SshdBox, tmp_path: Path) -> None:
    with running_sshd(box.user, tmp_path / "other") as other:
        foreign = locked_copy(other, tmp_path / "foreign")
    person = Person(passphrases=[PASSPHRASE])
    assert await whoami(box.address, options_for(box, identity_files=(foreign, box.identity_file)), person) == box.user
    assert person.asked == []


async def test_an_encrypted_key_whose_public_half_nobody_knows(box: SshdBox, tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    path = tmp_path / "pkcs8"
    path.write_bytes(key.export_private_key("pkcs8-pem", passphrase=PASSPHRASE))
    person = Person(passphrases=[PASSPHRASE])
    with pytest.raises(LoginRefused, match="pkcs8"):
        await whoami(box.address, options_for(box, identity_files=(path,)), person)
    assert person.asked == [("passphrase", str(path))]


async def test_the_agent(box: SshdBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent(tmp_path) as socket:
        add(socket, box.identity_file)
        config = tmp_path / "config"
        config.write_text(f"IdentityAgent {socket}\n")
        assert await whoami(box.address, options_for(box, identity_files=(), config_files=(config,))) == box.user
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        assert await whoami(box.address, options_for(box, identity_files=())) == box.user
        # the same key lies encrypted in a file: the agent has it, so nobody is asked
        person = Person()
        key = locked_copy(box, tmp_path / "key")
        assert await whoami(box.address, options_for(box, identity_files=(key,)), person) == box.user
        assert person.asked == []


async def test_identities_only_keeps_other_keys_of_the_agent_out(box: SshdBox, tmp_path: Path) -> None:
    with agent(tmp_path) as socket, running_sshd(box.user, tmp_path / "other") as other:
        add(socket, box.identity_file)
        config = tmp_path / "config"
        config.write_text(f"IdentityAgent {socket}\nIdentitiesOnly yes\nIdentityFile {other.identity_file}\n")
        with pytest.raises(LoginRefused) as error:
            await whoami(box.address, options_for(box, identity_files=(), config_files=(config,)))
        assert "agent" not in str(error.value).split("the server allows")[0]
        config.write_text(f"IdentityAgent {socket}\nIdentitiesOnly yes\nIdentityFile {box.identity_file}.pub\n")
        assert await whoami(box.address, options_for(box, identity_files=(), config_files=(config,))) == box.user


async def test_an_agent_that_is_gone_is_named(box: SshdBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    assert await whoami(box.address, options_for(box)) == box.user
    with pytest.raises(LoginRefused, match="the agent \\(it does not answer"):
        await whoami(box.address, options_for(box, identity_files=()))


@pytest.fixture(scope="module")
def password_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdBox]:
    with (
        ordinary_user(password="right horse") as account,
        running_sshd(account.name, tmp_path_factory.mktemp("pw"), "PasswordAuthentication yes") as box,
    ):
        yield box


async def test_a_password_of_an_ordinary_user(password_box: SshdBox) -> None:
    person = Person(passwords=["wrong", "right horse"])
    assert await whoami(password_box.address, options_for(password_box, identity_files=()), person) == password_box.user
    first, second = (asked[1] for asked in person.asked)
    assert first == f"Password for {password_box.user}@127.0.0.1: "
    assert "the last one was wrong" in second


async def test_an_ordinary_user_with_a_key(password_box: SshdBox) -> None:
    assert await whoami(password_box.address, options_for(password_box)) == password_box.user


async def test_a_password_file(password_box: SshdBox, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("right horse\n")
    with pytest.raises(KeyUnusable, match="can be read by others"):
        await whoami(password_box.address, options_for(password_box, identity_files=(), password_file=file))
    file.chmod(0o600)
    assert (
        await whoami(password_box.address, options_for(password_box, identity_files=(), password_file=file))
        == password_box.user
    )
    file.write_text("wrong\n")
    with pytest.raises(LoginRefused, match="tried password, password \\(no answer\\)"):
        await whoami(password_box.address, options_for(password_box, identity_files=(), password_file=file))


class _Waiting(Person):
    """Somebody who does not answer for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.given_up = False

    async def _wait(self) -> str | None:
        self.reached.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return None

    async def password(self, prompt: str) -> str | None:
        return await self._wait()

    async def passphrase(self, path: str) -> str | None:
        return await self._wait()

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        return await self._wait() is not None


@pytest.mark.parametrize("question", ["password", "passphrase", "passphrase of a key without public half", "host key"])
async def test_giving_up_while_somebody_is_asked(password_box: SshdBox, tmp_path: Path, question: str) -> None:
    keys: tuple[Path, ...] = ()
    if question == "passphrase":
        keys = (locked_copy(password_box, tmp_path / "key"),)
    elif question.startswith("passphrase of"):
        keys = (tmp_path / "pkcs8",)
        keys[0].write_bytes(
            asyncssh.generate_private_key("ssh-ed25519").export_private_key("pkcs8-pem", passphrase=PASSPHRASE)
        )
    hosts = tmp_path / "empty" if question == "host key" else password_box.known_hosts
    person = _Waiting()
    running = asyncio.create_task(
        whoami(password_box.address, options_for(password_box, identity_files=keys, known_hosts=hosts), person)
    )
    async with asyncio.timeout(30):
        await person.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.1)
    assert person.given_up
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()] == []


class _Asking(asyncssh.SSHServer):
    """A server with a second factor."""

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        return "Two factors", "From your phone", "", [("Password: ", False), ("Code: ", True)]

    def validate_kbdint_response(self, username: str, responses: list[str]) -> bool:
        return responses == ["horse", "123456"]


@pytest.fixture
async def asking() -> AsyncIterator[str]:
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=_Asking, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")]
    )
    yield f"root@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()


async def test_questions_of_the_server(asking: str) -> None:
    options = SshOptions(config_files=(), accept_new=True)
    person = Person(answers=[["horse", "000000"], ["horse", "123456"]])
    async with await connect(parse(asking), options, person) as link:
        assert await link.ping() >= 0
    assert person.asked == [("challenge", "Two factors", "From your phone", "Password: ", "Code: ")] * 2
    with pytest.raises(LoginRefused, match="keyboard-interactive \\(no answer\\)"):
        await connect(parse(asking), options, RefusingPrompter())
