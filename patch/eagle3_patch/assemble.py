"""Cut batches into rows of requests, and put a request's pieces together by position. Pure; any payload."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One request in a prefill batch, as the scheduler has it.

    Computed are the positions ``[prefix, prefix + extend)``; ``prompt`` is the length of the request's prompt.
    """

    rid: str
    prompt: int
    prefix: int
    extend: int


@dataclasses.dataclass(frozen=True)
class Cut:
    """Rows ``[first, first + rows)`` of the batch are positions ``[position, position + rows)`` of entry `index`."""

    index: int
    first: int
    rows: int
    position: int


def cut(entries: Sequence[Entry], wanted: Sequence[bool]) -> list[Cut]:
    """The rows of the wanted entries that belong to their prompts.

    A decode row mixed into the batch and the generated ids of a request that is prefilled again after a retraction lie
    behind the prompt and are left out.
    """
    cuts, first = [], 0
    for index, entry in enumerate(entries):
        rows = max(0, min(entry.extend, entry.prompt - entry.prefix))
        if wanted[index] and rows:
            cuts.append(Cut(index, first, rows, entry.prefix))
        first += entry.extend
    return cuts


class Gap(Exception):
    """Rows of a prompt were never computed, because their keys and values came out of the prefix cache."""


@dataclasses.dataclass
class Assembly(Generic[T]):
    """The pieces of one request, gap-free from position 0."""

    total: int
    """Length of the prompt."""
    pieces: list[T] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)

    @property
    def have(self) -> int:
        """Positions ``[0, have)`` are there."""
        return sum(self.sizes)

    @property
    def complete(self) -> bool:
        """Whether every position is there."""
        return self.have == self.total

    def fresh(self, position: int, rows: int) -> tuple[int, int]:
        """Which rows of the piece ``[position, position + rows)`` are new: how many to skip, how many to take.

        A piece that starts again before `have` (the request was retracted in the middle) repeats rows that are there.

        Raises:
            Gap: the piece begins behind `have`.
        """
        have = self.have
        if position > have:
            raise Gap(f"{position - have} cached tokens: positions {have} to {position - 1} were not computed")
        skip = min(have - position, rows)
        return skip, min(rows - skip, self.total - position - skip)

    def add(self, piece: T, rows: int) -> None:
        """Append the rows that `fresh` said to take.

        Raises:
            ValueError: more rows than the prompt has left.
        """
        if rows < 1 or self.have + rows > self.total:
            raise ValueError(f"{rows} rows after {self.have} of {self.total}")
        self.pieces.append(piece)
        self.sizes.append(rows)
