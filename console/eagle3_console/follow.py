"""The screen's stand-in where there is no terminal for one: the same session, told as plain lines on standard output."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from eagle3_console.events import AlertRaised, ConnectionChanged, Event, SnapshotArrived
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import Narrator
from eagle3_console.recording.recorder import Recorder
from eagle3_console.state import initial, reduce
from eagle3_console.ui.controller import Controller
from eagle3_remote.protocol import Snapshot


async def follow(
    controller: Controller, target: str, recorder: Recorder | None = None, stream: TextIO | None = None
) -> int:
    """Tell what happens until the session ends or somebody interrupts; nothing on the box is changed from here.

    Args:
        controller: not connected yet.
        target: what a person typed to get here.
        recorder: is told every event.
        stream: where the lines go; default standard output.
    """
    told = _Told(target, Narrator(stream=stream or sys.stdout))
    told.narrator.line(
        f"There is no terminal for a screen here, so {target} is followed in lines; ctrl+c ends that alone."
    )
    async for event in controller.events():
        fault = recorder.take(event) if recorder is not None else None
        told.take(event)
        if fault is not None:
            told.take(fault)
        if isinstance(event, ConnectionChanged) and event.connection.word == "refused":
            return ExitCode.LOGIN
    return ExitCode.GOOD


class _Told:
    """What was told so far."""

    def __init__(self, target: str, narrator: Narrator) -> None:
        self.narrator = narrator
        self._state = initial(time.time(), target)

    def take(self, event: Event) -> None:
        before = self._state
        self._state = reduce(before, event)
        self.narrator(event)
        if isinstance(event, SnapshotArrived) and before.snapshot is None:
            self._first(event.snapshot)
        if not isinstance(event, AlertRaised):  # the narrator tells that one itself
            known = set(before.alerts)
            for alert in self._state.alerts:
                if alert not in known:
                    self.narrator(AlertRaised(alert))

    def _first(self, snapshot: Snapshot) -> None:
        """The narrator tells what runs; here what does not."""
        if snapshot.server.job is None:
            self.narrator.line(f"server: {snapshot.server.sentence}")
        if snapshot.extract is not None:
            self.narrator.line(f"extract: {snapshot.extract.state.value}: {snapshot.extract.sentence}")
        else:
            self.narrator.line("extract: nothing was extracted here yet")
