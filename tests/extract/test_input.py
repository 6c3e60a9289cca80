"""What is read from a data file, and what is refused with which words."""

from __future__ import annotations

import array
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_remote.extract import sources
from eagle3_remote.extract.input import Bad, Line, Rules, Sample, parse
from eagle3_remote.extract.sources import Position, lines

RULES = Rules(vocab_size=1000, max_tokens=50, max_tokens_why="its context length is 56")


def line(text: str | bytes) -> Line:
    raw = text if isinstance(text, bytes) else text.encode()
    return Line(7, 0, len(raw), raw)


def refused(text: str | bytes, rules: Rules = RULES) -> Bad:
    item = parse(line(text), rules)
    assert isinstance(item, Bad), item
    assert item.line == 7
    return item


def taken(record: Any, rules: Rules = RULES) -> Sample:
    item = parse(line(json.dumps(record)), rules)
    assert isinstance(item, Sample), item
    return item


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('{"input_ids": [-1]}', "vocab", "input_ids[0] = -1 is outside the vocabulary 0..999"),
        ('{"input_ids": [5, 1000]}', "vocab", "input_ids[1] = 1000 is outside the vocabulary 0..999"),
        ('{"input_ids": [' + "9" * 3000 + "]}", "vocab", "outside the vocabulary"),
        ('{"input_ids": [' + "9" * 5000 + "]}", "json", "not usable JSON"),
        ('{"input_ids": []}', "empty", "input_ids is empty"),
        ('{"input_ids": {"input_ids": [1], "attention_mask": [1]}}', "shape", '["attention_mask", "input_ids"]'),
        ('{"input_ids": [[1, 2, 3]]}', "shape", "list of lists (shape [1, 3, ...])"),
        ('{"input_ids": [1, 1.0]}', "type", "input_ids[1] is 1.0, not an integer"),
        ('{"input_ids": [1, true]}', "type", "input_ids[1] is true, not an integer"),
        ('{"input_ids": [1, "2"]}', "type", 'input_ids[1] is "2", not an integer'),
        ('{"input_ids": [null]}', "type", "input_ids[0] is null"),
        ('{"input_ids": "[1 2 3]"}', "type", '"[1 2 3]", not a list'),
        ('{"input_ids": [1, NaN]}', "json", "NaN"),
        ('{"input_ids": [1], "input_ids": [2]}', "duplicate-key", "'input_ids' is there twice"),
        ('{"input_ids": [1], "meta": {"a": 1, "a": 2}}', "duplicate-key", "'a' is there twice"),
        ('{"text": "hello"}', "no-input-ids", '["text"]'),
        ("[1, 2]", "not-an-object", "a JSON object is needed"),
        ('{"input_ids": [1, 2', "json", "not JSON"),
        ("[" * 100_000, "json", "nested too deep"),
        (b'{"input_ids": [1], "id": "\xff"}', "utf8", "byte 26 of the line is not UTF-8"),
        ('{"input_ids": [1]}'.encode("utf-16"), "utf8", "not UTF-8"),
        ('{"input_ids": [1, 2], "loss_mask": [1]}', "loss-mask", "loss_mask has 1 entries for 2 tokens"),
        ('{"input_ids": [1, 2], "loss_mask": [1, 2]}', "loss-mask", "loss_mask[1] is 2, not 0 or 1"),
        ('{"input_ids": [1, 2], "loss_mask": [1, 0.5]}', "loss-mask", "loss_mask[1] is 0.5"),
        ('{"input_ids": [1, 2], "loss_mask": 1}', "loss-mask", "loss_mask is 1, not a list"),
        ('{"input_ids": [1, 2], "loss_mask": [0, 0]}', "no-loss", "loss_mask is 0 everywhere"),
    ],
)
def test_refused_lines(text: str | bytes, kind: str, words: str) -> None:
    bad = refused(text)
    assert (bad.kind, words in bad.reason) == (kind, True), bad.reason
    assert len(bad.reason) < 400


def test_length_limit_is_exact() -> None:
    assert taken({"input_ids": [1] * 50}).tokens == 50
    bad = refused(json.dumps({"input_ids": [1] * 51}))
    assert bad.reason == "51 tokens; this server takes at most 50 (its context length is 56)"


def test_mask_is_optional_and_may_be_boolean() -> None:
    assert list(taken({"input_ids": [1, 2]}).mask) == [1, 1]
    assert not taken({"input_ids": [1, 2]}).has_mask
    assert list(taken({"input_ids": [1, 2], "loss_mask": [False, True]}).mask) == [0, 1]
    assert taken({"input_ids": [1, 2], "loss_mask": [0, 1]}).loss_tokens == 1


def test_cut_takes_ids_and_mask_together() -> None:
    rules = Rules(1000, 50, "", max_seq_len=3)
    sample = taken({"input_ids": list(range(80)), "loss_mask": [0, 1] * 40}, rules)
    assert (list(sample.ids), list(sample.mask), sample.full_tokens) == ([0, 1, 2], [0, 1, 0], 80)
    assert (
        "after the cut to 3 tokens"
        in refused(json.dumps({"input_ids": [1] * 5, "loss_mask": [0, 0, 0, 1, 1]}), rules).reason
    )
    assert refused(json.dumps({"input_ids": [1] * 5, "loss_mask": [1] * 4}), rules).kind == "loss-mask"


def test_ids_of_any_kind_become_text() -> None:
    assert taken({"input_ids": [1], "id": 12}).sample_id == "12"
    assert taken({"input_ids": [1], "id": "\ud800x"}).sample_id == "\\ud800x"
    assert taken({"input_ids": [1]}).sample_id is None


@given(st.binary(max_size=200))
def test_no_line_breaks_the_reading(raw: bytes) -> None:
    assert isinstance(parse(line(raw), RULES), (Sample, Bad))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["input_ids", "loss_mask", "id"]), inner)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["input_ids", "loss_mask", "id", "text"]), JSON))
def test_what_is_taken_is_what_a_server_can_take(record: dict[str, Any]) -> None:
    item = parse(line(json.dumps(record)), RULES)
    if isinstance(item, Sample):
        assert list(item.ids) == record["input_ids"]
        assert all(type(i) is int and 0 <= i < 1000 for i in record["input_ids"])
        assert 0 < item.tokens == len(item.mask) <= 50
        assert set(item.mask) <= {0, 1}
        assert item.loss_tokens > 0


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=20), st.booleans())
def test_reading_goes_on_after_any_line(parts: list[bytes], ended: bool) -> None:
    raw = b"\n".join(parts) + (b"\n" if ended else b"")
    found = list(lines(io.BytesIO(raw)))
    expected = [(i, part) for i, part in enumerate(raw.split(b"\n"), 1) if part.strip()]
    assert [(item.number, (item.raw or b"").rstrip(b"\n")) for item in found] == expected
    for at, item in enumerate(found, 1):
        rest = io.BytesIO(raw)
        rest.seek(item.end)
        assert list(lines(rest, Position(item.number, item.end))) == found[at:]


def test_a_monstrous_line_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"input_ids": [' + b"1," * 3_000_000 + b"1]}\n" + b'{"input_ids": [3]}\n')
    with path.open("rb") as file:
        first, second = (parse(item, RULES) for item in lines(file))
    assert isinstance(first, Bad)
    assert first.kind == "line-too-long"
    assert isinstance(second, Sample)
    assert (second.line, second.ids) == (2, array.array("q", [3]))


def test_byte_order_mark_and_windows_line_ends_are_taken() -> None:
    assert isinstance(parse(line(b'\xef\xbb\xbf{"input_ids": [1]}\r\n'), RULES), Sample)
