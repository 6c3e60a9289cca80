"""From events to the lines of a recording: what is left out, put together and made smaller. No file is touched here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from eagle3_console import __version__
from eagle3_console.alerts import Sample
from eagle3_console.events import Event, LogArrived, LogRestarted, SnapshotArrived
from eagle3_console.recording import form, scrub
from eagle3_console.recording.delta import diff
from eagle3_console.state import initial, reduce
from eagle3_remote import protocol
from eagle3_remote.protocol import Snapshot

SNAPSHOT_EVERY = 0.9
"""Seconds: of the snapshots that come faster, those are kept in which something happened."""
CHECKPOINT_EVERY = 60.0
LOG_EVERY = 1.0
"""Seconds for which bytes of the log are put together into one line."""
MAX_HELD = 256 * 1024
"""Bytes of the log after which they are written at once, in the middle of a line if need be."""


class Writer:
    """Makes lines. What is written is exactly what a reader folds: the check-points are made from that alone.

    Args:
        target: what a person typed to get to the box.
        started_at: Unix seconds at second 0 of the recording.
        note: what is recorded, where it is not a person's own session.
    """

    def __init__(self, target: str, started_at: float, note: str = "") -> None:
        self._header = form.Header(form.FORMAT, __version__, target, started_at, note)
        self._state = initial(started_at, target)
        self._base: Any = None
        """The last snapshot written, as JSON values."""
        self._base_at = float("-inf")
        self._skipped: SnapshotArrived | None = None
        self._held: LogArrived | None = None
        self._held_since = 0.0
        self._checkpoint_at = 0.0
        self._told: Sample | None = None
        """The last point of the plots that a check-point wrote."""

    def begin(self) -> bytes:
        """The first line."""
        header = protocol.encode(self._header)
        return json.dumps(scrub.tree(header), separators=(",", ":")).encode() + b"\n"

    def take(self, seconds: float, event: Event) -> Iterator[bytes]:
        """The lines that are due now that `event` happened, `seconds` after the beginning."""
        if isinstance(event, LogArrived):
            yield from self._log(seconds, event)
            return
        if isinstance(event, SnapshotArrived):
            if self._held is not None and seconds - self._held_since >= LOG_EVERY:
                yield from self._release(seconds, whole=False)
            if seconds - self._base_at < SNAPSHOT_EVERY and not self._news(event.snapshot):
                self._skipped = event
                return
            yield from self._snapshot(seconds, event)
            if seconds - self._checkpoint_at >= CHECKPOINT_EVERY:
                yield self._checkpoint(seconds)
            return
        if isinstance(event, LogRestarted):
            yield from self._release(seconds, whole=True)
        yield from self._catch_up(seconds)
        self._state = reduce(self._state, event)
        yield form.line(seconds, type(event).__name__, scrub.tree(form.encode_event(event)))

    def end(self, seconds: float) -> Iterator[bytes]:
        """The last lines."""
        yield from self._release(seconds, whole=True)
        yield from self._catch_up(seconds)
        yield form.line(seconds, form.END, {})

    def _news(self, new: Snapshot) -> bool:
        old = self._state.snapshot
        return old is None or _landmarks(old) != _landmarks(new)

    def _catch_up(self, seconds: float) -> Iterator[bytes]:
        if self._skipped is not None:
            yield from self._snapshot(seconds, self._skipped)

    def _snapshot(self, seconds: float, event: SnapshotArrived) -> Iterator[bytes]:
        self._skipped = None
        new = scrub.tree(protocol.encode(event.snapshot))
        yield form.line(seconds, form.SNAPSHOT, {"at": event.at, "delta": diff(self._base, new)})
        self._base, self._base_at = new, seconds
        self._state = reduce(self._state, event)

    def _checkpoint(self, seconds: float) -> bytes:
        """The state; of the plots only the points that are new, and how many there are in all."""
        self._checkpoint_at = seconds
        history = self._state.history
        known = next((i for i in range(len(history) - 1, -1, -1) if history[i] is self._told), -1)
        self._told = history[-1] if history else None
        points = [list(dataclasses.astuple(sample)) for sample in history[known + 1 :]]
        data = {"state": scrub.tree(form.encode_state(self._state)), "points": points, "of": len(history)}
        return form.line(seconds, form.CHECKPOINT, data)

    def _log(self, seconds: float, event: LogArrived) -> Iterator[bytes]:
        held = self._held
        if held is not None and (event.job != held.job or event.offset != held.offset + len(held.data)):
            yield from self._release(seconds, whole=True)
            held = None
        if held is None:
            self._held, self._held_since = event, seconds
        else:
            self._held = dataclasses.replace(held, data=held.data + event.data)
        assert self._held is not None
        if len(self._held.data) >= MAX_HELD:
            yield from self._release(seconds, whole=False)
            if self._held is not None and len(self._held.data) >= MAX_HELD:
                yield from self._release(seconds, whole=True)
        elif seconds - self._held_since >= LOG_EVERY:
            yield from self._release(seconds, whole=False)

    def _release(self, seconds: float, *, whole: bool) -> Iterator[bytes]:
        """Write held bytes of the log; not `whole`: up to the last end of a line, so that no secret is cut in two."""
        held = self._held
        if held is None:
            return
        size = len(held.data) if whole else max(held.data.rfind(b"\n"), held.data.rfind(b"\r")) + 1
        rest = held.data[size:]
        if size:
            data = {"job": held.job, "data": scrub.text(form.to_text(held.data[:size])), "offset": held.offset}
            yield form.line(seconds, LogArrived.__name__, data)
        self._held = LogArrived(held.job, rest, held.offset + size) if rest else None
        self._held_since = seconds


def _landmarks(snapshot: Snapshot) -> tuple[object, ...]:
    """What makes a snapshot worth keeping by itself."""
    server, extract = snapshot.server, snapshot.extract
    return (
        server.phase,
        server.job.id if server.job is not None else None,
        server.log.failure,
        len(server.log.markers),
        len(server.restarts),
        extract.state if extract is not None else None,
        extract.job.id if extract is not None and extract.job is not None else None,
        extract.rejected + extract.failed if extract is not None else 0,
    )
