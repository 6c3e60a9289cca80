"""One prepared sample, checked before it is sent: as a line of JSON, or as a row of a table.

A line is ``{"input_ids": [int, ...], "loss_mask": [0|1, ...] (optional), "id": ... (optional)}``; other keys are ignored. A row of a
table has the same columns. What is refused is said by line number and reason.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import hashlib
import json
from typing import Any

try:
    import orjson
except ImportError:
    orjson = None

MAX_LINE_BYTES = 256 * 1024 * 1024
"""A longer line is refused unread: 256 MiB is more than 20 million token ids."""

TOO_LONG = "too-long"

_SHOWN = 120


@dataclasses.dataclass(frozen=True)
class Rules:
    """What a sample must keep to."""

    vocab_size: int
    """Rows of the embedding: ids are 0 to `vocab_size` - 1. SGLang does not check; an id outside kills the server."""
    max_tokens: int
    """Longest prompt that the server takes."""
    max_tokens_why: str
    max_seq_len: int = 0
    """Cut ids and mask here; 0: never."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A good sample.

    `ids` and `mask` are int64, already cut. `mask` is all ones where the input has none (`has_mask` false).
    """

    line: int
    ids: array.array[int]
    mask: array.array[int]
    has_mask: bool
    sample_id: str | None
    full_tokens: int
    """Tokens before the cut."""

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def loss_tokens(self) -> int:
        return sum(self.mask)

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that name the ids as they are sent."""
        return fingerprint(self.ids)


@dataclasses.dataclass(frozen=True)
class Bad:
    """A refused sample."""

    line: int
    kind: str
    reason: str
    sample: Sample | None = None
    """Where nothing but its length is against it: a larger server may take it."""


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a JSON-lines file; `raw` is `None` where it is longer than `MAX_LINE_BYTES`."""

    number: int
    """From 1."""
    offset: int
    size: int
    """Bytes, its line end included."""
    raw: bytes | None

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + self.size


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of an Arrow or Parquet table, its cells as plain Python values."""

    number: int
    """From 1, over all files of the input."""
    cells: dict[str, Any]

    @property
    def end(self) -> int:
        """Rows are found by number: there is no offset to keep."""
        return 0


class _Refused(Exception):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def fingerprint(ids: array.array[int]) -> bytes:
    """BLAKE2b-128 of the ids as little-endian int64."""
    return hashlib.blake2b(ids.tobytes(), digest_size=16).digest()


def parse(item: Line | Row, rules: Rules) -> Sample | Bad:
    """Check one line or row against `rules`; never raises for what a file can hold."""
    if isinstance(item, Line) and item.raw is not None and (record := _plain_record(item.raw)) is not None:
        with contextlib.suppress(_Refused):  # the slow way says why, and of large numbers better
            return _judged(_sample(item.number, record, rules), rules)
    try:
        return _judged(_sample(item.number, item.cells if isinstance(item, Row) else _cells(item), rules), rules)
    except _Refused as refused:
        return Bad(item.number, refused.kind, str(refused))


def _judged(sample: Sample, rules: Rules) -> Sample | Bad:
    why = too_long(sample.tokens, rules)
    return sample if why is None else Bad(sample.line, TOO_LONG, why, sample)


def too_long(tokens: int, rules: Rules) -> str | None:
    """Why a sample of so many tokens is refused, or `None`."""
    if tokens <= rules.max_tokens:
        return None
    return f"{tokens} tokens; this server takes at most {rules.max_tokens} ({rules.max_tokens_why})"


def _cells(line: Line) -> dict[str, Any]:
    if line.raw is None:
        raise _Refused("line-too-long", f"the line has {line.size} bytes, more than {MAX_LINE_BYTES}")
    return _record(line.raw)


def _sample(number: int, record: dict[str, Any], rules: Rules) -> Sample:
    if "input_ids" not in record:
        raise _Refused("no-input-ids", f"there is no input_ids; the keys are {_shown(sorted(record))}")
    ids = _ids(record["input_ids"], rules.vocab_size)
    mask = record.get("loss_mask")
    full = len(ids)
    if mask is not None:
        _check_mask(mask, full)
    if rules.max_seq_len:
        ids = ids[: rules.max_seq_len]
        mask = mask[: rules.max_seq_len] if mask is not None else None
    if mask is not None and not any(mask):
        after = f" after the cut to {rules.max_seq_len} tokens" if len(ids) < full else ""
        raise _Refused("no-loss", f"loss_mask is 0 everywhere{after}: there is nothing to learn from")
    return Sample(
        line=number,
        ids=array.array("q", ids),
        mask=array.array("q", mask) if mask is not None else array.array("q", [1]) * len(ids),
        has_mask=mask is not None,
        sample_id=_sample_id(record.get("id")),
        full_tokens=full,
    )


def _record(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Refused("utf8", f"byte {error.start} of the line is not UTF-8") from None
    try:
        record = _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise _Refused("json", f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _Refused("json", "not usable JSON: nested too deep") from None
    except ValueError as error:
        raise _Refused("json", f"not usable JSON: {error}") from None
    if not isinstance(record, dict):
        raise _Refused("not-an-object", f"a JSON object is needed, not {_shown(record)}")
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused("duplicate-key", f"the key {twice!r} is there twice")
    return record


def _no_constant(name: str) -> Any:
    raise _Refused("json", f"not JSON: {name}")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _plain_record(raw: bytes) -> dict[str, Any] | None:
    """The record of an ordinary line, four times as fast; `None` where it is for the slow way to judge.

    orjson, which SGLang brings, keeps the last of two equal keys in silence. In an object without escapes and nested strings the
    quotes tell: two for each key and each text.
    """
    if orjson is None or b"\\" in raw:
        return None
    try:
        record = orjson.loads(raw)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    quotes = 2 * (len(record) + sum(type(value) is str for value in record.values()))
    return record if raw.count(b'"') == quotes else None


def _ids(value: Any, vocab_size: int) -> list[int]:
    if isinstance(value, dict):
        raise _Refused(
            "shape", f"input_ids is an object with the keys {_shown(sorted(value))}, not a list of token ids"
        )
    if not isinstance(value, list):
        raise _Refused("type", f"input_ids is {_shown(value)}, not a list of token ids")
    if not value:
        raise _Refused("empty", "input_ids is empty")
    if set(map(type, value)) != {int}:
        at, wrong = next((i, item) for i, item in enumerate(value) if type(item) is not int)
        if isinstance(wrong, list):
            inner = f" (shape [{len(value)}, {len(wrong)}, ...])"
            raise _Refused("shape", f"input_ids is a list of lists{inner}; one flat list of token ids is needed")
        raise _Refused("type", f"input_ids[{at}] is {_shown(wrong)}, not an integer")
    if min(value) < 0 or max(value) >= vocab_size:
        at, wrong = next((i, item) for i, item in enumerate(value) if not 0 <= item < vocab_size)
        raise _Refused("vocab", f"input_ids[{at}] = {_shown(wrong)} is outside the vocabulary 0..{vocab_size - 1}")
    return value


def _check_mask(mask: Any, tokens: int) -> None:
    if not isinstance(mask, list):
        raise _Refused("loss-mask", f"loss_mask is {_shown(mask)}, not a list")
    if len(mask) != tokens:
        raise _Refused("loss-mask", f"loss_mask has {len(mask)} entries for {tokens} tokens")
    if set(map(type, mask)) - {int, bool} or min(mask) < 0 or max(mask) > 1:
        at, wrong = next((i, v) for i, v in enumerate(mask) if type(v) not in (int, bool) or not 0 <= v <= 1)
        raise _Refused("loss-mask", f"loss_mask[{at}] is {_shown(wrong)}, not 0 or 1")


def _sample_id(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    # A lone surrogate is legal in JSON but cannot be stored as UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:200]


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except ValueError:  # an integer of more than 4300 digits
        text = "a number too long to show"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
