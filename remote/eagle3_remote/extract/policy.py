"""Patience, what failures of single samples mean for the run, and how much may be under way. Pure."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from eagle3_remote.extract.checks import EXPLANATIONS
from eagle3_remote.extract.errors import EXIT_INCOMPLETE, EXIT_SERVER, ExtractionError, SampleFailure


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Patience and sizes; the defaults are for a real server."""

    min_timeout: float = 120.0
    """Seconds a request may take at least; more where the rate so far predicts more."""
    dump_timeout: float = 120.0
    """Seconds from the answer to the complete dump."""
    server_wait: float = 1800.0
    """Seconds to wait for a server that is away: one of a terabyte takes ten minutes to load."""
    server_losses: int = 3
    """So often the server may go away without a sample stored in between."""
    attempts: int = 3
    streak: int = 3
    """So many samples in a row failing in one way pause or end the run."""
    threads: int = 8
    """Dumps that are checked and copied at a time."""
    window: int = 256
    """Samples among which the longest is sent first."""
    poll: float = 0.5
    commit_every: float = 0.1
    """Seconds over which stored files are made durable and journalled together."""
    sweep_every: float = 10.0
    """Seconds between looks for dumps that came too late."""


ENV_TUNING = "EAGLE3_EXTRACT_TUNING"
"""Other patience for one box, for example ``min_timeout=600,threads=16``: names and numbers of `Tuning`."""


def tuning_of(text: str) -> Tuning:
    """Read the value of `ENV_TUNING`.

    Raises:
        ExtractionError: a name or a number that means nothing.
    """
    kinds: dict[str, Callable[[str], float]] = {
        field.name: int if isinstance(field.default, int) else float for field in dataclasses.fields(Tuning)
    }
    values: dict[str, Any] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        try:
            values[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise ExtractionError(
                f"{ENV_TUNING} says {part!r}: known are {', '.join(kinds)}, each with a number."
            ) from None
    return dataclasses.replace(Tuning(), **values)


class Failures:
    """Counts tries, and failures in a row of one kind."""

    def __init__(self, attempts: int, streak: int) -> None:
        self._attempts, self._limit = attempts, streak
        self._tries: collections.Counter[int] = collections.Counter()
        self._broken: collections.Counter[int] = collections.Counter()
        self._lost: collections.Counter[int] = collections.Counter()
        self._streak: dict[int, tuple[str, bool]] = {}

    def stored(self) -> None:
        """A sample came through, or a person says go on: what fails now is not a row of failures any more."""
        self._streak.clear()

    def broken(self, line: int) -> bool:
        """The sample's connection broke though the server lives; whether that was once too often."""
        self._broken[line] += 1
        return self._broken[line] >= self._attempts

    def lost(self, line: int, alone: bool) -> bool:
        """The server died with this sample in flight; whether the sample is why: the second time, and it was `alone`."""
        self._lost[line] += 1
        return alone and self._lost[line] >= 2

    def failed(self, line: int, failure: SampleFailure) -> bool:
        """Note a failed attempt; whether it was the sample's last. What the server refuses is not tried again."""
        self._tries[line] += 1
        final = self._tries[line] >= self._attempts or failure.kind in ("refused", "kills-server")
        if any(kind != failure.kind for kind, _ in self._streak.values()):
            self._streak.clear()
        self._streak[line] = (failure.kind, final)
        return final

    def verdict(self, line: int, failure: SampleFailure, waiting: int) -> ExtractionError | None:
        """Whether the run ends here: so many different samples in a row failed alike, and others are still to be sent.

        `waiting` counts the samples that are neither stored nor given up. Where only the failing ones are left, their tries go on to
        the end, so that a dataset with a few hopeless samples still gets finished.
        """
        own = sum(1 for _, final in self._streak.values() if not final)
        if len(self._streak) < self._limit or waiting <= own:
            return None
        why = EXPLANATIONS.get(failure.kind, failure.kind)
        return ExtractionError(
            f"{len(self._streak)} samples in a row failed in one way ({failure.kind}): {why}. "
            f"Last: line {line}: {failure.reason}. What is stored stays; start the extraction again to continue.",
            EXIT_SERVER if failure.kind == "timeout" else EXIT_INCOMPLETE,
        )


class Budget:
    """Tokens at one server and bytes on their way from it to the dataset.

    Tokens are given back when the server has answered, bytes when the dump is deleted.
    """

    def __init__(self, tokens: int) -> None:
        self.most_tokens = tokens
        self.most_bytes: int | None = None
        """Set once the dump directory turned out to be too small for us; `None`: its free space decides."""
        self.tokens = self.bytes = 0
        self.written = 0
        """Of `bytes`, those that lie in the dump directory."""

    def fits(self, tokens: int, bytes_: int) -> bool:
        """Whether one more may be sent. A sample above the whole budget goes alone."""
        if self.bytes == 0:
            return True
        if self.most_bytes is not None and self.bytes + bytes_ > self.most_bytes:
            return False
        return self.tokens == 0 or self.tokens + tokens <= self.most_tokens

    def take(self, tokens: int, bytes_: int) -> None:
        self.tokens += tokens
        self.bytes += bytes_

    def halve_bytes(self) -> None:
        """The dump directory was full of our own."""
        self.most_bytes = max((self.bytes if self.most_bytes is None else self.most_bytes) // 2, 1)

    def grow_bytes(self, bytes_: int) -> None:
        """A sample of that size came through: the next may have some more company."""
        if self.most_bytes is not None:
            self.most_bytes += bytes_


class Pace:
    """Tokens a second that a server answered lately, and what that means for a request sent now."""

    SPAN = 60.0
    SLACK = 4.0
    BEFORE_FIRST = 5
    """Times the least time-out while nothing came yet: the first batches compile kernels."""

    def __init__(self) -> None:
        self._answers: collections.deque[tuple[float, int]] = collections.deque()
        self._began: float | None = None

    def sent(self, now: float) -> None:
        """A request goes out."""
        if self._began is None:
            self._began = now

    def answered(self, now: float, tokens: int) -> None:
        """A request came back."""
        self._answers.append((now, tokens))
        while len(self._answers) > 1 and self._answers[0][0] < now - self.SPAN:
            self._began = self._answers.popleft()[0]

    def timeout(self, now: float, ahead: int, least: float) -> float:
        """Seconds to wait for a request with `ahead` tokens before and in it."""
        if not self._answers or self._began is None:
            return self.BEFORE_FIRST * least
        rate = sum(tokens for _, tokens in self._answers) / max(now - self._began, 1e-3)
        return max(least, self.SLACK * ahead / rate)
