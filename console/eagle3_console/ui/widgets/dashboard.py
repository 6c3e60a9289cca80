"""The one screen: its parts, and which classes decide how they lie."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from eagle3_console.events import Alert
from eagle3_console.keys import Key
from eagle3_console.state import ConsoleState
from eagle3_console.ui.draw import draw_checklist, draw_header, unseen_errors
from eagle3_console.ui.draw_box import draw_box
from eagle3_console.ui.draw_extraction import draw_extraction
from eagle3_console.ui.draw_server import draw_server
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.widgets.events_panel import EventsPanel
from eagle3_console.ui.widgets.key_bar import KeyBar
from eagle3_console.ui.widgets.log_panel import LogPanel
from eagle3_console.ui.widgets.panel import Bar, Lines, Panel, PlotPanel
from eagle3_console.units import clock
from eagle3_remote.protocol import STARTING, Phase

_TITLES = {1: "Server", 2: "Extraction", 3: "Box", 5: "Events"}


class Dashboard(Screen[None]):
    """Header, checklist, five panels, footer. Draws whatever state it is shown; keeps none of it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (10, "-short"), (14, "-tiny"), (20, "-low"), (32, "-middle"), (40, "-high")]  # noqa: RUF012
    AUTO_FOCUS = "LogView"

    def __init__(
        self, state: ConsoleState, now: float, glyphs: Glyphs, target: str, readonly: bool, keys: Sequence[Key]
    ) -> None:
        super().__init__()
        self._state, self._now = state, now
        self._seen: Alert | None = None
        """The newest alert when somebody last looked at all of them."""
        alerts_key = next(key.shown for key in keys if key.id == "alerts")
        self._header = Bar(
            lambda view: [draw_header(view, target, readonly, self._unseen(view.state), alerts_key)], glyphs, state, now
        )
        self._header.id = "header"
        self._checklist = Bar(lambda view: [draw_checklist(view)], glyphs, state, now)
        self._key_bar = KeyBar(keys, readonly, glyphs, state, now)
        self._panels: dict[int, Panel] = {
            1: Panel(1, _TITLES[1], draw_server, glyphs, state, now),
            2: PlotPanel(2, _TITLES[2], draw_extraction, glyphs, state, now),
            3: Panel(3, _TITLES[3], draw_box, glyphs, state, now),
            5: EventsPanel(5, _TITLES[5], glyphs, state, now),
        }
        self.log_panel = LogPanel({key.id: key.shown for key in keys})

    def compose(self) -> ComposeResult:
        """Top to bottom; the style sheet decides what lies beside what."""
        yield self._header
        yield self._checklist
        with Container(id="top"):
            with Container(id="left"):
                yield self._panels[1]
                yield self._panels[3]
            yield self._panels[2]
        yield self.log_panel
        yield self._panels[5]
        yield self._key_bar

    def show(self, state: ConsoleState, now: float) -> None:
        """Draw a state; while a screen that nothing shines through lies over this one, when it is left."""
        self._state, self._now = state, now
        if state.snapshot is not None:
            self.log_panel.know(state.snapshot.server.log)
        if self._covered():
            return
        lines: tuple[Lines, ...] = (self._header, self._checklist, *self._panels.values(), self._key_bar)
        if self._panels[5].has_class("-zoom"):
            self._seen = state.alerts[-1] if state.alerts else None
        stale = not state.connection.live
        as_of = f"  as of {clock(state.as_of)}" if stale and state.as_of is not None else ""
        for number, panel in self._panels.items():
            title = f"{number} {_TITLES[number]}{as_of}"
            if panel.border_title != title:
                panel.border_title = title
        self.set_class(stale, "-stale")
        self.set_class(_server_first(state), "-server-first")
        for line in lines:
            line.show(state, now)

    def _covered(self) -> bool:
        over = self.app.screen_stack[-1] if self.is_mounted and self.app.screen_stack else self
        return over is not self and over.styles.background.a == 1.0

    def on_screen_resume(self) -> None:
        """What lay over it is left."""
        self.show(self._state, self._now)

    def on_resize(self) -> None:
        """The footer says how many panels have no room."""
        self._key_bar.refresh()

    def tick(self, now: float) -> None:
        """The clock goes on; nothing else changes by itself."""
        self._header.tick(now)

    def focus_panel(self, number: int) -> None:
        """Put the focus on a panel; a zoomed other one makes room for it."""
        panel = self._panel(number)
        if self.has_class("-zoomed") and not panel.has_class("-zoom"):
            self.zoom(None)
        if not panel.display:
            self.zoom(number)  # there is no room for it beside the others
        self.set_focus(self.log_panel.view if number == 4 else panel)

    def _unseen(self, state: ConsoleState) -> int:
        return unseen_errors(state.alerts, self._seen)

    def toggle_alerts(self) -> None:
        """Panel 5 alone, or all panels again."""
        if self._panels[5].has_class("-zoom"):
            self.zoom(None)
            return
        self.focus_panel(5)
        self.zoom(5)

    def toggle_zoom(self) -> None:
        """Show the focused panel alone, or all again."""
        if self.has_class("-zoomed"):
            self.zoom(None)
            return
        focused = next((number for number in range(1, 6) if self._panel(number).has_focus_within), 2)
        self.zoom(focused)

    def zoom(self, number: int | None) -> None:
        """Show one panel alone; `None`: all."""
        for widget in self.query(".-zoom"):
            widget.remove_class("-zoom")
        self._panels[5].border_subtitle = ""
        self.set_class(number is not None, "-zoomed")
        if number is not None:
            for node in self._panel(number).ancestors_with_self:
                if isinstance(node, Widget) and node is not self:
                    node.add_class("-zoom")
        if number == 5 and self._state.alerts:
            self._seen = self._state.alerts[-1]
        self._header.refresh()
        self._key_bar.refresh()

    def _panel(self, number: int) -> Widget:
        return self.log_panel if number == 4 else self._panels[number]


def _server_first(state: ConsoleState) -> bool:
    """Whether the server is what a person looks at: it starts or failed, or there is no extraction to look at."""
    if state.snapshot is None:
        return False
    phase = state.snapshot.server.phase
    return phase in (*STARTING, Phase.FAILED) or (state.snapshot.extract is None and phase is Phase.NOT_RUNNING)
