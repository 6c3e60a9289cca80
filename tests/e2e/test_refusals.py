"""What can be wrong before anything was begun: one sentence, the documented exit code, and nothing left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from tests.e2e.conftest import Box, Ran, console, free_port


@dataclasses.dataclass(frozen=True)
class Wish:
    """A run that would work: what each test breaks one thing of."""

    box: Box
    model: Path
    data: Path
    out: Path
    dump_dirs: set[Path]

    def words(self, **changed: str | Path | int) -> list[str]:
        chosen = {"model": self.model, "data": self.data, "out": self.out, "port": free_port(), **changed}
        return [*self.box.server_words(), *(f"--{name}={value}" for name, value in chosen.items())]


@pytest.fixture
def wish(box: Box, model: Path) -> Wish:
    data = box.root / "tokenized_data.jsonl"
    data.write_text('{"input_ids": [5, 6, 7]}\n')
    return Wish(box, model, data, box.root / "dataset", dump_dirs())


def refused(ran: Ran, code: int, *parts: str) -> None:
    """One sentence of ours, no traceback, the exit code, nothing on stdout."""
    assert ran.code == code, ran.err
    said = [line for line in ran.err.splitlines() if line.startswith("eagle3-console: ")]
    assert len(said) == 1, ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    for part in parts:
        assert part in said[0]


def dump_dirs() -> set[Path]:
    return set(Path("/dev/shm").glob("eagle3-console/server-*"))


def untouched(wish: Wish) -> None:
    """Nothing of ours on the box: not in its home, not beside the data, no dump directory."""
    assert wish.box.leftovers() == []
    assert not wish.out.exists()
    assert dump_dirs() <= wish.dump_dirs


def test_unknown_host_name(wish: Wish) -> None:
    ran = console("run", "no-such-host.invalid", *wish.box.login[1:], *wish.words())
    refused(ran, 3, "no-such-host.invalid")
    untouched(wish)


def test_refused_port(wish: Wish) -> None:
    port = free_port()
    ran = console("run", f"127.0.0.1:{port}", *wish.box.login[1:], *wish.words())
    refused(ran, 3, str(port))
    untouched(wish)


def test_unknown_host_key(wish: Wish) -> None:
    wish.box.ssh.known_hosts.write_text("")
    ran = console("run", *wish.box.login, *wish.words())
    refused(ran, 4, "SHA256:", "--accept-new-host-key")
    assert wish.box.ssh.known_hosts.read_text() == ""
    untouched(wish)


def test_login_refused(wish: Wish) -> None:
    other = wish.box.root / "other_key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(other))
    login = [word if not word.startswith("--identity") else f"--identity={other}" for word in wish.box.login]
    ran = console("run", *login, *wish.words())
    refused(ran, 4, wish.box.ssh.user)
    untouched(wish)


def test_missing_model_directory(wish: Wish) -> None:
    ran = console("run", *wish.box.login, *wish.words(model="/no/such/model"))
    refused(ran, 5, "/no/such/model")
    untouched(wish)


def test_missing_data_file(wish: Wish) -> None:
    ran = console("run", *wish.box.login, *wish.words(data="/no/such/data.jsonl"))
    refused(ran, 5, "/no/such/data.jsonl")
    untouched(wish)


def test_missing_parent_of_the_output(wish: Wish) -> None:
    out = wish.box.root / "missing" / "dataset"
    ran = console("run", *wish.box.login, *wish.words(out=out))
    refused(ran, 5, str(out), "parent")
    assert not out.parent.exists()
    untouched(wish)


@pytest.mark.parametrize("where", ["another dataset", "the model", "the data", "somebody else's"])
def test_an_output_where_no_dataset_may_lie_is_refused_before_a_server_starts(wish: Wish, where: str) -> None:
    root = wish.box.root
    (root / "old" / ".eagle3").mkdir(parents=True)
    (root / "old" / ".eagle3" / "journal.sqlite3").touch()
    (root / "theirs").mkdir()
    (root / "theirs" / "data-00000-of-00001.arrow").touch()
    out, words = {
        "another dataset": (root / "old" / "hidden_states" / "new", f"lies inside the dataset {root / 'old'}"),
        "the model": (wish.model / "new", f"lies inside the model's folder {wish.model}"),
        "the data": (root, f"holds the data {wish.data}"),
        "somebody else's": (root / "theirs", "which no extraction of ours wrote"),
    }[where]
    out.parent.mkdir(exist_ok=True)
    ran = console("run", *wish.box.login, *wish.words(out=out))
    refused(ran, 5, str(out), words, "choose ")
    assert not any("server-" in name for name in wish.box.leftovers()), "no server was started"
    assert out.exists() == (where in ("the data", "somebody else's"))
    assert dump_dirs() <= wish.dump_dirs


def test_port_in_use(wish: Wish) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        ran = console("run", *wish.box.login, *wish.words(port=port))
    refused(ran, 5, str(port), str(os.getpid()))
    untouched(wish)


def test_python_without_sglang(wish: Wish) -> None:
    ran = console("run", *wish.box.login, *wish.words(python=sys.executable))
    refused(ran, 5, sys.executable, "SGLang")
    untouched(wish)


def test_python_that_is_not_there(wish: Wish) -> None:
    ran = console("run", *wish.box.login, *wish.words(python="/no/such/python"))
    refused(ran, 5, "/no/such/python")
    untouched(wish)


def test_paths_are_asked_for(wish: Wish) -> None:
    ran = console("run", *wish.box.login)
    refused(ran, 2, "--model", "--data", "--out")
    untouched(wish)


@pytest.fixture
async def password_box(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """An SSH server that takes the password ``right`` and nothing else."""

    class Server(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return True

        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return password == "right"

    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen("127.0.0.1", 0, server_factory=Server, server_host_keys=[key])
    known = tmp_path / "known_hosts_password"
    known.write_bytes(b"[127.0.0.1]:%d " % server.get_port() + key.export_public_key())
    yield server.get_port(), known
    server.close()
    await server.wait_closed()


def type_at_prompts(argv: list[str], prompt: re.Pattern[bytes], answer: bytes) -> tuple[int, bytes]:
    """Run a program on a terminal and answer every prompt, as a person does; its exit code and what it showed."""
    command = ["script", "--quiet", "--return", "--command", shlex.join(argv), "/dev/null"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        shown, answered = b"", 0
        while data := os.read(running.stdout.fileno(), 4096):
            shown += data
            if len(prompt.findall(shown)) > answered:
                answered += 1
                running.stdin.write(answer + b"\n")
                running.stdin.flush()
        return running.wait(30), shown


async def test_wrong_password(password_box: tuple[int, Path]) -> None:
    port, known = password_box
    words = ["doctor", f"someone@127.0.0.1:{port}", "--ssh-config=none", f"--known-hosts={known}"]
    argv = [sys.executable, "-m", "eagle3_console", *words]
    code, shown = await asyncio.to_thread(
        type_at_prompts, argv, re.compile(rb"^Password[^\r\n]*:", re.MULTILINE), b"mistyped"
    )
    assert code == 4, shown
    assert b"eagle3-console: " in shown
    assert b"someone" in shown
    assert b"mistyped" not in shown
    assert b"Traceback" not in shown
