"""A numbered box on the screen that draws lines from the state."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

from eagle3_console.alerts import EXTRACTING
from eagle3_console.state import ConsoleState
from eagle3_console.ui.draw import View, clip
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.plot import MIN_HEIGHT, SERIES, Plotter, until_end

_ROWS_EACH = 10
"""Rows from which on a plot beside another one shows something."""


class Lines(Widget):
    """Lines made by a pure function of state, time and room. Text in it can be selected and copied."""

    def __init__(self, draw: Callable[[View], list[Content]], glyphs: Glyphs, state: ConsoleState, now: float) -> None:
        super().__init__()
        self._draw = draw
        self._glyphs = glyphs
        self._state = state
        self._now = now
        self._drawn: list[Content] = []

    def show(self, state: ConsoleState, now: float) -> None:
        """Draw this state from now on. Only lines that changed are painted: most say twice a second what they said before."""
        self._state, self._now = state, now
        before, after = self._drawn, self._fitted()
        if len(before) != len(after) or not self.display:
            self.refresh()
            return
        width = self.size.width
        changed = [
            Region(0, y, width, 1)
            for y, (old, new) in enumerate(zip(before, after, strict=True))
            if not old.is_same(new)
        ]
        if changed:
            self.refresh(*changed)

    def render(self) -> Content:
        """Exactly as many lines as there is room for, none wider than the room."""
        self._drawn = self._fitted()
        return Content("\n").join(self._drawn)

    def _fitted(self) -> list[Content]:
        width, height = self.size
        if not width or not height:
            return []
        lines = self.lines(View(self._state, self._now, self._glyphs, width, height))
        return [clip(line, width, self._glyphs) for line in lines[:height]]

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
    """A panel whose free room below the lines shows rates and fill as plots."""

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
        self._plotters = [Plotter(glyphs, series) for series in SERIES]

    def lines(self, view: View) -> list[Content]:
        """The lines, then below an empty one as many plots as there is room for."""
        lines = super().lines(view)
        room = view.height - len(lines)
        snapshot = view.state.snapshot
        if snapshot is None or snapshot.extract is None:
            return lines
        over = snapshot.extract.state not in EXTRACTING
        history = until_end(view.state.history) if over else view.state.history
        count = max(1, min(len(self._plotters), room // _ROWS_EACH))
        for plotter in self._plotters[:count]:
            height = room // count - 1
            if height >= MIN_HEIGHT:
                lines = [*lines, Content(""), *plotter.lines(history, view.width, height, over)]
        return lines
