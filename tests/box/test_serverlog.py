"""The fold of a server's log: every recorded log, every way of cutting it, garbage, and the patch's own lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_patch.layout import MARKER_CHECKED, MARKER_READY, MARKER_REFUSED
from eagle3_remote.explain import explained
from eagle3_remote.protocol import Phase, ServerLog, encode
from eagle3_remote.serverlog import MAX_LINE, LogState, feed, local_seconds, view

LOGS = Path(__file__).parent / "logs"
EXPECTED: dict[str, dict[str, Any]] = json.loads((LOGS / "expected.json").read_text())
MARKER = {
    "patch": "0.1.0",
    "sglang": "0.5.23",
    "model_class": "LlamaForCausalLM",
    "num_layers": 8,
    "hidden_size": 64,
    "boundaries": [2, 4, 5],
    "final": "pre",
    "layout": "safetensors",
    "tp_rank": 0,
    "tp_size": 2,
    "writes": True,
    "dump_dir": "/dev/shm/x",
}
PIECES = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b"\x1b[A",
    b"\x1b[1;33m",
    b"\xff\xfe",
    "█▎".encode(),
    b"[2026-08-12 09:00:01 TP0] ",
    b"[2026-08-12 09:00:01] server_args=ServerArgs(model_path='x')",
    b"Load weight begin. avail mem=1 GB",
    b"Load weight end. elapsed=1 s, type=A, avail mem=1 GB",
    b"Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00s/it]",
    b"Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:04<00:00,  1.00s/it]",
    b"Prefill batch, #new-seq: 1, #cached-token: 3, #running-req: 0, input throughput (token/s): 1.5",
    b"The server is fired up and ready to roll!",
    b"Scheduler hit an exception: Traceback (most recent call last):",
    b"torch.OutOfMemoryError: CUDA out of memory. Tried",
    b"SIGQUIT received. signum=None",
    MARKER_READY.encode() + json.dumps(MARKER).encode(),
    MARKER_REFUSED.encode() + b'{"reason": "no"}',
    MARKER_REFUSED.encode() + b"[]",
    b"max_total_num_tokens=99999999999999999999, chunked_prefill_size=None, context_len=1",
    b"[9999-99-99 99:99:99] x",
]


def fold(data: bytes) -> ServerLog:
    return view(feed(LogState(), data))


def lines(*texts: str) -> ServerLog:
    return fold("".join(f"{text}\n" for text in texts).encode())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_logs(name: str) -> None:
    said = explained(name, feed(LogState(), (LOGS / name).read_bytes()))
    failure = said["failure"] and {key: said["failure"][key] for key in ("kind", "root_cause", "rank", "certain")}
    shards = said["shards"] and {key: said["shards"][key] for key in ("done", "total", "rate", "unit")}
    told = {key: said[key] for key in ("phase", "reached", "ready", "ranks")}
    assert {**told, "shards": shards, "failure": failure} == EXPECTED[name]


def test_no_recorded_log_is_forgotten() -> None:
    assert {str(path.relative_to(LOGS)) for path in LOGS.rglob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_logs_byte_by_byte(name: str) -> None:
    data = (LOGS / name).read_bytes()[:20_000]
    state = LogState()
    for place in range(len(data)):
        state = feed(state, data[place : place + 1])
    assert state == feed(LogState(), data)


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=40), st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_two_pieces_equal_one(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    halves = feed(feed(LogState(), whole[:cut]), whole[cut:])
    assert halves == feed(LogState(), whole)
    encode(view(halves, ended=True))  # looks at the cut line as well, and must not fail on it


@given(st.sampled_from(sorted(EXPECTED)), st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_recorded_logs_never_fail(name: str, data: st.DataObject) -> None:
    raw = (LOGS / name).read_bytes()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    junk = data.draw(st.binary(max_size=30))
    whole = raw[start:end] + junk + raw[:start]
    cut = data.draw(st.integers(0, len(whole)))
    assert feed(feed(LogState(), whole[:cut]), whole[cut:]) == feed(LogState(), whole)


def test_the_last_line_inside_dockers_json_is_the_last_however_it_is_cut() -> None:
    data = b'a plain line\n{"log":"the page server is up\\n","stream":"stderr"}\n'
    for cut in range(len(data)):
        assert view(feed(feed(LogState(), data[:cut]), data[cut:])).last_line == "the page server is up"


def test_memory_is_bounded_by_one_line() -> None:
    state = LogState()
    for _ in range(40):
        state = feed(state, b"x" * MAX_LINE)
        assert len(state.tail) <= MAX_LINE
    assert len(state.last_line) < 1000
    state = feed(state, b"\nThe server is fired up and ready to roll!\n")
    assert view(state).phase is Phase.READY


def test_the_patch_reports_every_rank_once() -> None:
    other = {**MARKER, "tp_rank": 1, "writes": False}
    log = lines(
        MARKER_READY + json.dumps(other),
        "[2026-08-12 09:00:01 TP0] " + MARKER_READY + json.dumps(MARKER) + "[2026-08-12 09:00:01 TP1] glued",
        MARKER_READY + json.dumps(MARKER),
        MARKER_READY + '{"patch": 3}',
        MARKER_READY + '{"patch": "0.1',
    )
    assert [(one.tp_rank, one.writes, one.boundaries) for one in log.markers] == [
        (0, True, (2, 4, 5)),
        (1, False, (2, 4, 5)),
    ]


def test_the_patch_has_checked_its_rows_once_a_rank_says_so() -> None:
    ready = MARKER_READY + json.dumps(MARKER)
    assert not lines(ready).checked
    assert lines(ready, MARKER_CHECKED + '{"rows": 19, "ranks": 2}').checked


def test_the_patch_refuses() -> None:
    log = lines(MARKER_REFUSED + json.dumps({"reason": "pipeline parallel is on"}), "SIGQUIT received.")
    assert log.phase is Phase.FAILED
    assert log.refused == log.root_cause == "pipeline parallel is on"
    assert log.failure == "patch_refused"


def test_all_ranks_must_have_loaded() -> None:
    begin = ["[2026-08-12 09:00:01 TP0] Load weight begin.", "[2026-08-12 09:00:01 TP1] Load weight begin."]
    end = "[2026-08-12 09:05:01 {}] Load weight end. elapsed=300 s, type=X, avail mem=1 GB"
    assert lines(*begin, end.format("TP1")).phase is Phase.LOADING_WEIGHTS
    assert lines(*begin, end.format("TP1"), end.format("TP0")).phase is Phase.FINISHING_WEIGHTS


def test_a_full_bar_is_not_the_end_of_loading() -> None:
    bar = "Loading safetensors checkpoint shards: 100% Completed | 64/64 [09:00<00:00,  8.00s/it]"
    log = lines("[2026-08-12 09:00:01] Load weight begin.", bar)
    assert (log.phase, log.shards_done, log.shards_total) == (Phase.FINISHING_WEIGHTS, 64, 64)


def test_a_second_server_in_the_same_file_begins_anew() -> None:
    first = (LOGS / "real" / "sglang_0.5.9_crash_token_id_out_of_range.log").read_bytes()
    log = fold(first + b"[2026-11-29 18:00:00] server_args=ServerArgs(model_path='x')\n")
    assert (log.phase, log.failure, log.cached_tokens) == (Phase.SPAWNING, None, 0)


def test_times_count_from_the_start_of_the_job() -> None:
    started = 1_790_000_000.0
    text = "[2026-09-21 13:33:40] Load weight begin.\n"
    state = feed(LogState(), text.encode())
    assert state.first_stamp is not None
    log = view(state, origin=state.first_stamp - 4.0)
    assert [(span.phase, span.at) for span in log.spans] == [(Phase.SPAWNING, None), (Phase.LOADING_WEIGHTS, 4.0)]
    assert view(state, origin=state.first_stamp + 9.0).spans[-1].at is None  # a clock that was set back: no time
    assert local_seconds(started + 5.0) - local_seconds(started) == 5.0


def test_prefill_lines_of_all_versions() -> None:
    old = lines("[2026-08-12 09:00:01 TP0] Prefill batch. #new-seq: 1, #new-token: 8, #queue-req: 2, ")
    assert old.prefill_tps is None
    new = lines(
        "[2026-08-12 09:00:01 TP0] Prefill batch [7], #new-seq: 1, #new-token: 8, #cached-token: 5, full token usage: "
        "0.1, swa token usage: 0.2, #running-req: 3, #queue-req: 2, cuda graph: False, input throughput (token/s): 9.5, "
        "fwd occupancy: 3.1%"
    )
    assert (new.running_requests, new.queued_requests, new.cached_tokens, new.prefill_tps) == (3, 2, 5, 9.5)


TRACE = "Traceback (most recent call last):"
FATAL = f"[2026-08-12 09:00:09 TP1] Scheduler hit an exception: {TRACE}"
LOADING = "[2026-08-12 09:00:01 TP1] Load weight begin. avail mem=1 GB"
KV = "[2026-08-12 09:00:02 TP1] KV Cache is allocated. #tokens: 1"
CAPTURE = "[2026-08-12 09:00:02 TP1] Capture target decode CUDA graph begin. backend=full"
READY = "[2026-08-12 09:00:03] The server is fired up and ready to roll!"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
QUIT = "[2026-08-12 09:00:10] SIGQUIT received. signum=None, frame=None. It usually means one child failed."


@pytest.mark.parametrize(
    ("texts", "kind", "advice"),
    [
        ((LOADING, FATAL, OOM), "cuda_oom", "weights do not fit"),
        ((LOADING, KV, FATAL, OOM), "cuda_oom", "decrease --mem-fraction-static"),
        ((KV, CAPTURE, FATAL, OOM, QUIT), "cuda_oom", "--disable-cuda-graph"),
        ((READY, FATAL, OOM, QUIT), "cuda_oom", "--chunked-prefill-size"),
        (
            (FATAL, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", QUIT),
            "kv_pool_too_small",
            "increase --mem-fraction-static",
        ),
        (
            (FATAL, "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
            "corrupt_safetensors",
            "damaged",
        ),
        ((FATAL, "RuntimeError: Cannot find any model weights with `/m`"), "missing_weights", "missing"),
        ((FATAL, "RuntimeError: CUDA error: invalid device ordinal"), "invalid_device", "CUDA_VISIBLE_DEVICES"),
        ((FATAL, "OSError: [Errno 28] No space left on device: '/dev/shm/x'"), "shm_too_small", "/dev/shm"),
        ((FATAL, "OSError: [Errno 28] No space left on device: '/data/x'"), "disk_full", "/data/x"),
        ((FATAL, "ValueError: Something new"), "scheduler_exception", "lines above"),
        (("launch_server.py: error: unrecognized arguments: --foo",), "bad_args", "argument"),
        (
            (
                "[2026-08-12 09:00:09 TP3] Watchdog caught collective operation timeout: WorkNCCL",
                FATAL,
                "X.DistBackendError: y",
                QUIT,
            ),
            "nccl_timeout",
            "One rank waited",
        ),
        (("Fatal Python error: Bus error",), "sigbus", "--shm-size"),
        (
            ("[2026-08-12 09:00:09] Rank 0 scheduler is dead. Please check", "[2026-08-12 09:00:09] Exit code: -9"),
            "host_oom_kill",
            "dmesg",
        ),
        ((QUIT,), "unknown_child_failure", "above"),
        (
            (FATAL, "  File 'x', line 1", "IndexError: index out of range in self", QUIT),
            "scheduler_exception",
            "vocab_size",
        ),
    ],
)
def test_causes(texts: tuple[str, ...], kind: str, advice: str) -> None:
    log = lines(*texts)
    assert log.phase is Phase.FAILED
    assert log.failure == kind
    assert log.advice is not None
    assert advice in log.advice


def test_a_cause_beats_its_consequences_whatever_comes_first() -> None:
    died = "[2026-08-12 09:00:09] Subprocess scheduler_0 (pid=4) crashed with exit code 1. Triggering SIGQUIT for cleanup..."
    peer = "RuntimeError: [gloo] Connection closed by peer [10.0.0.1]:1"
    for texts in ((died, QUIT, FATAL, OOM), (FATAL, OOM, died, QUIT), (FATAL, peer, FATAL, OOM, QUIT)):
        assert lines(*texts).failure == "cuda_oom"


@pytest.mark.parametrize(
    "texts",
    [
        (
            f"[2026-08-12 09:00:09] Can not initialize OpenAIServingResponses, error: {TRACE}",
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("[2026-08-12 09:00:09] Ignore import error when loading sglang.srt.models.x: No module named 'vllm'",),
        (
            "[2026-08-12 09:00:09] [http_server] Error: The input (9000 tokens) is longer than the model's context length",
        ),
        ("[2026-08-12 09:00:09] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)",),
        (TRACE, "ImportError: optional"),
    ],
)
def test_harmless_lines_are_no_failure(texts: tuple[str, ...]) -> None:
    log = lines(*texts, READY)
    assert (log.phase, log.failure) == (Phase.READY, None)


@pytest.mark.parametrize(
    "said",
    [
        "my pod was OOMKilled, why?",
        "double free or corruption",
        "Watchdog caught collective operation timeout",
        "SIGQUIT received.",
        "Scheduler hit an exception: x",
        "Gracefully exiting...",
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00s/it]",
        "[2026-08-12 09:00:09 TP7] Load weight begin.",
    ],
)
@pytest.mark.parametrize(
    "shape",
    [
        "[2026-08-12 09:01:00] Receive: obj=GenerateReqInput(rid='a', text='{}')",
        "[2026-08-12 09:01:00] Finish: obj=GenerateReqInput(rid='a'), out={{'text': '{}'}}",
        '{{"timestamp": "2026-08-12T09:01:00", "event": "request.received", "rid": "a", "obj": {{"text": "{}"}}}}',
    ],
)
def test_what_a_logged_request_says_is_not_what_the_server_says(shape: str, said: str) -> None:
    before = feed(LogState(), f"{LOADING}\n{READY}\n".encode())
    after = feed(before, (shape.format(said) + "\n").encode())
    assert {**explained("x", after), "last_line": ""} == {**explained("x", before), "last_line": ""}
    assert view(after).phase is Phase.READY


def test_what_other_processes_write_around_a_logged_request_still_counts() -> None:
    glued = f"{FATAL}[2026-08-12 09:00:09] Receive: obj=GenerateReqInput(rid='a', text='x')"
    assert lines(READY, glued, "ValueError: Something new", QUIT).failure == "scheduler_exception"


def test_an_error_that_was_harmless_while_it_ran_is_the_cause_once_it_is_dead() -> None:
    state = feed(
        LogState(),
        f"{TRACE}\n  File 'a', line 1\nOSError: /m does not appear to have a file named config.json\n".encode(),
    )
    assert view(state).failure is None
    assert view(state, ended=True).failure == "missing_weights"


def test_nothing_is_invented() -> None:
    assert view(feed(LogState(), b"some line\n"), ended=True).failure is None


def test_what_a_server_got_over_before_it_was_ready_is_not_why_it_died() -> None:
    """0.5.23 without a warm-up asks its own port before that listens, and logs the exception."""
    early = b"""[2026-11-30 00:33:09] something about the port
Traceback (most recent call last):
  File "connection.py", line 73, in create_connection
ConnectionRefusedError: [Errno 111] Connection refused
"""
    log = early + b"[2026-11-30 00:33:09] The server is fired up and ready to roll!\n"
    assert (
        view(feed(LogState(), early), ended=True).root_cause == "ConnectionRefusedError: [Errno 111] Connection refused"
    )
    assert view(feed(LogState(), log), ended=True).root_cause is None
    later = b"Traceback (most recent call last):\nValueError: of this it died\n"
    assert view(feed(LogState(), log + later), ended=True).root_cause == "ValueError: of this it died"


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE])
def test_a_line_that_is_too_long_is_cut_the_same_wherever_it_was_received(length: int) -> None:
    whole = b"\n".join([b"The server is fired up and ready to roll!", b"x" * length + b" SIGTERM received", b"end"])
    for cut in (0, 1, 50, MAX_LINE // 2, MAX_LINE, len(whole) - 5):
        assert feed(feed(LogState(), whole[:cut]), whole[cut:]) == feed(LogState(), whole)
    assert view(feed(LogState(), whole)).phase is Phase.READY


def test_a_hole_of_nuls_costs_nothing_and_hides_nothing() -> None:
    state = feed(LogState(), b"[2026-08-12 09:00:01 TP0] Load weight be" + b"\0" * 5_000_000 + b"gin. avail mem=1 GB\n")
    assert view(state).phase is Phase.LOADING_WEIGHTS
