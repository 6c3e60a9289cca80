"""A proxy before the real server that meddles with some requests: late, twice, wrong or never. Everything else goes through untouched.

The rows come from real SGLang; only what a client sees of it is spoilt, as a network, an overloaded box or a broken server would.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.extract.quiet import QuietHandler, listening, serving

ACTS = ("good", "late", "twice", "answered twice", "other ids", "other count", "error", "garbage", "cut off", "never")
LATE = 1.0
Meddle = Callable[[str], str]
"""The act for a request id."""


class Meddler:
    """The running proxy."""

    def __init__(self, port: int, meddle: Meddle) -> None:
        self.port, self.meddle = port, meddle
        self.acts: list[str] = []
        self.release = threading.Event()
        self.http = listening(_handler(self))
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def forward(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """What the server answers.

        Raises:
            OSError, http.client.HTTPException: it does not.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def generate(self, body: bytes) -> list[tuple[int, bytes]]:
        """The answers to one request: usually one, sometimes two, none where the connection just ends."""
        asked: dict[str, Any] = json.loads(body)
        act = self.meddle(str(asked.get("rid", "")))
        assert act in ACTS
        if act != "good":
            self.acts.append(act)
        if act == "never":
            self.release.wait(60)
            return []
        if act == "late":
            time.sleep(LATE)
        if act == "error":
            return [(500, b'{"error": {"message": "out of cheese"}}')]
        if act == "other ids":
            body = json.dumps(
                asked | {"input_ids": [*asked["input_ids"][:-1], 7 + asked["input_ids"][-1] % 2]}
            ).encode()
        answers = [self.forward("POST", "/generate", body)]
        if act == "twice":
            answers = [self.forward("POST", "/generate", body)]
        if act == "answered twice":
            return answers * 2
        if act == "garbage":
            return [(200, b"<html>")]
        if act == "cut off":
            return []
        if act == "other count":
            told = json.loads(answers[0][1])
            told["meta_info"]["prompt_tokens"] += 1
            return [(200, json.dumps(told).encode())]
        return answers


def _handler(meddler: Meddler) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self._pass(lambda: [meddler.forward("GET", self.path, b"")])

        def do_POST(self) -> None:
            body = self.body()
            if self.path == "/generate":
                self._pass(lambda: meddler.generate(body))
            else:
                self._pass(lambda: [meddler.forward("POST", self.path, body)])

        def _pass(self, work: Callable[[], list[tuple[int, bytes]]]) -> None:
            try:
                answers = work()
            except (OSError, http.client.HTTPException):
                answers = []
            if not answers:
                self.hang_up()
            for status, body in answers:
                self.answer(status, body)

    return Handler


@contextmanager
def meddler(port: int, meddle: Meddle = lambda rid: "good") -> Iterator[Meddler]:
    """Run it before the server at `port` of this machine."""
    proxy = Meddler(port, meddle)
    with serving(proxy.http, proxy.release):
        yield proxy
