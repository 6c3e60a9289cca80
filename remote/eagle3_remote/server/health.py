"""Is the server's HTTP side alive? Asked in the background; one question at a time, the last answer is kept."""

from __future__ import annotations

import dataclasses
import http.client
import threading
import time
import urllib.error
import urllib.request

from eagle3_remote.server.apikey import Authorize

EVERY_GOOD, EVERY_BAD = 5.0, 0.5
"""Seconds between two questions after a good and after a bad answer."""
FIRST_WAIT = 1.0
"""Seconds that the very first look waits for its answer, so that who attaches late is told the truth at once."""
TIMEOUT = 25.0
"""SGLang itself gives up on a health request after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT)."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """How often a question is asked, in seconds, and how long its answer may take."""

    good: float = EVERY_GOOD
    bad: float = EVERY_BAD
    timeout: float = TIMEOUT
    first_wait: float = FIRST_WAIT


SCHEDULERS = Pace(good=15.0, bad=5.0, timeout=10.0, first_wait=0.0)
"""For a question that goes through every scheduler: it costs each a few milliseconds between two batches."""
UNPROVEN = 120.0
"""Seconds between two such questions to a server that has answered none yet (see `asks_schedulers`)."""


@dataclasses.dataclass(frozen=True)
class Health:
    """What is known of one server's health."""

    ok: bool = False
    """The last answer was 200."""
    ms: float | None = None
    """How long the last good answer took."""
    failures: int = 0
    """In a row, since the last good answer."""
    failing_for: float = 0.0
    """Seconds since the first of them."""


def opener() -> urllib.request.OpenerDirector:
    """For requests to this machine: proxies of the environment are not used, and a server that asks for a key gets it."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), Authorize)


def url_of(host: str, port: int) -> str:
    """Where a server that listens on `host` is reached from this machine."""
    near = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    if ":" in near and not near.startswith("["):
        near = f"[{near}]"
    return f"http://{near}:{port}"


def asks_schedulers(version: tuple[int, int, int]) -> str:
    """The path of a GET that no server answers whose schedulers hang, and that computes nothing.

    It asks each scheduler for its internal state (``managers/tokenizer_*_mixin.py``, ``get_internal_state``). Up to
    0.5.9 at least, the answer is not read before the server's first ``/generate``: only there silence means nothing.
    """
    return "/server_info" if version >= (0, 5, 6) else "/get_server_info"


class HealthProbe:
    """One server's health endpoint.

    Args:
        url: the whole address to GET.
        pace: how often it is asked; `None`: the pace of a health question.
        any_answer: whatever is answered counts as good, a refusal too.
    """

    def __init__(self, url: str, pace: Pace | None = None, *, any_answer: bool = False) -> None:
        self.url = url
        self._pace = pace or Pace(EVERY_GOOD, EVERY_BAD, TIMEOUT, FIRST_WAIT)
        self._any_answer = any_answer
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._asking = False
        self._asked = float("-inf")
        self._health = Health()
        self._failing_since: float | None = None

    def poll(self, at_least: float = 0.0) -> Health:
        """The last answer; asks anew in the background when that is old, at most every `at_least` seconds."""
        with self._lock:
            now = time.monotonic()
            every = max(at_least, self._pace.good if self._health.ok else self._pace.bad)
            due = not self._asking and now - self._asked >= every
            self._asking = self._asking or due
        if due:
            threading.Thread(target=self._ask, name="health", daemon=True).start()
        self._answered.wait(self._pace.first_wait)
        with self._lock:
            health = self._health
            if self._failing_since is not None:
                health = dataclasses.replace(health, failing_for=time.monotonic() - self._failing_since)
        return health

    def _ask(self) -> None:
        begun = time.monotonic()
        try:
            with opener().open(self.url, timeout=self._pace.timeout) as answer:
                answer.read()
                ok = answer.status == 200
        except urllib.error.HTTPError as error:
            error.close()
            ok = self._any_answer
        except (OSError, http.client.HTTPException):  # URLError is an OSError
            ok = False
        ended = time.monotonic()
        with self._lock:
            self._asking, self._asked = False, ended
            if ok:
                self._health, self._failing_since = Health(True, (ended - begun) * 1000.0), None
            else:
                self._failing_since = self._failing_since or begun
                self._health = Health(False, self._health.ms, self._health.failures + 1)
        self._answered.set()
