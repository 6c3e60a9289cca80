"""The list of boxes: a line a box, their sum, and the alerts of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from eagle3_console import fleet, units
from eagle3_console.state import ConsoleState
from eagle3_console.ui.draw import MUTED, clip, spread, words
from eagle3_console.ui.draw_fleet import draw_alert, draw_box_line, draw_head, draw_total, table
from eagle3_console.ui.glyphs import Glyphs

States = Sequence[tuple[str, ConsoleState]]


class BoxList(Widget, can_focus=True):
    """Heads, boxes, sum. The line under the mark can be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Opened(Message):
        """A box was chosen."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="boxes")
        self._glyphs = glyphs
        self._states: States = ()
        self._now = 0.0
        self.selected = 0

    def show(self, states: States, now: float) -> None:
        """Draw this from now on."""
        self._states, self._now = states, now
        self.styles.height = len(states) + 2
        self.refresh()

    def render(self) -> Content:
        """With more boxes than room, those around the mark."""
        width, height = self.size
        lines = [fleet.line(host, state) for host, state in self._states]
        room = table(width, [one.host for one in lines])
        drawn = [
            draw_box_line(one, room, width, self._glyphs, self._now, number == self.selected)
            for number, one in enumerate(lines)
        ]
        first = self._first(height)
        shown = drawn[first : first + max(1, height - 2)]
        sums = draw_total(fleet.total(lines), room, width, self._glyphs)
        return Content("\n").join([draw_head(room, width, self._glyphs), *shown, sums])

    def _first(self, height: int) -> int:
        return max(0, min(self.selected - (height - 2) // 2, len(self._states) - (height - 2)))

    def action_move(self, step: int) -> None:
        """Mark another box."""
        self.selected = max(0, min(self.selected + step, len(self._states) - 1))
        self.refresh()

    def action_open(self) -> None:
        """Open the marked box."""
        self.post_message(self.Opened(self.selected))

    def on_click(self, event: events.Click) -> None:
        """Mark the box under the mouse; a second click opens it."""
        number = self._first(self.size.height) + event.y - 1
        if event.y < 1 or event.y > self.size.height - 2 or number >= len(self._states):
            return
        if number == self.selected:
            self.action_open()
        self.selected = number
        self.refresh()


class AllAlerts(Widget):
    """The alerts of all boxes, newest first."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="all-alerts", classes="panel")
        self._glyphs = glyphs
        self._states: States = ()
        self._now = 0.0
        self.border_title = "Alerts of all boxes"

    def show(self, states: States, now: float) -> None:
        """Draw this from now on."""
        self._states, self._now = states, now
        self.refresh()

    def render(self) -> Content:
        """In full where all fit, else a line each, as many as there is room for."""
        width, height = self.size
        found = fleet.alerts(self._states)[: max(0, height)]
        lines = [draw_alert(host, alert, self._now, self._glyphs) for host, alert in found]
        whole = [part for line in lines for part in line.wrap(max(20, width))]
        shown = whole if len(whole) <= height else [clip(line, width, self._glyphs) for line in lines]
        return Content("\n").join(shown or [words(("no alerts", MUTED))])


class FleetScreen(Screen[None]):
    """What is seen first."""

    AUTO_FOCUS = "BoxList"
    DEFAULT_CSS = """
    FleetScreen { overflow: hidden; }
    FleetScreen #fleet-header { height: 1; background: $panel; }
    FleetScreen #boxes { height: auto; max-height: 70%; margin: 1 0; }
    FleetScreen #all-alerts { height: 1fr; min-height: 3; }
    FleetScreen #fleet-keys { height: 1; background: $panel; }
    """

    def __init__(self, glyphs: Glyphs, readonly: bool, keys: str) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._readonly = readonly
        self._keys = keys
        self.list = BoxList(glyphs)
        self._alerts = AllAlerts(glyphs)

    def compose(self) -> ComposeResult:
        """Top to bottom."""
        yield Static(id="fleet-header")
        yield self.list
        yield self._alerts
        yield Static(words(f" {self._keys}"), id="fleet-keys")

    def show(self, states: States, now: float) -> None:
        """Draw these."""
        if not self.is_mounted:
            return
        name = words((" eagle3-console", "bold"), "  ", ("read-only", "reverse") if self._readonly else "")
        right = words(f"{units.clock(now)} ")
        self.query_one("#fleet-header", Static).update(spread(name, right, self.size.width, self._glyphs))
        self.list.show(states, now)
        self._alerts.show(states, now)
