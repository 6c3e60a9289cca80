"""Boxes whose login shell is not what one expects, and whose login scripts talk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_console.link.connect import connect
from eagle3_console.link.errors import ShellRefused
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.shell import MAX_COMMAND_BYTES, command_line
from eagle3_console.link.ssh import SshLink
from eagle3_console.link.target import parse
from tests.link.conftest import options_for
from tests.link.sshd import Account, SshdBox, ordinary_user, running_sshd, tool
from tests.link.test_contract import ODD

NOISE = "echo '" + "welcome to the box, " * 5 + "'\n"
RC_FILES = {"bash": ".bashrc", "zsh": ".zshenv", "csh": ".cshrc", "fish": ".config/fish/config.fish", "dash": None}


@pytest.fixture(scope="module", params=sorted(RC_FILES))
def shell_box(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SshdBox, str]]:
    """An ordinary user with this login shell, whose login script prints 11 kB to both outputs."""
    with (
        ordinary_user(shell=tool(request.param)) as account,
        running_sshd(account.name, tmp_path_factory.mktemp(request.param)) as box,
    ):
        rc = RC_FILES[request.param]
        if rc:
            _install(account, rc, NOISE * 110 + '/bin/sh -c "yes a word on stderr | head -n 600 >&2"\n')
        yield box, request.param


def _install(account: Account, name: str, text: str) -> None:
    path = account.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def _link(box: SshdBox, **changed: object) -> SshLink:
    return await connect(parse(box.address), options_for(box, **changed), RefusingPrompter())


async def test_every_login_shell(shell_box: tuple[SshdBox, str]) -> None:
    box, shell = shell_box
    async with await _link(box) as link:
        noisy = await _raw(link, "exit 0")
        assert (len(noisy) > 10_000) == (RC_FILES[shell] is not None)

        done = await link.run(
            """for word do printf '%s\\0' "$word"; done; echo oops >&2; exit 9""", argv=ODD, timeout=60
        )
        assert done.stdout.split(b"\0")[:-1] == [word.encode() for word in ODD]
        assert (done.exit_status, done.stderr) == (9, b"oops\n")

        script = (
            "\n".join(f": 'line {number} it''s \\ ! $x `y`'" for number in range(1000)) + '\nprintf "%s" "$1"; exec cat'
        )
        done = await link.run(script, argv=("é",), stdin=b"\x00\xff", timeout=60)
        assert done.stdout == "é".encode() + b"\x00\xff"

        channel = await link.open('read -r line; echo "$line"; echo "last words" >&2; exit 4')
        await channel.write(b"ping\n")
        assert await channel.read(100) == b"ping\n"
        assert await channel.wait() == 4
        await channel.close()
        assert channel.stderr_tail() == b"last words\n"


async def _raw(link: SshLink, command: str) -> bytes:
    """What the login shell prints for a plain command, as ssh would show it."""
    done = await link._connection.run(command, encoding=None)
    assert isinstance(done.stdout, bytes)
    return done.stdout


@pytest.mark.parametrize(("shell", "says"), [("nologin", "not available"), ("false", "It said nothing")])
async def test_an_account_without_a_shell(tmp_path: Path, shell: str, says: str) -> None:
    with ordinary_user(shell=tool(shell)) as account, running_sshd(account.name, tmp_path / "box") as box:
        async with await _link(box) as link:
            with pytest.raises(ShellRefused, match=says) as error:
                await link.run("true", timeout=30)
            assert error.value.exit_code == 4
            with pytest.raises(ShellRefused, match=says):
                await link.open("cat")


async def test_a_forced_command(box: SshdBox, tmp_path: Path) -> None:
    with running_sshd(box.user, tmp_path / "box", "ForceCommand echo only backups here") as forced:
        async with await _link(forced) as link:
            with pytest.raises(ShellRefused, match="only backups here"):
                await link.run("true", timeout=30)


async def test_a_box_without_sftp(box: SshdBox) -> None:
    async with await _link(box) as link:
        with pytest.raises(Exception, match="Session request failed"):
            await link._connection.start_sftp_client()
        assert (await link.run("cat >/dev/null && echo stored", stdin=b"x" * 100_000, timeout=30)).stdout == b"stored\n"


def test_what_does_not_fit_is_refused_here() -> None:
    assert len(command_line("x" * 100_000, (), "mark")) <= MAX_COMMAND_BYTES
    with pytest.raises(ValueError, match="Send large data over its input"):
        command_line("x" * MAX_COMMAND_BYTES, (), "mark")
    with pytest.raises(ValueError, match="NUL"):
        command_line("echo", ("a\0b",), "mark")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30), max_size=4))
def test_any_words_survive_a_login_shell(words: list[str]) -> None:
    async def through(shell: str) -> bytes:
        line = command_line("""for word do printf '%s\\0' "$word"; done""", words, "mark")
        process = await asyncio.create_subprocess_exec(
            shell, "-c", line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0].partition(b"mark\n")[2]

    async def both() -> list[bytes]:
        return list(await asyncio.gather(through(tool("csh")), through(tool("dash"))))

    assert asyncio.run(both()) == [b"".join(word.encode() + b"\0" for word in words)] * 2
