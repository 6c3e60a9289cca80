"""Bytes of a log become lines that are safe to show, whatever they are and wherever they are cut."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_console.printable import MAX_CHARACTERS, safe
from eagle3_console.ui.log_buffer import LogBuffer, search_pattern


def lines(buffer: LogBuffer) -> list[str]:
    return [buffer.line(number) for number in range(buffer.first, buffer.end)]


def fed(*chunks: bytes) -> list[str]:
    buffer = LogBuffer()
    for chunk in chunks:
        buffer.feed(chunk)
    return lines(buffer)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;c3RlYWw=\x1b\\after", "after"),
        ("up\x1b[A", "up"),
        ("bell\x07", "bell^G"),
        ("a\tb", "a       b"),
        ("nul\x00", "nul^@"),
        ("c1\x9b31mred", "c1red"),
        ("rtl \u202egpj.exe", "rtl <202E>gpj.exe"),
        ("[red]markup[/red]", "[red]markup[/red]"),
        ("ключ 鍵 █", "ключ 鍵 █"),
    ],
)
def test_what_a_terminal_would_obey_is_taken_out_or_made_visible(raw: str, shown: str) -> None:
    assert safe(raw) == shown


@given(st.text(alphabet=st.characters(max_codepoint=0x2100), max_size=300))
def test_nothing_that_moves_a_cursor_gets_through(text: str) -> None:
    shown = safe(text)
    assert not [letter for letter in shown if unicodedata.category(letter) == "Cc"]
    assert "\u202e" not in shown
    assert safe(shown) == shown


def test_a_long_line_is_cut_and_says_so() -> None:
    assert safe("x" * (MAX_CHARACTERS + 5)).endswith("x [+5 characters]")


def test_a_progress_bar_replaces_itself() -> None:
    assert fed(b"begin\n\rshards 0/3", b"\rshards 1/3", b"\r", b"shards 2/3") == ["begin", "shards 2/3"]
    assert fed(b"\rshards 3/3\nend\n") == ["shards 3/3", "end"]


def test_crlf_is_one_line_end_even_when_cut_in_two() -> None:
    assert fed(b"one\r\ntwo\r", b"\nthree") == ["one", "two", "three"]


def test_a_bar_without_line_ends_takes_no_memory() -> None:
    buffer = LogBuffer()
    for step in range(5_000):
        buffer.feed(b"\r" + b"#" * 60 + b" %d/5000" % step)
    assert len(buffer._partial) < 200
    assert lines(buffer) == ["#" * 60 + " 4999/5000"]


@given(st.lists(st.sampled_from(["a", "é", "█", "\r", "\n", "\r\n", "\x1b[31m", "long word "]), max_size=40), st.data())
def test_where_the_bytes_are_cut_makes_no_difference(parts: list[str], data: st.DataObject) -> None:
    raw = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    chunks = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert [text for text in fed(*chunks) if text] == [text for text in fed(raw) if text]
    assert len(fed(*chunks)) == len(fed(raw))


def test_bytes_that_are_no_utf8_are_shown_as_such() -> None:
    assert fed(b"ok\xff\xfe\n") == ["ok\ufffd\ufffd"]


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 20))
def test_numbers_stay_while_old_lines_go(batches: list[int], capacity: int) -> None:
    buffer, count = LogBuffer(capacity, 10 * capacity), 0
    for size in batches:
        buffer.feed("".join(f"line {count + i}\n" for i in range(size)).encode())
        count += size
        assert buffer.end == count
        assert lines(buffer) == [f"line {number}" for number in range(max(0, count - capacity), count)]


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(0, 50))
def test_the_line_a_reader_stands_on_is_kept(batches: list[int], reader: int) -> None:
    buffer, count = LogBuffer(20, 10_000), 0
    for size in batches:
        buffer.feed("".join(f"line {count + i}\n" for i in range(size)).encode(), reading_from=reader)
        count += size
        if count > reader:
            assert buffer.line(reader) == f"line {reader}"


def test_memory_is_bounded_even_under_a_reader() -> None:
    buffer = LogBuffer(10, 100)
    for number in range(1_000):
        buffer.feed(b"line %d\n" % number, reading_from=0)
    assert (buffer.first, buffer.end) == (900, 1_000)
    with pytest.raises(IndexError, match="no longer kept"):
        buffer.line(0)


def test_another_log_never_reuses_a_number() -> None:
    buffer = LogBuffer()
    buffer.feed(b"one\ntwo\npart")
    buffer.clear()
    buffer.feed(b"new\n")
    assert (buffer.first, buffer.line(3)) == (3, "new")


def test_a_search_is_forgiving() -> None:
    assert search_pattern("error").search("ERROR")
    assert not search_pattern("Error").search("ERROR")
    assert search_pattern("a[").search("data[0]")
    assert search_pattern(r"tp\d").search("TP3")


def test_find_looks_only_from_where_it_is_told() -> None:
    buffer = LogBuffer()
    buffer.feed(b"hit\nmiss\nhit\n")
    assert buffer.find(re.compile("hit")) == [0, 2]
    assert buffer.find(re.compile("hit"), 1) == [2]
