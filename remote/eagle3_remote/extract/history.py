"""How long each run of a dataset took, and what its time went to; kept in the journal, so that it outlives the runs."""

from __future__ import annotations

import time

from eagle3_remote.extract.journal import Journal
from eagle3_remote.protocol import ExtractState, RunRecord, decode, encode

_CAUSES = (
    ("on request", "paused by a person"),
    ("server is away", "server away"),
    ("server is being stopped", "server away"),
    ("cannot be looked at", "dump directory away"),
    ("the dump directory", "dump directory full"),
    ("is full", "output full"),
    ("only", "output full"),
    ("in a row", "failures in a row"),
)


def cause(state: ExtractState, sentence: str) -> str:
    """What time in this state counts as: ``extracting``, ``planning``, ``finishing``, or why it is paused."""
    if state is ExtractState.PAUSED:
        return next((name for words, name in _CAUSES if words in sentence), "paused")
    return "extracting" if state is ExtractState.RUNNING else state.value


class Clock:
    """Time by cause. Pure: the clock is passed in (monotonic seconds)."""

    def __init__(self, now: float, what: str) -> None:
        self._since, self._what = now, what
        self._spent: dict[str, float] = {}

    def turn(self, now: float, what: str) -> None:
        """From `now` on time counts as `what`."""
        self._spent = self.spent(now)
        self._since, self._what = now, what

    def spent(self, now: float) -> dict[str, float]:
        """Seconds by cause until `now`."""
        return {**self._spent, self._what: self._spent.get(self._what, 0.0) + max(now - self._since, 0.0)}


def keep(journal: Journal, record: RunRecord) -> None:
    """Write down how a run is doing; the last word counts, also of one that is killed.

    Raises:
        OSError: no space.
    """
    journal.put(f"run {record.run}", encode(record))


def runs(journal: Journal) -> tuple[RunRecord, ...]:
    """Every run, in the order of their beginning, but for those that found nothing to do."""
    found = (decode(RunRecord, value) for value in journal.group("run "))
    return tuple(sorted((one for one in found if not _idle(one)), key=lambda one: one.began_at))


def maker(journal: Journal) -> RunRecord | None:
    """The last run that stored something; `None`: none is known."""
    return next((one for one in reversed(runs(journal)) if one.stored), None)


def _idle(one: RunRecord) -> bool:
    return one.state == ExtractState.FINISHED.value and not one.stored and not one.spent.get("extracting")


def begin(run: str) -> RunRecord:
    """A run that begins now."""
    return RunRecord(run, time.time())
