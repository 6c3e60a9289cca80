"""The sieve of a log's fold: what it takes out changes nothing, whatever stands around it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_patch.layout import MARKER_CHECKED, MARKER_READY, MARKER_REFUSED
from eagle3_remote.serverlog import LogState, feed, fold
from eagle3_remote.serverlog.sieve import Kind, kind, sift
from eagle3_remote.serverlog.words import BENIGN, COUNTS, KEY, LOAD_BEGIN, LOAD_END, STAGES, TROUBLES, WORDS
from tests.box.test_serverlog_causes import CASES

LOGS = [path.read_bytes() for path in sorted((Path(__file__).parent / "logs").rglob("*.log"))]
KNOWN = sorted({line for log in LOGS for line in log.replace(b"\r", b"\n").split(b"\n") if len(line) < 2000})
TOLD = sorted({line.encode() for case in CASES for text in case[1] for line in text.split("\n")})
OTHER_WORDS = (LOAD_BEGIN, LOAD_END, MARKER_READY, MARKER_CHECKED, MARKER_REFUSED)
STARTS = [line for line in KNOWN if b"] server_args=" in line][:1] or [
    b"[2026-08-12 09:00:00] server_args=ServerArgs()"
]
HEAD = b"[2026-08-12 09:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):"
FOREIGN = [
    b"another program says 4 of 99",
    b"[2026-08-12 09:47:11] a page was written",
    b"[2026-08-12 09:48:12 TP7] a page was written",
    b"[2026-08-12 09:00:01.123 DP0 TP9] a page was written",
    b"sglang-1  | [2026-08-12 09:00:01 TP11] a page[2026-08-12 09:00:01 TP12] was written",
    b"[gpu=5] a page was written",
    b"\x1b[32mINFO\x1b[0m a page was written",
    b"[2026-08-12 09:00:0\x1b[0m1 TP13] a page was written",
    "[2026-08-12 09:00:0\u0663 TP14] a page was written".encode(),
    "█▎ [half] of it".encode(),
    b"some.module.Surprise: no",
    b"the page server is falling back",
    b"    foo #running-req: 7, #queue-req: 9, #cached-token: 11",
    b"    Loading a b shards:  5% Completed | 1/4 [00:01]",
    b"12345",
    b"x" * 500,
    b'{"log":"a page was written [2026-08-12 09:00:01 TP15] y\\n"}',
    b'[2026-08-12 09:00:01 TP16] INFO:     127.0.0.1:4 - "GET /x HTTP/1.1" 200 OK',
    b"Capture decode graph BEGIN",
    b'  File "page.py", line 3, in write',
    b"    write(page)",
    b"  7  write(page)",
    b"    write(page) [2026-08-12 09:00:01 TP17] x",
    b"12 pages were written",
    b" a page was written",
    b"- a page was written",
    b"3: a page was written",
    b"Aug 12 09:00:01 box python[47]: a page was written",
    b"sglang-1  | ",
    b'INFO:     127.0.0.1:4 - "GET /x HTTP/1.1" 404 Not Found',
    b"Receive: obj=GenerateReqInput(rid='a')",
    b"Some1.module.1Surprise",
    b"Traceback (most recent call last):",
    b"Process scheduler_TP1:",
    b"KeyError: 'x'",
    HEAD,
]
LINES = st.one_of(st.sampled_from(FOREIGN), st.sampled_from(FOREIGN), st.sampled_from(KNOWN), st.sampled_from(TOLD))
WANTED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def plain(data: bytes) -> LogState:
    """Folded without the sieve."""
    with mock.patch.object(fold.Fold, "_block", fold.Fold._read):
        return feed(LogState(), data)


def sifted(data: bytes, block: int, cuts: list[int]) -> LogState:
    """Folded in pieces, in small blocks of which every one that has a telling line is sifted."""
    state, start = LogState(), 0
    with mock.patch.multiple(fold, _BLOCK=block, _SAMPLE=1, _SPARSE=1 << 30):
        for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
            state, start = feed(state, data[start:cut]), cut
    return state


@pytest.mark.parametrize("word", [*STAGES, *TROUBLES, *COUNTS, *(words for words, _ in WORDS), *OTHER_WORDS])
def test_no_word_that_counts_is_sifted_out(word: str) -> None:
    for line in (word, f"a {word} b", f"[2026-08-12 09:00:01 TP0] 12{word}34", f"x | {word} [half]"):
        assert sift(b"\nnothing\n" + line.encode() + b"\n\nnothing", frozenset({"TP0"})) == b"\n" + line.encode()


def test_no_line_that_counts_is_sifted_out() -> None:
    lines = [line for line in [*KNOWN, *TOLD] if KEY.search(line)]
    assert len(lines) > 300
    assert [line for line in lines if kind(line.translate(None, b"0123456789")) is not Kind.LOOK] == []


def test_a_rank_is_sifted_out_once_it_is_known() -> None:
    line = b"\n[2026-08-12 09:00:01 TP7] a page was written"
    assert sift(line, frozenset({"TP0"})) == line
    assert sift(line, frozenset({"TP0", "TP7"})) == b""


@given(st.lists(LINES, max_size=60), st.integers(1, 3000), st.lists(st.integers(0, 100_000), max_size=3))
@settings(max_examples=400, **WANTED)  # type: ignore[arg-type]
def test_lines_in_any_order(lines: list[bytes], block: int, cuts: list[int]) -> None:
    data = b"\n".join(lines)
    assert sifted(data, block, cuts) == plain(data)


@given(st.sampled_from(LOGS), st.sampled_from(LOGS), st.integers(0, 2**32), st.integers(1, 20_000))
@settings(max_examples=60, **WANTED)  # type: ignore[arg-type]
def test_recorded_logs_between_the_lines_of_another_program(one: bytes, other: bytes, seed: int, block: int) -> None:
    random = Random(seed)
    lines = (one[:30_000] + b"\n" + other[random.randrange(len(other)) :][:30_000]).split(b"\n")
    parts = [line + b"\n" + b"".join(random.choices(FOREIGN, k=random.choice([0, 0, 1, 5]))) for line in lines]
    data = b"".join(part + random.choice([b"\n", b"\n", b"\r", b""]) for part in parts)
    assert sifted(data, block, [random.randrange(len(data))]) == plain(data)


def test_a_server_that_begins_anew_has_its_own_ranks() -> None:
    foreign = b"\n".join([FOREIGN[2]] * 3)
    data = b"\n".join([foreign, b"[2026-08-12 09:00:01] Load weight begin.", *STARTS, foreign, b""])
    assert sifted(data, 1 << 16, []) == sifted(data, 1 << 16, [len(foreign) + 1]) == plain(data)
    assert "TP7" in plain(data).ranks


def test_a_rank_of_the_server_before_is_told_again() -> None:
    quiet = b'[2026-08-12 09:00:01 TP16] INFO:     127.0.0.1:4 - "GET /x HTTP/1.1" 200 OK\n'
    data = b"[2026-08-12 09:00:01] Load weight begin.\n" + quiet + STARTS[0] + b"\n" + quiet
    for cut in (0, len(data) - len(quiet)):
        assert "TP16" in feed(feed(LogState(ranks=frozenset({"TP16"})), data[:cut]), data[cut:]).ranks


def test_while_a_traceback_is_open_every_line_counts() -> None:
    benign = [words.encode() for words in BENIGN]
    for before in (b"Prefill batch, #running-req: 1", b"Process scheduler_TP3:", benign[0], FOREIGN[0], b""):
        for line in [*FOREIGN, *benign]:
            for after in (b"", b"KeyError: 'x'", b"Traceback (most recent call last):\nKeyError: 'x'"):
                data = b"\n".join([FOREIGN[0], HEAD, b'  File "x", line 1', before, line, FOREIGN[0], line, after, b""])
                assert sifted(data, 1 << 16, []) == plain(data), data
