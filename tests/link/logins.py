"""What tests of logins share: a login, an encrypted key, an ssh-agent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.route import SshOptions
from eagle3_console.link.target import parse
from tests.link.asks import Person
from tests.link.sshd import SshdBox, tool

PASSPHRASE = "open sésame"


async def whoami(address: str, options: SshOptions, person: Person | None = None) -> str:
    async with await connect(parse(address), options, person or RefusingPrompter()) as link:
        return (await link.run("id -un", timeout=30)).stdout.decode().strip()


def locked_copy(box: SshdBox, path: Path, *words: str) -> Path:
    """The box's key, encrypted."""
    path.write_bytes(box.identity_file.read_bytes())
    path.chmod(0o600)
    subprocess.run(
        [tool("ssh-keygen"), "-q", "-p", *words, "-P", "", "-N", PASSPHRASE, "-f", str(path)],
        check=True,
        capture_output=True,
    )
    return path


@contextlib.contextmanager
def agent(tmp_path: Path) -> Iterator[Path]:
    """A real ssh-agent."""
    path = tmp_path / "agent"
    process = subprocess.Popen(
        [tool("ssh-agent"), "-D", "-a", str(path)], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until = time.monotonic() + 10
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield path
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def add(socket: Path, key: Path) -> None:
    subprocess.run(
        [tool("ssh-add"), "-q", str(key)],
        check=True,
        capture_output=True,
        env={**os.environ, "SSH_AUTH_SOCK": str(socket)},
    )
