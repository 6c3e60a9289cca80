"""A recording at a moment: the state as it was then, and what the log had said."""

from __future__ import annotations

import dataclasses
from typing import Any

from eagle3_console.alerts import Sample
from eagle3_console.events import Event, LogArrived, LogRestarted, SnapshotArrived
from eagle3_console.recording import form
from eagle3_console.recording.delta import apply
from eagle3_console.recording.reader import Recording
from eagle3_console.state import ConsoleState, initial, reduce
from eagle3_remote import protocol
from eagle3_remote.protocol import Snapshot

LOG_TAIL = 256 * 1024
"""Bytes of the log that are shown after a jump: as much as a console shows that attaches then."""
_LOG = (LogArrived.__name__, LogRestarted.__name__)
LogEvent = LogArrived | LogRestarted


class Player:
    """Folds the events of a recording. A jump begins at the check-point before it, so it takes as long in hour 12 as in hour 1.

    Attributes:
        state: what is shown at `position`.
        position: seconds since the recording began.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.position = 0.0
        self._rewind()

    @property
    def wall(self) -> float:
        """Unix time at `position`, by the clock of the machine that recorded."""
        return self._wall_base + self.position

    @property
    def at_end(self) -> bool:
        """Whether nothing follows."""
        return self._next >= len(self.recording)

    def advance(self, to: float) -> list[LogEvent]:
        """Go on to second `to`; what the log said on the way."""
        log: list[LogEvent] = []
        end = self.recording.until(to)
        while self._next < min(end, len(self.recording)):
            event = self.step()
            if isinstance(event, LogEvent):
                log.append(event)
        self.position = min(max(to, self.position), self.recording.seconds)
        return log

    def seek(self, to: float) -> list[LogEvent]:
        """Jump to second `to`; a log that begins anew, and its end at that moment."""
        to = min(max(to, 0.0), self.recording.seconds)
        end = self.recording.until(to)
        self._begin_before(end)
        while self._next < min(end, len(self.recording)):
            if self.recording.kinds[self._next] in _LOG:
                self._next += 1
            else:
                self.step()
        self.position = min(to, self.recording.seconds)
        return self._log_before(self._next)

    def _rewind(self) -> None:
        header = self.recording.header
        self.state: ConsoleState = initial(header.started_at, header.target)
        self._snapshot: Any = None
        """The last snapshot as JSON values: the next line says what changed in it."""
        self._next = 0
        self._wall_base = header.started_at

    def _begin_before(self, end: int) -> None:
        """Take up the last usable check-point among the first `end` lines, or the beginning."""
        for index in range(self.recording.last_checkpoint(end), -1, -1):
            number = self.recording.checkpoints[index]
            try:
                data = self.recording.data(number)
                state = form.decode_state(data["state"])
                history = self._history(index, data["of"])
            except (ValueError, TypeError, KeyError):
                continue  # of another console: the events alone tell the same, only more slowly
            self._snapshot = data["state"]["snapshot"]
            self.state = dataclasses.replace(state, history=history)
            self._next = number + 1
            if state.as_of is not None:
                self._wall_base = state.as_of - self.recording.times[number]
            return
        self._rewind()

    def _history(self, index: int, count: int) -> tuple[Sample, ...]:
        """The last `count` points of the plots: each check-point has those that are new in it."""
        points: list[list[Any]] = []
        while len(points) < count and index >= 0:
            points = self.recording.data(self.recording.checkpoints[index])["points"] + points
            index -= 1
        return tuple(Sample(*point) for point in points[len(points) - count :])

    def step(self) -> Event | None:
        """Take the next line; the event that it is, where it is one. A damaged line is the end."""
        number = self._next
        try:
            event = self._event(number)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            self.recording.end_before(number, str(error))
            return None
        self._next = number + 1
        self.position = max(self.position, self.recording.times[number])
        if event is not None:
            self.state = reduce(self.state, event)
        if isinstance(event, SnapshotArrived):
            self._wall_base = event.at - self.recording.times[number]
        return event

    def _event(self, number: int) -> Event | None:
        kind = self.recording.kinds[number]
        if kind in (form.CHECKPOINT, form.END):
            return None
        data = self.recording.data(number)
        if kind != form.SNAPSHOT:
            return form.decode_event(kind, data)
        self._snapshot = apply(self._snapshot, data["delta"])
        return SnapshotArrived(protocol.decode(Snapshot, self._snapshot), float(data["at"]))

    def _log_before(self, end: int) -> list[LogEvent]:
        parts: list[LogEvent] = []
        size, number = 0, end
        while number > 0 and size < LOG_TAIL:
            number -= 1
            kind = self.recording.kinds[number]
            if kind not in _LOG:
                continue
            try:
                event = form.decode_event(kind, self.recording.data(number))
            except ValueError:
                break
            assert isinstance(event, LogEvent)
            parts.append(event)
            if isinstance(event, LogRestarted):
                return parts[::-1]
            size += len(event.data)
        job = parts[-1].job if parts else ""
        return [LogRestarted(job), *reversed(parts)]
