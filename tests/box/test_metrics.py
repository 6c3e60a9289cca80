"""Numbers out of a page of metrics; what is not there is not a zero."""

from __future__ import annotations

from eagle3_remote.metrics import parse
from eagle3_remote.protocol import ServerMetrics

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
