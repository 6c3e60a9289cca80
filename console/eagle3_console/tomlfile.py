"""A TOML file that a person wrote: its content with the line of every key, and every mistake named by file, line and key."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import tomllib

from eagle3_console.profiles.lines import Path as KeyPath
from eagle3_console.profiles.lines import locate


@dataclasses.dataclass(frozen=True)
class Fault:
    """One mistake in a file."""

    file: str
    line: int
    """From 1; 0: the file as a whole."""
    key: str
    text: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {key}{self.text}"


class FaultyFile(Exception):
    """A file cannot be used; `faults` has every reason."""

    def __init__(self, faults: Collection[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


@dataclasses.dataclass(frozen=True)
class TomlFile:
    """What a file says, and where."""

    content: dict[str, Any]
    lines: dict[KeyPath, int]
    """See `eagle3_console.profiles.lines.locate`."""


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        FaultyFile: it cannot be read, or is no UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FaultyFile([Fault(str(path), 0, "", f"it cannot be read: {error.strerror}")]) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FaultyFile([Fault(str(path), line, "", "it is not UTF-8 text")]) from None
    return text.replace("\r\n", "\n")


def parse(text: str, path: Path) -> TomlFile:
    """Read TOML; `path` is for the mistakes alone.

    Raises:
        FaultyFile: it is no TOML.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r" \(at line (\d+), column \d+\)| \(at end of document\)", str(error))
        line = int(where[1]) if where and where[1] else text.count("\n") + 1
        said = str(error)[: where.start()] if where else str(error)
        raise FaultyFile([Fault(str(path), line, "", f"this is no TOML: {said[:1].lower()}{said[1:]}")]) from None
    return TomlFile(content, locate(text))


def nearest(name: str, known: Collection[str]) -> str:
    """``; did you mean X``, or everything that there is."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}" if near else f"; there are {', '.join(sorted(known))}"
