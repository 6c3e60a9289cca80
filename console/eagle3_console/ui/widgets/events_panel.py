"""Panel 5: the last alerts and notes; in full, all of them, which scroll."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content

from eagle3_console.state import ConsoleState
from eagle3_console.ui.draw import View, draw_events, draw_history
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.widgets.panel import Panel


class EventsPanel(Panel):
    """Newest first. Scrolls only while it is zoomed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown,space", "move(10)", show=False),
        Binding("pageup,b", "move(-10)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]

    def __init__(self, number: int, title: str, glyphs: Glyphs, state: ConsoleState, now: float) -> None:
        super().__init__(number, title, draw_events, glyphs, state, now)
        self._skip = 0

    def lines(self, view: View) -> list[Content]:
        """What is drawn in this room."""
        if not self.has_class("-zoom"):
            self._skip = 0
            return super().lines(view)
        lines = draw_history(view)
        self._skip = max(0, min(self._skip, len(lines) - view.height))
        last = min(len(lines), self._skip + view.height)
        self.border_subtitle = f"lines {self._skip + 1} to {last} of {len(lines)}" if len(lines) > view.height else ""
        return lines[self._skip :]

    def action_move(self, lines: int) -> None:
        """Scroll."""
        self._skip = max(0, self._skip + lines)
        self.refresh()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.action_move(-3)
