"""The console as a person runs it: a command in a process of its own, against a box reached over SSH."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.box import EmbeddedBox, embedded_box
from eagle3_console.demo.testbed import install


@dataclasses.dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def console(*words: str | Path, timeout: float = 600, env: dict[str, str] | None = None) -> Ran:
    """Run ``eagle3-console`` with `words`."""
    argv = [sys.executable, "-m", "eagle3_console", *map(str, words)]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@dataclasses.dataclass(frozen=True)
class Box:
    """An embedded box and the words that log in to it."""

    ssh: EmbeddedBox
    bed: install.TestBed
    root: Path

    @property
    def login(self) -> list[str]:
        return [
            self.ssh.address,
            "--ssh-config=none",
            f"--identity={self.ssh.identity_file}",
            f"--known-hosts={self.ssh.known_hosts}",
        ]

    def server_words(self) -> list[str]:
        """The Python of the test bed, and the flags that SGLang needs on a CPU."""
        return [f"--python={self.bed.python}", *(f"--server-arg={arg}" for arg in self.bed.server_args)]

    def leftovers(self) -> list[str]:
        """What lies in the home of the box."""
        return sorted(str(path.relative_to(self.ssh.home)) for path in self.ssh.home.rglob("*"))


class Hosted:
    """The embedded box in an event loop of its own thread, so that tests may block."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded box")
        self._thread.start()
        self._context = embedded_box(root, env)
        self.box = asyncio.run_coroutine_threadsafe(self._context.__aenter__(), self._loop).result(30)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._context.__aexit__(None, None, None), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture(scope="session")
def bed() -> install.TestBed:
    return install.ensure(install.VERSIONS[-1])


@pytest.fixture
def box(tmp_path: Path, bed: install.TestBed) -> Iterator[Box]:
    """A box with SGLang on it, empty otherwise."""
    hosted = Hosted(tmp_path, bed.env)
    try:
        yield Box(hosted.box, bed, tmp_path)
    finally:
        console("extract", "stop", *Box(hosted.box, bed, tmp_path).login)
        console("server", "stop", *Box(hosted.box, bed, tmp_path).login)
        hosted.close()


@pytest.fixture(scope="session")
def model(bed: install.TestBed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama in bfloat16, in several shards."""
    path = tmp_path_factory.mktemp("models") / "llama"
    make(bed, "make_model.py", "llama", path)
    return path


def make(bed: install.TestBed, script: str, *words: str | Path) -> None:
    """Run one of the test bed's makers."""
    subprocess.run([bed.python, install.HERE / script, *map(str, words)], check=True, capture_output=True, timeout=120)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
