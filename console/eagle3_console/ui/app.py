"""The console's screen as a Textual application."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from eagle3_console.events import AlertRaised, Event, LogArrived, LogRestarted
from eagle3_console.keys import KEYS, Key
from eagle3_console.notify.notifier import Notifier
from eagle3_console.recording.recorder import Recorder
from eagle3_console.settings import Settings
from eagle3_console.state import reduce
from eagle3_console.ui import themes
from eagle3_console.ui.box_actions import BoxActions
from eagle3_console.ui.controller import Controller
from eagle3_console.ui.farewell import farewell
from eagle3_console.ui.glyphs import ASCII
from eagle3_console.ui.log_actions import LogActions
from eagle3_console.ui.palette import Everything
from eagle3_console.ui.screen_actions import ScreenActions

_DEFAULT = Settings()
_ACTIONS = {key.id: key.action for key in KEYS}
_SHARED = ("log.top", "log.end")
"""Keys that a panel has for itself: they are offered to it first."""


class ConsoleApp(BoxActions, LogActions, ScreenActions):
    """Draws what the controller tells and calls what the keys ask for.

    Args:
        controller: the work; its events are consumed until they end.
        target: what a person typed to get here, for the header.
        settings: the person's own keys, theme and so on.
        readonly: nothing on the box is changed from here; the settings may say so too.
        ends_with_us: the box is a demo's, and what runs there is stopped when the screen closes.
        ascii_signs: signs for a terminal without UTF-8; `None`: what the locale says.
        wall: Unix clock of this machine.
        recorder: is told every event; what it answers is an event too.
    """

    CSS_PATH = Path(__file__).with_name("console.tcss")
    TITLE = "eagle3-console"
    ENABLE_COMMAND_PALETTE = False  # ours has a key of its own, in the table
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Everything}
    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority the application takes no further key before the action is over: what is typed behind a key that opens
        # something lands there. The second binding counts where the first is not possible: a line that leaves the key alone.
        *(
            Binding(key.keys, f"key('{key.id}')", key.label, id=key.id, priority=True)
            for key in KEYS
            if key.id not in _SHARED
        ),
        *(Binding(key.keys, key.action, key.label, key_display=key.shown, id=key.id) for key in KEYS),
    ]

    def __init__(
        self,
        controller: Controller,
        target: str,
        settings: Settings = _DEFAULT,
        readonly: bool = False,
        ends_with_us: bool = False,
        ascii_signs: bool | None = None,
        wall: Callable[[], float] = time.time,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(controller, target, settings, readonly, ascii_signs, wall)
        self._recorder = recorder
        self.notifier = Notifier(settings.alerts, self._write, lambda alert: self.take(AlertRaised(alert)))
        self._ends_with_us = ends_with_us
        self.use_command_palette = True
        self.set_keymap(settings.keys)
        self.set_class(self.glyphs is ASCII, "-ascii")
        for theme in themes.OWN:
            self.register_theme(theme)
        self.theme = settings.theme

    async def stay(self, mouse: bool) -> int:
        """Run until the person leaves; gives the exit code."""
        # A shell may export them, and Textual asks them before the terminal: the size would be fixed for good.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
        await self.run_async(mouse=mouse)
        await self.notifier.close()
        return self.return_code or 0

    def get_default_screen(self) -> Screen[None]:
        """The dashboard."""
        return self.dashboard

    def on_mount(self) -> None:
        """Begin to listen; leave cleanly when told to from outside."""
        self._draw()
        self.set_interval(1.0, lambda: self.dashboard.tick(self.wall()))
        self.run_worker(self._listen(), name="events", group="events", exit_on_error=False)
        if not self.is_headless:
            # Textual itself leaves the alternate screen and mouse tracking on when it is killed by these.
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                with contextlib.suppress(NotImplementedError, RuntimeError):
                    loop.add_signal_handler(number, self._killed, number)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key of the table is none while something is typed or a dialog is open; but the one that leaves the search is."""
        if action == "key":
            typing = isinstance(self.focused, Input) and parameters != ("back",)
            return not typing and not isinstance(self.screen, ModalScreen)
        return super().check_action(action, parameters)

    async def action_key(self, name: str) -> None:
        """A key of the table, by its id."""
        await self.run_action(_ACTIONS[name])

    def _killed(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number, message=None if number == signal.SIGHUP else self.farewell())

    async def _listen(self) -> None:
        try:
            async for event in self.controller.events():
                self.take(event)
        except Exception as error:
            self.complain(
                "session",
                f"the session ended: {error}",
                f"detach ({self.key_of('detach').shown}) and start eagle3-console again",
            )

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        if isinstance(event, LogArrived):
            self.log_panel.feed(event.job, event.data, event.offset)
        elif isinstance(event, LogRestarted):
            self.log_panel.restart(event.job)
        else:
            before, self.state = self.state, reduce(self.state, event)
            self._draw()
            self.notifier.follow(self.target, before, self.state)
            self.offer_setup()
        fault = self._recorder.take(event) if self._recorder is not None else None
        if fault is not None:
            self.take(fault)

    def _write(self, text: str) -> None:
        """Put a bell or a notification on the terminal, between two frames."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(text)

    def _draw(self) -> None:
        self.dashboard.show(self.state, self.wall())

    def impossible(self) -> Iterator[tuple[Key, str]]:
        """The keys that would do nothing now, each with the reason."""
        for key in self.keys:
            if key.act and (reason := self.why_not(key.act)):
                yield key, reason

    def farewell(self) -> str:
        """What goes on without the console, and how to come back to it."""
        return farewell(self.state, self.target, self.again, self._ends_with_us, self.under_way("the whole run"))
