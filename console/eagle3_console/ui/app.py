"""The console's screen as a Textual application."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.screen import Screen

from eagle3_console import units
from eagle3_console.alerts import EXTRACTING, SERVING
from eagle3_console.events import Alert, AlertRaised, Event, LogArrived, LogRestarted
from eagle3_console.loglines import save_new
from eagle3_console.state import ConsoleState, initial, reduce
from eagle3_console.ui.controller import Controller, LossyAction
from eagle3_console.ui.glyphs import ASCII, UNICODE, ascii_only
from eagle3_console.ui.keys import ACTS, KEYS
from eagle3_console.ui.widgets.dashboard import Dashboard
from eagle3_console.ui.widgets.dialog import AskDialog, Choice, HelpScreen
from eagle3_console.ui.widgets.log_panel import LogPanel
from eagle3_remote.protocol import STARTING, Phase

_DOWN = (Phase.NOT_RUNNING, Phase.EXITED, Phase.FAILED)


class ConsoleApp(App[None]):
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
        super().__init__()
        self._controller = controller
        self._target = target
        self._readonly = readonly
        self._ends_with_us = ends_with_us
        self._wall = wall
        self._glyphs = ASCII if (ascii_only() if ascii_signs is None else ascii_signs) else UNICODE
        self._busy: set[str] = set()
        self._keys: tuple[bool | None, ...] = ()
        self._faults = itertools.count(1)
        self.state: ConsoleState = initial(wall(), target)
        self._dashboard = Dashboard(self.state, wall(), self._glyphs, target, readonly)
        self.set_class(self._glyphs is ASCII, "-ascii")

    @property
    def log_panel(self) -> LogPanel:
        """Panel 4."""
        return self._dashboard.log_panel

    def get_default_screen(self) -> Screen[None]:
        """The dashboard."""
        return self._dashboard

    def on_mount(self) -> None:
        """Begin to listen; leave cleanly when told to from outside."""
        self._draw()
        self.set_interval(1.0, lambda: self._dashboard.tick(self._wall()))
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
            async for event in self._controller.events():
                self.take(event)
        except Exception as error:
            self._complain("session", f"the session ended: {error}", "detach (q) and start eagle3-console again")

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
        self._dashboard.show(self.state, self._wall())
        keys = tuple(self.check_action(action, ()) for action in (*ACTS, "reconnect"))
        if keys != self._keys:
            # Only then: the footer is built anew each time.
            self._keys = keys
            self.refresh_bindings()

    def _complain(self, name: str, text: str, cure: str = "") -> None:
        alert = Alert(self._wall(), "error", f"{name}-{next(self._faults)}", text, cure)
        self.take(AlertRaised(alert))
        self.notify(text, title=name, severity="error", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which keys work now: `None` dims a key, `False` hides it."""
        live = self.state.connection.live
        if action == "reconnect":
            return not live
        if action not in ACTS:
            return True
        if not live:
            return False
        if self._readonly:
            return None
        return True if self._possible(action) else None

    def _possible(self, action: str) -> bool:
        snapshot = self.state.snapshot
        if action == "deploy":
            return True
        if snapshot is None:
            return False
        phase = snapshot.server.phase
        if action == "server_start":
            return phase in _DOWN
        if action == "server_restart":
            return snapshot.server.job is not None and phase not in _DOWN
        if action == "probe":
            return phase in SERVING
        if action == "extract_start":
            return phase in SERVING and not self._extracting
        return phase not in _DOWN or self._extracting

    @property
    def _extracting(self) -> bool:
        snapshot = self.state.snapshot
        return snapshot is not None and snapshot.extract is not None and snapshot.extract.state in EXTRACTING

    def _act(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        if name in self._busy:
            self.notify(f"{name} is already under way", markup=False)
            return
        self._busy.add(name)
        self.run_worker(self._guarded(name, call), name=name, group="acts", exit_on_error=False)

    async def _guarded(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:
            self._complain(name, f"{name}: {error}")
        finally:
            self._busy.discard(name)

    def _choice(self, action: LossyAction, key: str, label: str) -> Choice:
        return Choice(action, key, label, tuple(self._controller.losses(action)))

    def action_deploy(self) -> None:
        """Put the release on the box."""
        self._act("deploy", self._controller.deploy)

    def action_server_start(self) -> None:
        """Show the line, then start the server."""
        self._ask("Start the server?", [self._choice("server-start", "s", "Start")], self._controller.server_line)

    def action_server_restart(self) -> None:
        """Ask, then restart the server with the radix cache off."""
        choice = self._choice("server-restart", "R", "Restart")
        self._ask("Restart the server with the radix cache off?", [choice], self._controller.server_line)

    def action_stop(self) -> None:
        """Ask what to stop, and say what each would lose."""
        snapshot = self.state.snapshot
        choices = []
        server_up = snapshot is not None and snapshot.server.phase not in _DOWN
        if self._extracting:
            choices.append(self._choice("extract-stop", "x", "Stop extraction"))
        if server_up:
            choices.append(self._choice("server-stop", "s" if choices else "x", "Stop server"))
        self._ask("Stop what?" if len(choices) > 1 else f"{choices[0].label}?", choices)

    def _ask(self, title: str, choices: list[Choice], line: Callable[[], Awaitable[str]] | None = None) -> None:
        self.push_screen(AskDialog(title, choices, self._glyphs, line), self._answered)

    def _answered(self, answer: str | None) -> None:
        if answer == "server-start":
            self._act("server start", self._controller.server_start)
        elif answer == "server-restart":
            self._act("server restart", lambda: self._controller.server_restart(radix_cache=False))
        elif answer == "extract-keyed":
            self._act("extraction start", lambda: self._controller.extract_start(extra_key=True))
        elif answer == "server-stop":
            self._act("server stop", self._controller.server_stop)
        elif answer == "extract-stop":
            self._act("extraction stop", self._controller.extract_stop)

    def action_extract_start(self) -> None:
        """Start or resume the extraction; where the radix cache is on, ask how."""
        snapshot = self.state.snapshot
        if snapshot is None or snapshot.server.spec is None or not snapshot.server.spec.radix_cache:
            self._act("extraction start", self._controller.extract_start)
            return
        choices = [self._choice("server-restart", "R", "Restart with it off")]
        if snapshot.server.extra_key:
            choices.insert(0, self._choice("extract-keyed", "e", "Extract without a restart"))
        self._ask("The radix cache of the server is on.", choices)

    def action_probe(self) -> None:
        """Probe the server."""
        self._act("probe", self._controller.probe)

    def action_reconnect(self) -> None:
        """Try to connect at once."""
        self._act("reconnect", self._controller.reconnect_now)

    def action_search(self) -> None:
        """Type a search."""
        self._dashboard.focus_panel(4)
        self.log_panel.open_search()

    def action_match(self, step: int) -> None:
        """To the next or previous match."""
        if self.log_panel.view.searching and not self.log_panel.view.next_match(step):
            self.notify("nothing in the log matches")

    def action_follow(self) -> None:
        """Follow the log's end, or stand still."""
        view = self.log_panel.view
        if view.following:
            view.pause()
        else:
            view.follow()

    def action_log_top(self) -> None:
        """Oldest line."""
        self.log_panel.view.head()

    def action_log_end(self) -> None:
        """Newest line, and follow."""
        self.log_panel.view.follow()

    def action_log_level(self) -> None:
        """Only what is grave."""
        self.log_panel.next_level()

    def action_log_rank(self) -> None:
        """Only one rank."""
        if not self.log_panel.next_rank():
            self.notify("no line of this log says its rank: the server has one")

    def action_log_cause(self) -> None:
        """To the root cause."""
        snapshot = self.state.snapshot
        log = snapshot.server.log if snapshot is not None else None
        cause = (log.root_cause or log.refused) if log is not None else None
        if cause is None:
            self.notify("the log names no cause of a failure")
        elif self.log_panel.go_to_cause(cause):
            self._dashboard.focus_panel(4)
        else:
            text = (
                f"not among the lines here: {cause}; 'server log {self._target} --root-cause' looks in all of the file"
            )
            self.notify(text, markup=False)

    def action_log_save(self) -> None:
        """Into a file of its own in the directory that the console was started in."""
        text = self.log_panel.text()
        if not text:
            self.notify("there is nothing to save")
            return
        stem = self.log_panel.job or "server"
        try:
            path = save_new(Path.cwd(), stem, text)
        except OSError as error:
            self.notify(f"the log cannot be saved in {Path.cwd()}: {error.strerror}", severity="error", markup=False)
            return
        lines = units.number(text.count("\n"))
        self.notify(
            f"saved {lines} lines in {path}; all of the file: server log {self._target} --save FILE", markup=False
        )

    def action_copy(self) -> None:
        """Copy through the terminal (OSC 52)."""
        text = self.screen.get_selected_text() or self.log_panel.view.text_to_copy()
        if not text:
            self.notify("there is nothing to copy")
            return
        self.copy_to_clipboard(text)
        lines = text.count("\n") + 1
        self.notify(f"copied {units.number(lines)} line{'s' if lines > 1 else ''}")

    def action_panel(self, number: int) -> None:
        """Focus a panel."""
        self._dashboard.focus_panel(number)

    def action_zoom(self) -> None:
        """One panel alone, or all."""
        self._dashboard.toggle_zoom()

    async def action_back(self) -> None:
        """Leave the search line, then the search, then the filter of the log, then the zoom."""
        if self.log_panel.search_open or self.log_panel.view.searching:
            self.log_panel.close_search(forget=True)
        elif self.log_panel.no_filter():
            pass
        elif self._dashboard.has_class("-zoomed"):
            self._dashboard.zoom(None)

    def action_help(self) -> None:
        """Every key."""
        self.push_screen(HelpScreen(KEYS, self._target))

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
        if snapshot is not None and snapshot.extract is not None and self._extracting:
            extract = snapshot.extract
            running.append(f"The extraction ({units.number(extract.stored)} of {units.number(extract.total)} samples)")
        if snapshot is not None and snapshot.server.phase in (*STARTING, *SERVING):
            running.append("the server" if running else "The server")
        if not running:
            return f"Detached from {self._target}. Come back with: eagle3-console {self._target}"
        verb = "go on" if len(running) > 1 else "goes on"
        return f"{' and '.join(running)} {verb} on {self._target}. Come back with: eagle3-console {self._target}"
