"""A handful of numbers from SGLang's ``/metrics`` (Prometheus text, there only with ``--enable-metrics``)."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from typing import Literal

from eagle3_remote.protocol import Phase, ServerMetrics, ServerStatus
from eagle3_remote.server.health import opener, url_of

FLAG = "--enable-metrics"
NAMES: dict[str, tuple[str, Literal["sum", "max"]]] = {
    "running": ("sglang:num_running_reqs", "sum"),
    "queued": ("sglang:num_queue_reqs", "sum"),
    "gen_tps": ("sglang:gen_throughput", "sum"),
    "token_usage": ("sglang:token_usage", "max"),
    "cache_hit_rate": ("sglang:cache_hit_rate", "max"),
}
"""Field of `ServerMetrics` -> the gauge's name, and what several data-parallel ranks come to. The names are the same in
0.5.4.post3 to 0.5.23 (``srt/metrics/collector.py``, from 0.5.10 on ``srt/observability/metrics_collector.py``)."""
EVERY = 2.0
"""Seconds between two questions."""
OLD = 6.0
"""An answer older than this is waited for, for `WAIT` seconds: who attaches late, or looks seldom, is told what is so now."""
WAIT = 0.5
TIMEOUT = 10.0
_MAX_BYTES = 4 << 20
_LINE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse(text: str) -> ServerMetrics:
    """The numbers that a page of metrics has; one that it lacks is `None`.

    Ranks of one data-parallel group tell the same thing, where they tell it at all: the largest of them counts.
    """
    wanted = {name: field for field, (name, _) in NAMES.items()}
    groups: dict[str, dict[str, float]] = {}
    for name, labels, value in _samples(text):
        field = wanted.get(name)
        if field is not None:
            ranks = groups.setdefault(field, {})
            rank = labels.get("dp_rank", "")
            ranks[rank] = max(ranks.get(rank, value), value)
    found = {
        field: (sum if NAMES[field][1] == "sum" else max)(ranks.values()) for field, ranks in groups.items() if ranks
    }
    return ServerMetrics(
        running=_whole(found.get("running")),
        queued=_whole(found.get("queued")),
        gen_tps=found.get("gen_tps"),
        token_usage=found.get("token_usage"),
        cache_hit_rate=found.get("cache_hit_rate"),
    )


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or line.startswith("#"):
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if value == value and abs(value) != float("inf"):  # NaN stands for "no sample"
            yield found["name"], dict(_LABEL.findall(found["labels"] or "")), value


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


class MetricsReader:
    """Asks in the background, one question at a time, and keeps the last answer of the server that runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job = ""
        self._asking = False
        self._answered = threading.Event()
        self._asked = float("-inf")
        self._last: ServerMetrics | None = None

    def read(self, server: ServerStatus) -> ServerMetrics | None:
        """The last answer; `None` where metrics are off, the server is not up, or has not answered yet."""
        if server.job is None or server.spec is None or FLAG not in server.argv:
            return None
        if server.phase not in (Phase.READY, Phase.BUSY):
            return None
        with self._lock:
            if server.job.id != self._job:
                self._job, self._last, self._asked = server.job.id, None, float("-inf")
            age = time.monotonic() - self._asked
            due = not self._asking and age >= EVERY
            if due:
                self._asking = True
                self._answered.clear()
        if due:
            url = url_of(server.spec.host, server.spec.port) + "/metrics"
            threading.Thread(target=self._ask, args=(server.job.id, url), name="metrics", daemon=True).start()
        if age > OLD:
            self._answered.wait(WAIT)
        with self._lock:
            return self._last

    def _ask(self, job: str, url: str) -> None:
        metrics = None
        try:
            with opener().open(url, timeout=TIMEOUT) as answer:
                metrics = parse(answer.read(_MAX_BYTES).decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException):
            pass  # absent is absent; whether the server lives is the health probe's question
        finally:
            with self._lock:
                self._asking, self._asked = False, time.monotonic()
                if job == self._job:
                    self._last = metrics
            self._answered.set()
