"""Patience, what failures of single samples mean for the run, and how much may be under way. Pure."""

from __future__ import annotations

import collections
import dataclasses

from eagle3_remote.extract.checks import EXPLANATIONS
from eagle3_remote.extract.errors import EXIT_INCOMPLETE, EXIT_SERVER, ExtractionError, SampleFailure


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Patience and sizes; the defaults are for a real server."""

    min_timeout: float = 120.0
    """Seconds a request may take at least; more where the rate so far predicts more."""
    dump_timeout: float = 120.0
    """Seconds from the answer to the complete dump."""
    server_wait: float = 600.0
    """Seconds to wait for a server that is away."""
    server_losses: int = 3
    """So often the server may go away within one run."""
    attempts: int = 3
    streak: int = 3
    """So many samples in a row failing in one way end the run."""
    threads: int = 4
    poll: float = 0.5
    commit_every: float = 0.1
    """Seconds over which stored files are made durable and journalled together."""


class Failures:
    """Counts tries, and failures in a row of one kind."""

    def __init__(self, attempts: int, streak: int) -> None:
        self._attempts, self._limit = attempts, streak
        self._tries: collections.Counter[int] = collections.Counter()
        self._lost: collections.Counter[int] = collections.Counter()
        self._streak: dict[int, tuple[str, bool]] = {}

    def stored(self) -> None:
        """A sample came through: what fails now is not a row of failures any more."""
        self._streak.clear()

    def lost(self, line: int) -> int:
        """How often the server went away with this sample, this time included."""
        self._lost[line] += 1
        return self._lost[line]

    def failed(self, line: int, failure: SampleFailure) -> bool:
        """Note a failed attempt; whether it was the sample's last. What the server refuses is not tried again."""
        self._tries[line] += 1
        final = self._tries[line] >= self._attempts or failure.kind == "refused"
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
    """Tokens at the server and bytes on their way from it to the dataset.

    Tokens are given back when the server has answered, bytes when the dump is deleted.
    """

    def __init__(self, tokens: int, bytes_: int) -> None:
        self.most_tokens, self.most_bytes = tokens, bytes_
        self.tokens = self.bytes = 0

    def fits(self, tokens: int, bytes_: int) -> bool:
        """Whether one more may be sent. A sample above the whole budget goes alone."""
        alone = self.bytes == 0
        return alone or (self.tokens + tokens <= self.most_tokens and self.bytes + bytes_ <= self.most_bytes)

    def take(self, tokens: int, bytes_: int) -> None:
        self.tokens += tokens
        self.bytes += bytes_

    def halve_bytes(self) -> None:
        """The dump directory was full of our own."""
        self.most_bytes = max(self.most_bytes // 2, 1)
