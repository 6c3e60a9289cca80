"""A login begins with a key that bothers nobody; the box is asked nothing before, and everything when it refused the key."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import pytest

from eagle3_console.link.errors import LoginRefused
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.logins import PASSPHRASE, add, agent, locked_copy, whoami
from tests.link.sshd import SshdBox, ordinary_user, running_sshd, tool


def offers(box: SshdBox) -> list[str]:
    """What the box says of the keys that were offered: ``Postponed`` for a question, ``Accepted`` or ``Failed`` for a signature."""
    said = box.log.read_text(errors="replace").splitlines()
    return [line.split()[0] for line in said if " publickey for " in line]


async def test_a_key_that_bothers_nobody_signs_without_a_question_before(box: SshdBox, tmp_path: Path) -> None:
    before = len(offers(box))
    assert await whoami(box.address, options_for(box)) == box.user
    assert offers(box)[before:] == ["Accepted"]
    with running_sshd(box.user, tmp_path / "other") as other:
        before, keys = len(offers(box)), (other.identity_file, box.identity_file)
        assert await whoami(box.address, options_for(box, identity_files=keys)) == box.user
    assert offers(box)[before:] == ["Failed", "Accepted"]


def ways(box: SshdBox) -> list[str]:
    """The ways of logging in that were tried, as the box counts them."""
    return re.findall(r"userauth-request for user .* method (\S+)", box.log.read_text(errors="replace"))


@pytest.mark.parametrize(
    ("kind", "tried"),
    [
        ("open", ["publickey"]),
        ("refused", ["publickey", "none", "publickey"]),
        ("encrypted", ["none", "publickey", "publickey"]),
        ("of an agent", ["none", "publickey", "publickey"]),
        ("not preferred", ["none", "publickey"]),
    ],
)
async def test_a_login_begins_with_a_key_that_bothers_nobody(tmp_path: Path, kind: str, tried: list[str]) -> None:
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(running_sshd("root", tmp_path / "box", "LogLevel DEBUG\nPasswordAuthentication yes"))
        keys, lines, person = (box.identity_file,), "", None
        if kind == "refused":
            other = stack.enter_context(running_sshd("root", tmp_path / "other"))
            keys = (other.identity_file, box.identity_file)
        if kind == "encrypted":
            keys, person = (locked_copy(box, tmp_path / "key"),), Person(passphrases=[PASSPHRASE])
        if kind == "of an agent":
            socket = stack.enter_context(agent(tmp_path))
            add(socket, box.identity_file)
            keys, lines = (), f"IdentityAgent {socket}\n"
        if kind == "not preferred":
            lines = "PreferredAuthentications password,publickey\n"
        config = tmp_path / "config"
        config.write_text(lines)
        assert (
            await whoami(box.address, options_for(box, identity_files=keys, config_files=(config,)), person) == "root"
        )
        assert ways(box) == tried


async def test_a_box_that_has_enough_of_us_with_the_first_key_is_dialled_again(tmp_path: Path) -> None:
    """It would have let the person in with a password, which is asked for once the box was asked how."""
    with ordinary_user(password="right horse") as account, running_sshd("root", tmp_path / "other") as other:
        config = "PasswordAuthentication yes\nMaxAuthTries 1\nLogLevel DEBUG\nPubkeyAuthentication no"
        with running_sshd(account.name, tmp_path / "box", config) as box:
            person = Person(passwords=["right horse"])
            assert await whoami(box.address, options_for(box, identity_files=(other.identity_file,)), person)
            assert ways(box) == ["publickey", "none", "password"]
            assert box.log.read_text(errors="replace").count("Too many authentication failures") == 1
            with pytest.raises(LoginRefused):
                await whoami(box.address, options_for(box, identity_files=(other.identity_file,)), Person())


async def test_a_box_that_lets_people_in_without_a_key(tmp_path: Path) -> None:
    """It is asked so when it refused the key that the login began with."""
    with ordinary_user() as account:
        subprocess.run([tool("passwd"), "-d", account.name], check=True, capture_output=True)  # noqa: ASYNC221 - before the login
        config = "PasswordAuthentication yes\nPermitEmptyPasswords yes\nLogLevel DEBUG\nPubkeyAuthentication no"
        with running_sshd(account.name, tmp_path, config) as box:
            assert await whoami(box.address, options_for(box)) == account.name
            assert ways(box) == ["publickey", "none"]


async def test_a_key_that_somebody_has_to_be_asked_for_is_offered_first(box: SshdBox, tmp_path: Path) -> None:
    before = len(offers(box))
    key = locked_copy(box, tmp_path / "key")
    with running_sshd(box.user, tmp_path / "other") as other:  # an open key before it changes nothing
        keys = (other.identity_file, key)
        assert await whoami(box.address, options_for(box, identity_files=keys), Person(passphrases=[PASSPHRASE]))
    assert offers(box)[before:] == ["Failed", "Postponed", "Accepted"]
    before = len(offers(box))
    with agent(tmp_path) as socket:  # an agent may ask its owner for each signature
        add(socket, box.identity_file)
        config = tmp_path / "config"
        config.write_text(f"IdentityAgent {socket}\n")
        assert await whoami(box.address, options_for(box, identity_files=(), config_files=(config,))) == box.user
    assert offers(box)[before:] == ["Postponed", "Accepted"]
