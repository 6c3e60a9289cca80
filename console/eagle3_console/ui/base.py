"""What every part of the application stands on: the state, the controller, and how an act is run and a fault is told."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Awaitable, Callable

from textual.app import App

from eagle3_console.errors import ServerStopped, Stopped
from eagle3_console.events import Alert, AlertRaised, Event
from eagle3_console.keys import Key, rebound
from eagle3_console.settings import Settings
from eagle3_console.state import ConsoleState, initial
from eagle3_console.ui.controller import Controller
from eagle3_console.ui.glyphs import ASCII, UNICODE, ascii_only
from eagle3_console.ui.possible import extracting
from eagle3_console.ui.setup.seam import offered
from eagle3_console.ui.widgets.dashboard import Dashboard
from eagle3_console.ui.widgets.log_panel import LogPanel


class ConsoleBase(App[None]):
    """The state and the ways to change it; keys are in the classes made from this one.

    Args:
        controller: the work; its events are consumed until they end.
        target: what a person typed to get here, for the header.
        settings: the person's own keys, theme and so on.
        readonly: nothing on the box is changed from here; the settings may say so too.
        ascii_signs: signs for a terminal without UTF-8; `None`: what the locale says.
        wall: Unix clock of this machine.
    """

    def __init__(
        self,
        controller: Controller,
        target: str,
        settings: Settings,
        readonly: bool = False,
        ascii_signs: bool | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.controller = controller
        self.target = target
        self.again = shlex.quote(target)
        """How a shell names the box in a command."""
        self.settings = settings
        self.readonly = readonly or settings.readonly
        self.keys = self.table()
        self.wall = wall
        self.glyphs = ASCII if (ascii_only() if ascii_signs is None else ascii_signs) else UNICODE
        self.state: ConsoleState = initial(wall(), target, {key.id: key.shown for key in self.keys})
        self.dashboard = Dashboard(self.state, wall(), self.glyphs, target, self.readonly, self.keys)
        self._busy: set[str] = set()
        self._faults = itertools.count(1)

    @property
    def log_panel(self) -> LogPanel:
        """Panel 4."""
        return self.dashboard.log_panel

    @property
    def extracting(self) -> bool:
        """Whether an extraction runs or waits on the box."""
        return extracting(self.state.snapshot)

    def table(self) -> tuple[Key, ...]:
        """Every key, as this person has it."""
        return offered(rebound(self.settings.keys), self.controller)

    def key_of(self, name: str) -> Key:
        """A key by its id, as this person has it."""
        return next(key for key in self.keys if key.id == name)

    def under_way(self, name: str) -> bool:
        """Whether an act of this name runs."""
        return name in self._busy

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        raise NotImplementedError

    def complain(self, name: str, text: str, cure: str = "") -> None:
        """An alert of this console's own, and a note in the corner."""
        alert = Alert(self.wall(), "error", f"{name}-{next(self._faults)}", text, cure)
        self.take(AlertRaised(alert))
        self.notify(text, title=name, severity="error", markup=False)

    def act(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        """Run something that takes a while; what goes wrong is told, and the screen stays. Not twice at once."""
        if name in self._busy:
            self.notify(f"{name} is already under way", markup=False)
            return
        self._busy.add(name)
        self.run_worker(self._guarded(name, call), name=name, group="acts", exit_on_error=False)

    async def _guarded(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except (Stopped, ServerStopped) as stop:  # somebody asked for it: nothing to complain about
            self.take(AlertRaised(Alert(self.wall(), "info", f"{name}-{next(self._faults)}", f"{name}: {stop}")))
        except Exception as error:
            self.complain(name, f"{name}: {error}")
        finally:
            self._busy.discard(name)
