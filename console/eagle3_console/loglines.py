"""Lines of an SGLang log: whose they are, how grave, and which of them somebody wants to see. Pure.

SGLang writes no level into a line (``srt/utils/common.py`` configure_logger, 0.5.4 to 0.5.23), so it is read from the words.
A line without a time stamp goes on what stands before it: a traceback belongs to the rank that it began with.
"""

from __future__ import annotations

import codecs
import collections
import datetime
import enum
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eagle3_console.printable import last_segment, plain
from eagle3_remote.protocol import Phase, PhaseSpan


class Level(enum.IntEnum):
    """How grave a line is."""

    INFO = 0
    WARNING = 1
    ERROR = 2


ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Traceback)\b|\b\w*(?:Error|Exception):|eagle3-patch refused")
WARNING = re.compile(r"\bWARN(?:ING)?\b|\bWarning:|\b\w+Warning:")
_ERROR_SIGNS = ("ERROR", "CRITICAL", "FATAL", "Traceback", "Error:", "Exception:", "eagle3-patch refused")
_WARNING_SIGNS = ("WARN", "Warning:")
"""One of these is in every line that the patterns match; looking for them is ten times as fast."""
_STAMP = re.compile(r"\[(?P<date>\d{4}-\d\d-\d\d )?(?P<time>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?P<ranks>(?: [A-Z_]+\d+)*)\] ")
_STAMP_WITHIN = 200
"""Characters in front of the stamp that another program (mpirun, a container's log) may have put there."""
_OURS = re.compile(r"\beagle3-patch\b")
_OUR_RANK = re.compile(r'"tp_rank": (\d+)')
_BAR = re.compile(r"\d+%.*\|.*\d+/\d+")
_RANK = re.compile(r"(?P<tag>[A-Z_]*)(?P<number>\d+)")
_MAX_PARTIAL = 64 * 1024


def rank_tag(text: str) -> str:
    """The tag that a person means: ``3`` and ``TP3`` are ``TP3``, ``DP1`` is itself.

    Raises:
        ValueError: it is no rank.
    """
    found = _RANK.fullmatch(text.strip().upper())
    if found is None:
        raise ValueError(f"a rank is a number or a tag like TP3 or DP1, not {text!r}")
    return f"{found['tag'] or 'TP'}{int(found['number'])}"


def ranks_in(lines: Iterable[str]) -> list[str]:
    """Every rank tag in a log, tensor-parallel ones first, in the order of their numbers."""
    found: set[str] = set()
    for line in lines:
        stamp = _STAMP.search(line, 0, _STAMP_WITHIN)
        if stamp is not None:
            found.update(stamp["ranks"].split())
    parts = {tag: tag.rstrip("0123456789") for tag in found}
    return sorted(found, key=lambda tag: (parts[tag] != "TP", parts[tag], int(tag[len(parts[tag]) :])))


def own_level(line: str) -> Level:
    """The level that the line's own words give it."""
    if any(sign in line for sign in _ERROR_SIGNS) and ERROR.search(line):
        return Level.ERROR
    if any(sign in line for sign in _WARNING_SIGNS) and WARNING.search(line):
        return Level.WARNING
    return Level.INFO


class Sieve:
    """Which lines are wanted. Takes them in their order, because a line may go on the one before.

    Args:
        rank: a tag as `rank_tag` gives it; empty: every rank.
        level: at least so grave.
        pattern: and in which this is found.
        single: the server has one rank, whose lines carry no tag.
        phase: and from this phase of the server; `None`: from any.
        spans: when each phase began. Stamps have whole seconds: the second of a change belongs to the phase that begins.
    """

    def __init__(
        self,
        rank: str = "",
        level: Level = Level.INFO,
        pattern: re.Pattern[str] | None = None,
        *,
        single: bool = False,
        phase: Phase | None = None,
        spans: Sequence[PhaseSpan] = (),
    ) -> None:
        self.rank = rank
        self.level = level
        self.pattern = pattern
        self.phase = phase
        self._single = single
        self._starts = [(span.stamp, span.phase) for span in spans if span.stamp is not None]
        self._now = spans[0].phase if spans else None
        self._tags: frozenset[str] = frozenset()
        self._grave = Level.INFO
        self.seen = 0
        self.kept = 0

    @property
    def open(self) -> bool:
        """Whether every line passes."""
        return not self.rank and self.level is Level.INFO and self.pattern is None and self.phase is None

    def wants(self, line: str) -> bool:
        """Whether this next line is wanted."""
        self._follow(line)
        self.seen += 1
        wanted = (
            (not self.rank or self.rank in self._tags or (self._single and self.rank == "TP0" and not self._tags))
            and self._grave >= self.level
            and (self.phase is None or self._now is self.phase)
            and (self.pattern is None or self.pattern.search(line) is not None)
        )
        self.kept += wanted
        return wanted

    def _follow(self, line: str) -> None:
        stamp = _STAMP.search(line, 0, _STAMP_WITHIN)
        own = own_level(line)
        if stamp is not None and stamp["date"] and self.phase is not None:
            at = _seconds(stamp["date"], stamp["time"])
            self._now = next((phase for start, phase in reversed(self._starts) if start <= at), self._now)
        if stamp is not None:
            self._tags, self._grave = frozenset(stamp["ranks"].split()), own
        elif _OURS.search(line):
            rank = _OUR_RANK.search(line)
            self._tags, self._grave = frozenset({f"TP{rank[1]}"} if rank else ()), own
        elif _BAR.search(line):
            self._tags, self._grave = frozenset(), own
        elif self._grave is not Level.ERROR:
            self._grave = own if own is not Level.INFO or not line.startswith(" ") else self._grave


@functools.lru_cache(1024)
def _seconds(date: str, time: str) -> float:
    try:
        return datetime.datetime.fromisoformat(f"{date}{time}+00:00").timestamp()
    except ValueError:
        return float("-inf")


def save_new(folder: Path, stem: str, text: str, suffix: str = ".log") -> Path:
    """Write a file that was not there before: ``<stem>.log``, else ``<stem>-2.log`` and so on.

    Raises:
        OSError: it cannot be written.
    """
    for number in itertools.count(1):
        path = folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
            return path
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


class Lines:
    """Bytes in, whole lines out, safe to print; a progress bar is the one line that it ends as."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._partial = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes end."""
        parts = (self._partial + self._decoder.decode(data)).split("\n")
        self._partial = parts.pop()
        if len(self._partial) > _MAX_PARTIAL:
            self._partial = last_segment(self._partial)[:_MAX_PARTIAL]
        return [plain(last_segment(part)) for part in parts]

    def rest(self) -> list[str]:
        """The line that is not ended yet."""
        rest, self._partial = self._partial, ""
        return [plain(last_segment(rest))] if rest else []


class CauseFinder:
    """Finds the line that names the root cause, with what stands before it and after it.

    Args:
        cause: the text that the box folded from the log; perhaps cut.
    """

    BEFORE, AFTER = 10, 60

    def __init__(self, cause: str) -> None:
        self._cause = _words_of(cause)[:200]
        self._before: collections.deque[str] = collections.deque(maxlen=self.BEFORE)
        self._found: list[str] = []
        self.place: int | None = None
        """Number of the line from the start of what was fed, the first is 1."""
        self._number = 0

    def feed(self, lines: Iterable[str]) -> None:
        """The next lines."""
        for line in lines:
            self._number += 1
            if self.place is not None:
                if len(self._found) <= self.BEFORE + self.AFTER:
                    self._found.append(line)
            elif self._cause and self._cause in _words_of(line):
                self.place = self._number
                self._found = [*self._before, line]
            else:
                self._before.append(line)

    def lines(self) -> Iterator[str]:
        """The cause and what is around it, the cause marked."""
        at = len(self._before)
        for place, line in enumerate(self._found):
            yield f"{'>' if place == at else ' '} {line}"


def line_of_cause(cause: str, lines: Iterable[tuple[int, str]]) -> int | None:
    """The number of the first line that names the root cause."""
    wanted = _words_of(cause)[:200]
    return next((number for number, line in lines if wanted and wanted in _words_of(line)), None)


def names_cause(cause: str, line: str) -> bool:
    """Whether a line names the root cause."""
    wanted = _words_of(cause)[:200]
    return bool(wanted) and wanted in _words_of(line)


def _words_of(text: str) -> str:
    return " ".join(plain(text).split())
