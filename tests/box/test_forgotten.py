"""An agent whose console vanished without a word ends by itself; one that works, or is spoken to, does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from eagle3_remote.rpc import Connection
from tests.box.client import until

START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from eagle3_remote import agent; agent.FORGOTTEN = 0.2; agent.main()"
)


def test_an_agent_that_is_not_spoken_to_ends(release: Path, home: Path) -> None:
    words = [sys.executable, "-I", "-c", START, str(release)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"EAGLE3_HOME": str(home)}) as one:
        assert one.stdout is not None
        assert json.loads(one.stdout.readline())["method"] == "ready"
        assert one.wait(60) == 0  # its input is still open


class Served:
    """A connection over two pipes that is served in a thread; `release` lets the call `work` return."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.connection = Connection({"work": self._work, "much": lambda params: "x" * 1_000_000})
        source, self._in = os.pipe()
        self._out, out = os.pipe()
        self._files: list[BinaryIO] = [os.fdopen(source, "rb"), os.fdopen(out, "wb")]
        self._thread = threading.Thread(target=self.connection.serve, args=self._files)
        self._thread.start()

    def _work(self, params: Mapping[str, Any]) -> str:
        self.release.wait(60)
        return "done"

    def call(self, method: str) -> None:
        os.write(self._in, json.dumps({"id": 1, "method": method}).encode() + b"\n")

    def close(self) -> None:
        self.release.set()
        os.close(self._out)
        os.close(self._in)
        self._thread.join(60)
        until(lambda: not self.connection._calls)
        for file in self._files:
            file.close()


@pytest.fixture
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.close()


def test_work_is_not_quiet_however_long_ago_it_was_asked_for(served: Served) -> None:
    until(lambda: served.connection.quiet() > 0.05)
    served.call("work")
    until(lambda: served.connection.quiet() == 0)
    served.connection._heard -= 1000  # the call came long ago
    assert served.connection.quiet() == 0
    served.release.set()
    until(lambda: not served.connection._calls)
    assert served.connection.quiet() < 1000  # there is time to ask again


def test_an_answer_that_nobody_takes_is_no_work(served: Served) -> None:
    served.call("much")
    until(lambda: bool(served.connection._answering))
    until(lambda: served.connection.quiet() > 0.05)
    assert served.connection._calls  # it still waits to be written
