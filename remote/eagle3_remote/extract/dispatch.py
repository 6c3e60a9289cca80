"""Which sample goes to which server now, or why none does: budgets, space, servers that are away, samples under suspicion."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Sequence

from eagle3_remote.extract import space
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.lane import Lane, spread
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.records import Entry
from eagle3_remote.extract.window import Window

_PATIENCE = 600.0
"""Seconds that looking at the output may fail: a network disk's hiccup passes."""

_LEAVING = (
    "Paused: the server is being stopped; what is in flight is finished, the rest waits for the server to come back."
)


@dataclasses.dataclass(frozen=True)
class Next:
    """Send `entry` to `lane`, or `wait`, with a `sentence` where a person should know why; none of it: done."""

    entry: Entry | None = None
    lane: Lane | None = None
    wait: bool = False
    sentence: str = ""
    held: str = ""
    """See `ExtractStatus.held`."""


class Dispatcher:
    """Looks at the lanes and the window each time it is asked."""

    def __init__(self, plan: Plan, lanes: Sequence[Lane], window: Window) -> None:
        self._plan, self._lanes, self._window = plan, lanes, window
        self._failing_since: float | None = None
        self.suspects: collections.deque[Entry] = collections.deque()
        """In flight when a server died: each is tried alone."""

    def next(self, busy: bool) -> Next:
        """What to do now; `busy`: samples are under way.

        Raises:
            ExtractionError: what ended the reading of the input early, or the output is gone.
        """
        entry = self._window.next
        if entry is None and not (busy or self.suspects) and self._window.empty:
            return Next()  # no server is needed any more
        present = [lane for lane in self._lanes if lane.there]
        if not present and any(lane.leaving for lane in self._lanes):
            return Next(wait=True, sentence=_LEAVING)
        if not present:
            why = next((lane.away for lane in self._lanes if lane.away), "it is gone")
            sentence = f"Paused: the server is away ({why}). Waiting for it to come back."
            return Next(wait=True, sentence="" if busy else sentence)
        usable = [lane for lane in present if not lane.alone]
        if self.suspects and not any(lane.alone for lane in present):
            quietest = min(usable, key=lambda lane: len(lane.in_flight))
            if not quietest.budget.tokens:
                quietest.alone = True
                return Next(self.suspects.popleft(), quietest)
            usable.remove(quietest)
        if entry is None:
            return Next(wait=True)
        return self._send_or_wait(entry, usable)

    def _send_or_wait(self, entry: Entry, usable: Sequence[Lane]) -> Next:
        size = self._plan.shape.file_bytes(entry.tokens)
        lane = spread(usable, entry.tokens, size)
        if lane is None:
            return Next(wait=True)
        # A dump on the output's own file system has taken its space there already.
        owed = sum(one.budget.bytes - (one.budget.written if one.rename else 0) for one in self._lanes)
        root = self._plan.dataset.root
        try:
            where = space.room(root)
        except OSError as error:
            self._failing_since = self._failing_since or time.monotonic()
            if isinstance(error, FileNotFoundError) or time.monotonic() - self._failing_since > _PATIENCE:
                raise ExtractionError(
                    f"The output {root} cannot be looked at: {error.strerror}. Start the extraction again when it is there; what "
                    "is stored stays."
                ) from None
            return Next(
                wait=True,
                sentence=f"Paused: the output {root} cannot be looked at ({error.strerror}). It is tried again.",
            )
        self._failing_since = None
        why = space.output_full(where, owed, size, root) or lane.room(size)
        if why is None:
            return Next(self._window.take(), lane)
        # While work of ours is on its way out, the space may be ours and come back by itself.
        return Next(wait=True, sentence="" if any(one.budget.bytes for one in self._lanes) else why)
