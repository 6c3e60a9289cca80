"""The screen's stand-in where there is no terminal for one: the same session, told as plain lines on standard output."""

from __future__ import annotations

import sys
from typing import TextIO

from eagle3_console.events import ENDED, ConnectionChanged, Event, SnapshotArrived
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import Narrator
from eagle3_console.notify.headless import alerting
from eagle3_console.recording.recorder import Recorder
from eagle3_console.settings import AlertSettings
from eagle3_console.ui.controller import Controller
from eagle3_remote.protocol import Snapshot

_DEFAULT = AlertSettings()


async def follow(
    controller: Controller,
    target: str,
    recorder: Recorder | None = None,
    stream: TextIO | None = None,
    alerts: AlertSettings = _DEFAULT,
) -> int:
    """Tell what happens until the session ends or somebody interrupts; nothing on the box is changed from here.

    Args:
        controller: not connected yet.
        target: what a person typed to get here.
        recorder: is told every event.
        stream: where the lines go; default standard output.
        alerts: where else alerts go.
    """
    told = _Told(Narrator(stream=stream or sys.stdout))
    told.narrator.line(
        f"There is no terminal for a screen here, so {target} is followed in lines; ctrl+c ends that alone."
    )
    async with alerting(told.take, target, alerts) as take:
        async for event in controller.events():
            fault = recorder.take(event) if recorder is not None else None
            take(event)
            if fault is not None:
                take(fault)
            if isinstance(event, ConnectionChanged) and event.connection.word in ENDED:
                return event.connection.exit_code
    return ExitCode.GOOD


class _Told:
    """Tells each event, and after the first snapshot also what does not run: the narrator tells what does."""

    def __init__(self, narrator: Narrator) -> None:
        self.narrator = narrator
        self._seen = False

    def take(self, event: Event) -> None:
        self.narrator(event)
        if isinstance(event, SnapshotArrived) and not self._seen:
            self._seen = True
            self._first(event.snapshot)

    def _first(self, snapshot: Snapshot) -> None:
        if snapshot.server.job is None:
            self.narrator.line(f"server: {snapshot.server.sentence}")
        if snapshot.extract is not None:
            self.narrator.line(f"extract: {snapshot.extract.state.value}: {snapshot.extract.sentence}")
        else:
            self.narrator.line("extract: nothing was extracted here yet")
