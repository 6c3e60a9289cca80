"""The screen on a recording: the same panels, a time line below them, and keys that move in time."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from eagle3_console.errors import UsageError
from eagle3_console.events import Event, LogArrived
from eagle3_console.keys import Key
from eagle3_console.recording.player import LogEvent, Player
from eagle3_console.settings import AlertSettings, Settings
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.controller import Controller, LossyAction
from eagle3_console.ui.widgets.time_line import TimeLine, place

SPEEDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
NO_BOX = "This is a recording: there is no box."
_FRAME = 0.1
_LEAP = 60.0
"""Seconds of the recording in one frame above which the check-points are the faster way."""

REPLAY_KEYS = (
    Key("replay.pause", "replay", "space", "space", "pause_time", "pause", "stop the time, or let it go on", 1),
    Key("replay.back", "replay", "left", "←", "move_time(-10)", "-10 s", "10 seconds back", 2),
    Key("replay.forward", "replay", "right", "→", "move_time(10)", "+10 s", "10 seconds forward", 2),
    Key("replay.back.more", "replay", "ctrl+left,shift+left", "^←", "move_time(-60)", "-1 min", "a minute back"),
    Key("replay.forward.more", "replay", "ctrl+right,shift+right", "^→", "move_time(60)", "+1 min", "a minute forward"),
    Key("replay.slower", "replay", "less_than_sign", "<", "change_speed(-1)", "slower", "play slower", 1),
    Key("replay.faster", "replay", "greater_than_sign", ">", "change_speed(1)", "faster", "play faster", 1),
    Key("replay.start", "replay", "home", "home", "jump_time(0)", "start", "to the start of the recording"),
    Key("replay.end", "replay", "end", "end", "jump_time(1)", "end", "to the end of the recording"),
)
_MOVES = {key.action.partition("(")[0] for key in REPLAY_KEYS}


_DEFAULT = Settings()
_QUIET = AlertSettings(bell=False)
"""Nobody is called for what was long ago."""


class ReplayController:
    """Nothing happens by itself, and no act is possible, whatever acts there are."""

    async def events(self) -> AsyncIterator[Event]:
        """None: the time line gives them."""
        return
        yield

    def losses(self, action: LossyAction) -> list[str]:
        """Nothing can be lost."""
        return []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def refuse(*_: object, **__: object) -> None:
            raise UsageError(NO_BOX)

        return refuse


class ReplayApp(ConsoleApp):
    """Plays a recording.

    Args:
        player: at the start.
        settings: the person's own keys, theme and so on.
        name: what a person typed to name the recording; empty: the one that comes with the package.
        speed: how many times as fast.
        at: second to begin at.
        ascii_signs: as for `ConsoleApp`.
        monotonic: a clock, in seconds.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.label, key_display=key.shown, id=key.id, priority=True) for key in REPLAY_KEYS
    ]

    def __init__(
        self,
        player: Player,
        settings: Settings = _DEFAULT,
        name: str = "",
        speed: float = 1.0,
        at: float = 0.0,
        ascii_signs: bool | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        controller = cast(Controller, ReplayController())
        settings = dataclasses.replace(settings, alerts=_QUIET)
        header = player.recording.header
        super().__init__(
            controller, header.target, settings, readonly=True, ascii_signs=ascii_signs, wall=lambda: player.wall
        )
        self.player = player
        self.time_line = TimeLine(self.glyphs, header.note or "recording", player.recording.seconds)
        self.speed = speed
        self.paused = False
        self._file = name
        self._at = at
        self._monotonic = monotonic
        self._frame_at = 0.0

    async def on_ready(self) -> None:
        """The dashboard is there: put the time line below it and begin."""
        await self.dashboard.mount(self.time_line, before="#keys")
        self.go_to(self._at)
        if self.player.recording.header.note:
            self.notify(self.player.recording.header.note, title="recording", timeout=8, markup=False)
        if self.player.recording.fault:
            self.notify(self.player.recording.fault, title="recording", severity="warning", timeout=10, markup=False)
        self._frame_at = self._monotonic()
        self.set_interval(_FRAME, self._frame)

    def _frame(self) -> None:
        now = self._monotonic()
        step, self._frame_at = (now - self._frame_at) * self.speed, now
        if self.paused or self.player.at_end:
            return
        to = self.player.position + step
        if step > _LEAP:
            self._show(self.player.seek(to))
        else:
            self._show(self.player.advance(to))

    def go_to(self, seconds: float) -> None:
        """Jump to a second of the recording."""
        self._show(self.player.seek(seconds))

    def _show(self, log: list[LogEvent]) -> None:
        for event in log:
            if isinstance(event, LogArrived):
                self.log_panel.feed(event.job, event.data, event.offset)
            else:
                self.log_panel.restart(event.job)
        self.state = dataclasses.replace(self.player.state, keys=self.state.keys)
        self._draw()
        self._tell()

    def _tell(self) -> None:
        player = self.player
        word = "ended" if player.at_end else "paused" if self.paused else "playing"
        self.time_line.show(player.position, player.recording.seconds, word, self.speed, player.recording.fault)

    def table(self) -> tuple[Key, ...]:
        """Those of the time line first; no act stands in the footer."""
        rest = (dataclasses.replace(key, footer=0) if key.act else key for key in super().table())
        return (*REPLAY_KEYS, *rest)

    def why_not(self, act: str) -> str:
        """No act is possible."""
        return NO_BOX

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Time does not move while something is typed or a dialog is open."""
        if action in _MOVES:
            return not isinstance(self.screen, ModalScreen) and not isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def action_pause_time(self) -> None:
        """Stop, go on, or begin again after the end."""
        if self.player.at_end:
            self.paused = False
            self.go_to(0.0)
            return
        self.paused = not self.paused
        self._tell()

    def action_move_time(self, seconds: float) -> None:
        """Some seconds back or forward."""
        self.go_to(self.player.position + seconds)

    def action_jump_time(self, part: float) -> None:
        """To the start or to the end."""
        self.go_to(part * self.player.recording.seconds)

    def action_change_speed(self, step: int) -> None:
        """The next slower or faster one."""
        if step > 0:
            self.speed = next((speed for speed in SPEEDS if speed > self.speed), self.speed)
        else:
            self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), self.speed)
        self._tell()

    def on_time_line_chosen(self, event: TimeLine.Chosen) -> None:
        """A click on the time line."""
        event.stop()
        self.go_to(event.part * self.player.recording.seconds)

    def farewell(self) -> str:
        """Where it was left."""
        words = ["eagle3-console", "replay", *([self._file] if self._file else [])]
        at, total = place(self.player.position), place(self.player.recording.seconds)
        return f"Left the recording at {at} of {total}. Go on with: {shlex.join(words)} --at {at}"
