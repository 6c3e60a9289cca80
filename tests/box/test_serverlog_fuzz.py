"""The fold under cuts, repeats, garbage and interleaving: it never raises, and never contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_remote.explain import explained, note
from eagle3_remote.protocol import Phase
from eagle3_remote.serverlog import LogState, feed, view
from tests.box.test_serverlog_causes import CASES

LOGS = [path.read_bytes() for path in sorted((Path(__file__).parent / "logs").rglob("*.log"))]
LINES = sorted({line.encode() for case in CASES for text in case[1] for line in text.split("\n")})
KINDS = st.sampled_from(LINES)
GARBAGE = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"\0" * 20, b"\r", b"\x1b[A", b"\x1b[31m", b"\xff", "█▎".encode(), b"[2026-", b"[20", b"\n\n"]),
)
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b""])
PREFIXES = st.sampled_from(
    [
        b"",
        b"",
        b"sglang-1  | ",
        b"[1,0]<stderr>:",
        b"(SGLangEngine pid=7, ip=1.2.3.4) ",
        b"2026-08-12T09:00:01.1Z stderr F ",
    ]
)
WANTED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def check(data: bytes, cuts: list[int]) -> None:
    """Every way of cutting gives the same, and what is said agrees with itself."""
    whole = feed(LogState(), data)
    state, start = LogState(), 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        state = feed(state, data[start:cut])
        start = max(start, cut)
    assert state == whole
    said = explained("x", whole)
    json.dumps(said)
    assert (said["phase"] == "failed") == (said["failure"] is not None)
    assert said["ready"] == (said["phase"] in ("ready", "serving"))
    if said["failure"] is not None:
        assert said["failure"]["kind"]
        assert said["failure"]["advice"]
        assert said["failure"]["root_cause"]
        assert not (said["failure"]["kind"] == "traceback_cut" and said["failure"]["certain"])
    assert said["file"] in note("x", whole)
    for ended in (False, True):
        log = view(whole, ended=ended)
        assert (log.phase is Phase.FAILED) == (log.failure is not None) == (log.root_cause is not None)


@given(st.lists(st.tuples(PREFIXES, KINDS, ENDS), max_size=40), st.lists(st.integers(0, 100_000), max_size=4))
@settings(max_examples=400, **WANTED)  # type: ignore[arg-type]
def test_lines_in_any_order_and_any_launcher(records: list[tuple[bytes, bytes, bytes]], cuts: list[int]) -> None:
    check(b"".join(prefix + line + end for prefix, line, end in records), cuts)


@given(st.lists(st.one_of(KINDS, GARBAGE), max_size=50), st.lists(st.integers(0, 100_000), max_size=4))
@settings(max_examples=300, **WANTED)  # type: ignore[arg-type]
def test_lines_glued_to_garbage(pieces: list[bytes], cuts: list[int]) -> None:
    check(b"".join(pieces), cuts)


@given(st.sampled_from(LOGS), st.data())
@settings(max_examples=100, **WANTED)  # type: ignore[arg-type]
def test_recorded_logs_cut_repeated_and_damaged(raw: bytes, data: st.DataObject) -> None:
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        parts.append(raw[start : start + data.draw(st.integers(0, 30_000))])
        parts.append(data.draw(GARBAGE))
    check(b"".join(parts), data.draw(st.lists(st.integers(0, 100_000), max_size=3)))


@given(st.sampled_from(LOGS), st.sampled_from(LOGS), st.integers(0, 2**32))
@settings(max_examples=40, **WANTED)  # type: ignore[arg-type]
def test_two_logs_interleaved(one: bytes, other: bytes, seed: int) -> None:
    """As two processes that share a pipe write: line by line, or in the middle of one."""
    random = Random(seed)
    queues, parts = [one[:40_000], other[:40_000]], []
    while any(queues):
        place = random.randrange(2)
        size = random.choice([1, 17, 200, 4096])
        parts.append(queues[place][:size])
        queues[place] = queues[place][size:]
    data = b"".join(parts)
    check(data, [random.randrange(len(data) + 1)])
