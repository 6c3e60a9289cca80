r"""A log as lines with absolute numbers: bytes in, safe text out, bounded memory. No terminal is needed here.

A terminal would obey what is in a log: escape sequences move its cursor, ``\r`` goes back in the line. Here sequences are
taken out, other control characters are made visible, and ``\r`` replaces the line, which is how progress bars are meant.
"""

from __future__ import annotations

import codecs
import re

from eagle3_console.printable import last_segment, safe

CAPACITY = 20_000
"""Lines kept while the end is followed."""
READING_CAPACITY = 100_000
"""Lines kept at most while a reader stands somewhere: nothing below them is thrown away before this."""
_MAX_PARTIAL = 64 * 1024


class LogBuffer:
    """A ring of lines. Line numbers count from the first byte fed and never change.

    Attributes:
        first: number of the oldest line kept.
    """

    def __init__(self, capacity: int = CAPACITY, reading_capacity: int = READING_CAPACITY) -> None:
        self.first = 0
        self._capacity = capacity
        self._reading_capacity = reading_capacity
        self._lines: list[str] = []
        self._partial = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def end(self) -> int:
        """One more than the number of the newest line; a line still being written counts."""
        return self.first + len(self._lines) + bool(self._partial)

    @property
    def ended(self) -> int:
        """One more than the number of the newest whole line."""
        return self.first + len(self._lines)

    def line(self, number: int) -> str:
        """The text of a line, safe to show.

        Raises:
            IndexError: the line is not kept.
        """
        index = number - self.first
        if index == len(self._lines) and self._partial:
            return safe(last_segment(self._partial))
        if index < 0:
            raise IndexError(f"line {number} is no longer kept")
        return self._lines[index]

    def clear(self) -> None:
        """Another log begins. Numbers go on, so that no old number means a new line."""
        self.first = self.end
        self._lines, self._partial = [], ""
        self._decoder.reset()

    def feed(self, data: bytes, reading_from: int | None = None) -> None:
        """Take bytes as they came, cut anywhere.

        Args:
            reading_from: number of the line at which a reader stands; it and what follows stay up to the reading capacity.
        """
        parts = (self._partial + self._decoder.decode(data)).split("\n")
        self._partial = parts.pop()
        if "\r" in self._partial:
            tail = self._partial.rpartition("\r")[2]
            self._partial = tail or last_segment(self._partial) + "\r"
        if len(self._partial) > _MAX_PARTIAL:
            self._partial = self._partial[:_MAX_PARTIAL]
        self._lines.extend(safe(last_segment(part)) for part in parts)
        self._prune(reading_from)

    def _prune(self, reading_from: int | None) -> None:
        excess = len(self._lines) - self._capacity
        if reading_from is not None:
            excess = max(min(excess, reading_from - self.first), len(self._lines) - self._reading_capacity)
        if excess > 0:
            del self._lines[:excess]
            self.first += excess

    def find(self, pattern: re.Pattern[str], start: int = 0) -> list[int]:
        """Numbers of the kept lines from `start` on that match."""
        return [number for number in range(max(start, self.first), self.end) if pattern.search(self.line(number))]


def is_pattern(text: str) -> bool:
    """Whether it is a regular expression."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def search_pattern(text: str) -> re.Pattern[str]:
    """A pattern as a person types it: capitals make it exact, and what is no regular expression is taken as it stands."""
    flags = 0 if any(letter.isupper() for letter in text) else re.IGNORECASE
    try:
        return re.compile(text, flags)
    except re.error:
        return re.compile(re.escape(text), flags)
