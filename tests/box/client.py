"""An agent over real pipes, from a release folder as it lies on a box."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import eagle3_patch
import eagle3_remote
from eagle3_remote.protocol import decode

T = TypeVar("T")

START = "import sys; sys.path.insert(0, {release!r}); from eagle3_remote.agent import main; main()"


def make_release(into: Path) -> Path:
    """Both packages side by side, as the bootstrap unpacks them."""
    for package in (eagle3_remote, eagle3_patch):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, into / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return into


class Answered(Exception):
    """The agent answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class AgentProcess:
    """One agent; its answers are collected by id."""

    def __init__(self, release: Path, home: Path, python: str = sys.executable, env: Mapping[str, str] | None = None):
        self.process = subprocess.Popen(
            [python, "-I", "-c", START.format(release=str(release))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {}), "EAGLE3_HOME": str(home)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._ids = itertools.count(1)
        self.lines: list[bytes] = []
        self.stderr = b""
        self._answers: dict[Any, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)  # nothing but JSON may ever come
            with self._news:
                self.lines.append(line)
                if "id" in message:
                    self._answers[message["id"]] = message
                self._news.notify_all()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, **params: Any) -> int:
        number = next(self._ids)
        self.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        return number

    def answer(self, number: int | None, wait: float = 60.0) -> dict[str, Any]:
        with self._news:
            assert self._news.wait_for(lambda: number in self._answers, wait), f"no answer to {number}: {self.stderr!r}"
            return self._answers.pop(number)

    def call(self, method: str, wait: float = 60.0, **params: Any) -> Any:
        message = self.answer(self.send(method, **params), wait)
        if "error" in message:
            raise Answered(message["error"])
        return message["result"]

    def ask(self, kind: type[T], method: str, wait: float = 60.0, **params: Any) -> T:
        return decode(kind, self.call(method, wait, **params))

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(60)
        self._end()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._end()

    def _end(self) -> None:
        for reader in self._readers:
            reader.join(60)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def agent(
    release: Path, home: Path, python: str = sys.executable, env: Mapping[str, str] | None = None
) -> Iterator[AgentProcess]:
    """A running agent that is ended with the block."""
    one = AgentProcess(release, home, python, env)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.close()


def until(what: Callable[[], T], wait: float = 60.0, every: float = 0.02) -> T:
    """Wait for something to become true, and give it."""
    deadline = time.monotonic() + wait
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"did not become true within {wait} s: {what}"
        time.sleep(every)
