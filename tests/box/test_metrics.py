"""Numbers out of a page of metrics; what is not there is not a zero."""

from __future__ import annotations

import dataclasses
import http.server
import threading
from collections.abc import Iterator

import pytest

from eagle3_remote.protocol import JobState, JobStatus, Phase, ServerMetrics, ServerSpec, ServerStatus
from eagle3_remote.server import metrics
from eagle3_remote.server.metrics import parse

PAGE = """# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="/m/a b,c\\"d}",pp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs_offline_batch{tp_rank="0"} 90.0
sglang:num_queue_reqs{tp_rank="0"} 2.0
sglang:gen_throughput{tp_rank="0"} 63.5 1790000000000
sglang:token_usage{tp_rank="0"} 0.25
sglang:cache_hit_rate{tp_rank="0"} NaN
sglang:time_to_first_token_seconds_bucket{le="0.1"} 5
broken line
sglang:num_queue_reqs
"""


def test_a_page() -> None:
    assert parse(PAGE) == ServerMetrics(running=3, queued=2, gen_tps=63.5, token_usage=0.25, cache_hit_rate=None)


def test_data_parallel_ranks_add_up_and_tensor_parallel_ranks_do_not() -> None:
    page = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {4 + dp}\n'
        f'sglang:token_usage{{dp_rank="{dp}",tp_rank="{tp}"}} 0.{dp + 1}\n'
        for dp in range(2)
        for tp in range(4)
    )
    assert parse(page) == ServerMetrics(running=9, token_usage=0.2)


def test_a_page_of_something_else_says_nothing() -> None:
    assert parse("<html>404</html>") == ServerMetrics()
    assert parse("") == ServerMetrics()


class Page(http.server.BaseHTTPRequestHandler):
    """A stand-in for a server's HTTP side: each time it is asked one more request runs."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        body = f"sglang:num_running_reqs {self.asked}.0\n".encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[ServerStatus]:
    Page.asked = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    job = JobStatus("server-x", "server", JobState.RUNNING, 1, None, 0.0, None, "/r", "/r/out.log", 0, 0)
    spec = ServerSpec(model="/m", python="/p", port=server.server_port)
    yield ServerStatus(Phase.READY, "", job=job, spec=spec, argv=("python", metrics.FLAG))
    server.shutdown()
    thread.join()
    server.server_close()


def test_who_attaches_late_or_looks_seldom_is_told_what_is_so_now(
    served: ServerStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = metrics.MetricsReader()
    assert reader.read(served) == ServerMetrics(running=1)
    assert reader.read(served) == ServerMetrics(running=1)  # asked a moment ago
    monkeypatch.setattr(metrics, "EVERY", 0.0)
    monkeypatch.setattr(metrics, "OLD", 0.0)
    assert reader.read(served) == ServerMetrics(running=2)


def test_off_or_not_up_is_not_asked(served: ServerStatus) -> None:
    reader = metrics.MetricsReader()
    assert reader.read(dataclasses.replace(served, argv=("python",))) is None
    assert reader.read(dataclasses.replace(served, phase=Phase.LOADING_WEIGHTS)) is None
    assert Page.asked == 0
