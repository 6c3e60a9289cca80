"""A numbered box on the screen that draws lines from the state."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widget import Widget

from eagle3_console.state import ConsoleState
from eagle3_console.ui.draw import View, clip
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.plot import MIN_HEIGHT, Plotter


class Lines(Widget):
    """Lines made by a pure function of state, time and room. Text in it can be selected and copied."""

    def __init__(self, draw: Callable[[View], list[Content]], glyphs: Glyphs, state: ConsoleState, now: float) -> None:
        super().__init__()
        self._draw = draw
        self._glyphs = glyphs
        self._state = state
        self._now = now

    def show(self, state: ConsoleState, now: float) -> None:
        """Draw this state from now on."""
        self._state, self._now = state, now
        self.refresh()

    def render(self) -> Content:
        """Exactly as many lines as there is room for, none wider than the room."""
        width, height = self.size
        if not width or not height:
            return Content("")
        lines = self.lines(View(self._state, self._now, self._glyphs, width, height))
        return Content("\n").join(clip(line, width, self._glyphs) for line in lines[:height])

    def lines(self, view: View) -> list[Content]:
        """What is drawn in this room."""
        return self._draw(view)


class Bar(Lines):
    """One line across the screen: the header, the checklist."""

    def tick(self, now: float) -> None:
        """Draw the same state at a later time."""
        self.show(self._state, now)


class Panel(Lines, can_focus=True):
    """A numbered panel; the number focuses it."""

    def __init__(
        self,
        number: int,
        title: str,
        draw: Callable[[View], list[Content]],
        glyphs: Glyphs,
        state: ConsoleState,
        now: float,
    ) -> None:
        super().__init__(draw, glyphs, state, now)
        self.id = f"panel-{number}"
        self.add_class("panel")
        self.border_title = f"{number} {title}"


class PlotPanel(Panel):
    """A panel whose free room below the lines shows the rate as a plot."""

    def __init__(
        self,
        number: int,
        title: str,
        draw: Callable[[View], list[Content]],
        glyphs: Glyphs,
        state: ConsoleState,
        now: float,
    ) -> None:
        super().__init__(number, title, draw, glyphs, state, now)
        self._plotter = Plotter(glyphs)

    def lines(self, view: View) -> list[Content]:
        """The lines, an empty one, the plot."""
        lines = super().lines(view)
        room = view.height - len(lines) - 1
        snapshot = view.state.snapshot
        if room >= MIN_HEIGHT and snapshot is not None and snapshot.extract is not None:
            lines = [*lines, Content(""), *self._plotter.lines(view.state.history, view.width, room)]
        return lines
