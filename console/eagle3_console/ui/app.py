"""The console's screen as a Textual application."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.screen import Screen

from eagle3_console import units
from eagle3_console.alerts import SERVING
from eagle3_console.events import Event, LogArrived, LogRestarted
from eagle3_console.state import reduce
from eagle3_console.ui.box_actions import BoxActions
from eagle3_console.ui.controller import Controller
from eagle3_console.ui.glyphs import ASCII
from eagle3_console.ui.keys import ACTS, KEYS
from eagle3_console.ui.log_actions import LogActions
from eagle3_console.ui.widgets.dialog import HelpScreen
from eagle3_remote.protocol import STARTING


class ConsoleApp(BoxActions, LogActions):
    """Draws what the controller tells and calls what the keys ask for.

    Args:
        controller: the work; its events are consumed until they end.
        target: what a person typed to get here, for the header and for "come back with".
        readonly: keys that change something on the box are dimmed.
        ends_with_us: the box is a demo's, and what runs there is stopped when the screen closes.
        ascii_signs: signs for a terminal without UTF-8; `None`: what the locale says.
        wall: Unix clock of this machine.
    """

    CSS_PATH = Path(__file__).with_name("console.tcss")
    TITLE = "eagle3-console"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in KEYS]

    def __init__(
        self,
        controller: Controller,
        target: str,
        readonly: bool = False,
        ends_with_us: bool = False,
        ascii_signs: bool | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(controller, target, readonly, ascii_signs, wall)
        self._ends_with_us = ends_with_us
        self._keys: tuple[bool | None, ...] = ()
        self.set_class(self.glyphs is ASCII, "-ascii")

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

    def _killed(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number, message=None if number == signal.SIGHUP else self.farewell())

    async def _listen(self) -> None:
        try:
            async for event in self.controller.events():
                self.take(event)
        except Exception as error:
            self.complain("session", f"the session ended: {error}", "detach (q) and start eagle3-console again")

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        if isinstance(event, LogArrived):
            self.log_panel.feed(event.job, event.data, event.offset)
        elif isinstance(event, LogRestarted):
            self.log_panel.restart(event.job)
        else:
            self.state = reduce(self.state, event)
            self._draw()

    def _draw(self) -> None:
        self.dashboard.show(self.state, self.wall())
        keys = tuple(self.check_action(action, ()) for action in (*ACTS, "reconnect", "take_over"))
        if keys != self._keys:
            # Only then: the footer is built anew each time.
            self._keys = keys
            self.refresh_bindings()

    def action_panel(self, number: int) -> None:
        """Focus a panel."""
        self.dashboard.focus_panel(number)

    def action_zoom(self) -> None:
        """One panel alone, or all."""
        self.dashboard.toggle_zoom()

    async def action_back(self) -> None:
        """Leave the search line, then the search, then the filter of the log, then the zoom."""
        if self.log_panel.search_open or self.log_panel.view.searching:
            self.log_panel.close_search(forget=True)
        elif self.log_panel.no_filter():
            pass
        elif self.dashboard.has_class("-zoomed"):
            self.dashboard.zoom(None)

    def action_help(self) -> None:
        """Every key."""
        self.push_screen(HelpScreen(KEYS, self.target))

    def action_help_quit(self) -> None:
        """ctrl+c: people fear that it stops the run."""
        self.notify("ctrl+c stops nothing; q detaches, and what runs on the box goes on")

    def action_detach(self) -> None:
        """Leave; nothing on the box stops."""
        self.exit(message=self.farewell())

    async def action_quit(self) -> None:
        """ctrl+q is Textual's own key for the same."""
        self.action_detach()

    def farewell(self) -> str:
        """What goes on without the console, and how to come back to it."""
        if self._ends_with_us:
            return "The demo is over: what it started is stopped now."
        running = []
        snapshot = self.state.snapshot
        if snapshot is not None and snapshot.extract is not None and self.extracting:
            extract = snapshot.extract
            running.append(f"The extraction ({units.number(extract.stored)} of {units.number(extract.total)} samples)")
        if snapshot is not None and snapshot.server.phase in (*STARTING, *SERVING):
            running.append("the server" if running else "The server")
        if not running:
            return f"Detached from {self.target}. Come back with: eagle3-console {self.target}"
        verb = "go on" if len(running) > 1 else "goes on"
        return f"{' and '.join(running)} {verb} on {self.target}. Come back with: eagle3-console {self.target}"
