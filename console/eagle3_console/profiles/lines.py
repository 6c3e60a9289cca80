"""On which line of a TOML file each key stands; `tomllib` does not tell. For text that `tomllib` has accepted."""

from __future__ import annotations

import re
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""``("server", "tp")``, or ``("reference", 0, "figure")`` in the first of an array of tables."""

_KEY = re.compile(r"""\s*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')\s*""")


def locate(text: str) -> dict[Path, int]:
    """The line, from 1, of every table header and key."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        elif text[at] == "[":
            line, array = _line(text, at), text.startswith("[[", at)
            keys, _ = _keys(text, at + (2 if array else 1))
            table = _resolved(keys, counts)
            if array:
                counts[keys] = counts.get(keys, 0) + 1
                table = _resolved(keys, counts)
            found.setdefault(table, line)
            at = _line_end(text, at)
        else:
            line = _line(text, at)
            keys, at = _keys(text, at)
            for depth in range(1, len(keys) + 1):
                found.setdefault((*table, *keys[:depth]), line)
            at = _value_end(text, at + 1)
    return found


def line_of(found: dict[Path, int], path: Path) -> int:
    """The line of a key; of the nearest thing around it where it stands in an inline table or is missing."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in found:
            return found[path[:depth]]
    return 1


def _resolved(keys: Path, counts: dict[Path, int]) -> Path:
    """A header's keys with the numbers of the arrays of tables that they go through."""
    path: Path = ()
    for depth in range(1, len(keys) + 1):
        path = (*path, keys[depth - 1])
        if keys[:depth] in counts:
            path = (*path, counts[keys[:depth]] - 1)
    return path


def _keys(text: str, at: int) -> tuple[Path, int]:
    """A dotted key, and where it ends."""
    keys: list[str] = []
    while match := _KEY.match(text, at):
        keys.append(match[1].strip("\"'"))
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return tuple(keys), at


def _value_end(text: str, at: int) -> int:
    """Where the value that begins at `at` ends: at the end of a line outside all brackets and strings."""
    depth = 0
    while at < len(text) and (depth or text[at] != "\n"):
        quotes = next((mark for mark in ('"""', "'''", '"', "'") if text.startswith(mark, at)), "")
        if quotes:
            at = _string_end(text, at + len(quotes), quotes)
            continue
        if text[at] == "#":
            at = _line_end(text, at)
            continue
        depth += (text[at] in "[{") - (text[at] in "]}")
        at += 1
    return at


def _string_end(text: str, at: int, quotes: str) -> int:
    while not text.startswith(quotes, at):
        at += 2 if text[at] == "\\" and quotes[0] == '"' else 1
    at += len(quotes)
    while len(quotes) == 3 and text.startswith(quotes[0], at):
        at += 1  # up to two quotes may stand before the closing three
    return at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
