"""Several boxes in one screen: the list first, and each box's own screen behind its line."""

from __future__ import annotations

import asyncio
import dataclasses
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence

from textual.screen import Screen

from eagle3_console.events import Alert, AlertRaised, Event, LogArrived, LogRestarted
from eagle3_console.recording.recorder import Recorder
from eagle3_console.settings import Settings
from eagle3_console.state import ConsoleState, initial, reduce
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.controller import Controller
from eagle3_console.ui.farewell import farewell
from eagle3_console.ui.widgets.dashboard import Dashboard
from eagle3_console.ui.widgets.fleet_screen import BoxList, FleetScreen

_DEFAULT = Settings()
_BEAT = 0.25
_ON_THE_LIST = ("help", "help_quit", "detach", "quit", "screenshot_here", "palette", "box", "copy")
"""Actions that mean something while no box is open; of the acts on a box only reconnecting."""


@dataclasses.dataclass
class OpenBox:
    """One box and what is known of it."""

    host: str
    controller: Controller
    state: ConsoleState
    dashboard: Dashboard
    recorder: Recorder | None
    busy: set[str] = dataclasses.field(default_factory=set)


class FleetApp(ConsoleApp):
    """The application of one box, pointed at the box that is open; all of them are followed all the time.

    Args:
        boxes: host, controller and recorder of each, two at least.
        settings, readonly, ascii_signs, wall: as for `ConsoleApp`.
        leading: the options without which the hosts' names would lead elsewhere.
    """

    opens_setup = False  # the list comes first

    def __init__(
        self,
        boxes: Sequence[tuple[str, Controller, Recorder | None]],
        settings: Settings = _DEFAULT,
        readonly: bool = False,
        ascii_signs: bool | None = None,
        wall: Callable[[], float] = time.time,
        leading: Sequence[str] = (),
    ) -> None:
        self._leading = leading
        super().__init__(boxes[0][1], boxes[0][0], settings, readonly, ascii_signs=ascii_signs, wall=wall)
        self.boxes = [self._box(*box) for box in boxes]
        shown = {key.id: key.shown for key in self.keys}
        keys = f"enter opens  esc comes back  {shown['reconnect']} reconnect  {shown['help']} help  {shown['detach']} detach all"
        self.list = FleetScreen(self.glyphs, self.readonly, keys)
        self._opened = False
        self._news, self._drawn_at = True, 0.0
        self._point_at(self.boxes[0])

    def _box(self, host: str, controller: Controller, recorder: Recorder | None) -> OpenBox:
        state = initial(self.wall(), host, {key.id: key.shown for key in self.keys})
        dashboard = Dashboard(state, self.wall(), self.glyphs, host, self.readonly, self.keys)
        return OpenBox(host, controller, state, dashboard, recorder)

    def _point_at(self, box: OpenBox) -> None:
        """Keys and dialogs are about this box from now on."""
        self._current = box
        self.controller, self.target, self.state = box.controller, box.host, box.state
        self.again = shlex.join([box.host, *self._leading])
        self.dashboard, self._busy, self._recorder = box.dashboard, box.busy, box.recorder

    def get_default_screen(self) -> Screen[None]:
        """The list."""
        return self.list

    def on_ready(self) -> None:
        """The list is there."""
        for box in self.boxes:
            self.install_screen(box.dashboard, f"box-{self.boxes.index(box)}")
        self._show_list()
        self.set_interval(_BEAT, self._beat)

    async def _listen(self) -> None:
        await asyncio.gather(*(self._listen_to(box) for box in self.boxes))

    async def _listen_to(self, box: OpenBox) -> None:
        try:
            async for event in box.controller.events():
                self.take_from(box, event)
        except Exception as error:
            alert = Alert(
                self.wall(),
                "error",
                "session",
                f"the session ended: {error}",
                f"detach ({self.key_of('detach').shown}) and start again",
            )
            self.take_from(box, AlertRaised(alert))

    def take(self, event: Event) -> None:
        """An event of the box that the keys are about."""
        self.take_from(self._current, event)

    def take_from(self, box: OpenBox, event: Event) -> None:
        """Let one event of one box have its effect."""
        if isinstance(event, LogArrived):
            box.dashboard.log_panel.feed(event.job, event.data, event.offset)
        elif isinstance(event, LogRestarted):
            box.dashboard.log_panel.restart(event.job)
        else:
            before, box.state = box.state, reduce(box.state, event)
            self.notifier.follow(box.host, before, box.state)
            if box is self._current:
                self.state = box.state
                if self._opened:
                    self._draw()
            self._news = True
        fault = box.recorder.take(event) if box.recorder is not None else None
        if fault is not None:
            self.take_from(box, fault)

    def act(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        """As for one box; what goes wrong is told to the box it was done on, whichever is open by then."""
        box = self._current
        if name in box.busy:
            self.notify(f"{name} is already under way on {box.host}", markup=False)
            return
        box.busy.add(name)
        self.run_worker(self._guarded_on(box, name, call), name=name, group="acts", exit_on_error=False)

    async def _guarded_on(self, box: OpenBox, name: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:
            text = f"{name}: {error}"
            alert = Alert(self.wall(), "error", f"{name}-{next(self._faults)}", text)
            self.take_from(box, AlertRaised(alert))
            self.notify(text, title=f"{box.host}: {name}", severity="error", markup=False)
        finally:
            box.busy.discard(name)

    def _beat(self) -> None:
        """Many boxes tell something at once: the list is drawn when there is news, and once a second for its clock."""
        if not self._opened and (self._news or self.wall() - self._drawn_at >= 1.0):
            self._show_list()

    def _show_list(self) -> None:
        self._news, self._drawn_at = False, self.wall()
        self.list.show([(box.host, box.state) for box in self.boxes], self.wall())

    def on_box_list_opened(self, event: BoxList.Opened) -> None:
        """Enter, or a click on the marked line."""
        event.stop()
        self._point_at(self.boxes[event.index])
        self._opened = True
        self.push_screen(self.dashboard)
        self.call_after_refresh(self._draw)

    async def action_back(self) -> None:
        """As in one box; when nothing is left to leave, back to the list."""
        panel = self.log_panel
        if panel.search_open or panel.view.searching:
            await super().action_back()
        elif panel.no_filter():
            pass
        elif self.dashboard.has_class("-zoomed"):
            await super().action_back()
        else:
            self._opened = False
            self.pop_screen()
            self._show_list()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """On the list nothing is done to a box that nobody sees."""
        if not self._opened and action in {key.action.partition("(")[0] for key in self.keys}:
            return action in _ON_THE_LIST
        return super().check_action(action, parameters)

    def why_not(self, act: str) -> str:
        """On the list a box can be reconnected, and nothing else."""
        if not self._opened:
            self._point_at(self.boxes[self.list.list.selected])
            if act != "reconnect":
                return "Open a box first: enter."
        return super().why_not(act)

    def farewell(self) -> str:
        """What goes on, box by box, and how to come back to all."""
        back = [*(box.host for box in self.boxes), *self._leading]
        on = [farewell(box.state, box.host, "", False).partition(" Come back")[0] for box in self.boxes]
        return "\n".join([*on, f"Come back with: eagle3-console {shlex.join(back)}"])
