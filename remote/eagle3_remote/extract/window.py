"""The samples that are sent next: taken from the journal ahead of need, the longest of each lot first."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Coroutine
from typing import Any

from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.records import Entry
from eagle3_remote.extract.storing import Storer


class Window:
    """What waits in the journal, as the flow gets to see it. Used on the event loop's thread.

    Args:
        size: samples taken at a time.
        beside: runs a coroutine beside the flow, and wakes it at the end.
    """

    def __init__(
        self,
        journal: Journal,
        storer: Storer,
        feeder: Feeder,
        size: int,
        beside: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._journal, self._storer, self._feeder, self._size, self._beside = journal, storer, feeder, size, beside
        self._lot: collections.deque[Entry] = collections.deque()
        self._known: set[int] = set()
        """Lines in the lot, under way or under suspicion: not to be taken again."""
        self._refill: asyncio.Task[None] | None = None
        self.empty = False
        """Everything was read, nothing waits, and no known sample can come back to waiting."""

    @property
    def next(self) -> Entry | None:
        """The sample to send next; `None`: there is none yet, or (see `empty`) any more.

        Raises:
            ExtractionError: what ended the reading of the input early.
        """
        if 2 * len(self._lot) <= self._size and self._refill is None and not self.empty:
            self._refill = self._beside(self._fill())
        if not self._lot:
            self._feeder.check()
            return None
        return self._lot[0]

    def take(self) -> Entry:
        """`next` is sent."""
        return self._lot.popleft()

    def leave(self, line: int) -> None:
        """A sample is done with, or waits again in the journal."""
        self._known.discard(line)

    def look_again(self) -> None:
        """Something may wait again."""
        self.empty = False

    async def _fill(self) -> None:
        try:
            all_read = self._feeder.done  # asked before the journal is, which gets the last samples first
            limit = self._size + len(self._known)
            waiting = await self._storer.ask(lambda: self._journal.waiting(limit))
            new = [entry for entry in waiting if entry.line not in self._known]
            # The longest first, so that the end of a lot, and of the run, is short samples on full servers.
            self._lot.extend(sorted(new, key=lambda entry: (entry.attempts, -entry.tokens)))
            self._known.update(entry.line for entry in new)
            self.empty = all_read and not new and not self._known
        finally:
            self._refill = None
