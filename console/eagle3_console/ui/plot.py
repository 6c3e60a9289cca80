"""What changes over time (samples/s, GB/s, how full the dump directory is), drawn by plotext where it can be loaded and by a row of columns where it cannot.

plotext 6 has one global figure and a compiled kernel that not every platform has (no musl wheels). It is imported at the
first plot, used from the event loop's thread alone, and no fault of it reaches the console.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from textual.content import Content

from eagle3_console.alerts import Sample
from eagle3_console.ui.draw import MUTED, words
from eagle3_console.ui.glyphs import Glyphs

MIN_HEIGHT = 5
"""Rows below which axes would leave no room for a curve."""
REDRAW_EVERY = 0.5
"""Seconds between two drawings; one takes about 20 ms."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Series:
    """One thing that is plotted."""

    title: str
    value: Callable[[Sample], float]


SERIES = (
    Series("samples/s", lambda sample: sample.samples_per_s),
    Series("GB/s written", lambda sample: sample.bytes_per_s / 1e9),
    Series("dump directory, % full", lambda sample: 100 * sample.dump_used_fraction),
)
"""The first is drawn where there is room for one only."""


def until_end(history: Sequence[Sample]) -> Sequence[Sample]:
    """The points of a run that is over, up to the last at which it ran: what came after it is no part of it."""
    return history[: max((number for number, sample in enumerate(history, 1) if sample.running), default=0)]


def plot_lines(
    history: Sequence[Sample],
    width: int,
    height: int,
    glyphs: Glyphs,
    series: Series = SERIES[0],
    newest: str = "now",
) -> list[Content]:
    """A plot of at most `height` lines of `width` cells; empty where there is nothing to draw or no room.

    `newest` is what its right edge is called.
    """
    if len(history) < 2 or height < 2 or width < 20:
        return []
    points = [((sample.t - history[-1].t) / 60.0, series.value(sample)) for sample in _thinned(history, 2 * width)]
    title = words((series.title, MUTED))
    if height > MIN_HEIGHT and glyphs.bar_parts:
        drawn = _plotext(points, width, height - 1, newest)
        if drawn is not None:
            return [title, *(words((line, "$text-accent")) for line in drawn)]
    return [title, *(words((line, "$text-accent")) for line in columns(points, width, height - 1, glyphs))]


def _thinned(history: Sequence[Sample], limit: int) -> Sequence[Sample]:
    step = -(-len(history) // limit)
    return history[::-step][::-1]


def _top(values: Sequence[float]) -> float:
    """The smallest round number not below any value, for an axis that stays while the values wander."""
    peak = max(values)
    if peak <= 0:
        return 1.0
    unit: float = 10.0 ** (len(f"{int(peak)}") - 1) if peak >= 1 else 0.1
    return next(unit * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if unit * factor >= peak)


@functools.lru_cache(1)
def load_plotext() -> Any:
    """The library, loaded at the first plot; `None` where it cannot be."""
    try:
        import plotext
    except ImportError as error:
        _log.warning("plots are drawn as columns, since plotext cannot be loaded: %s", error)
        return None
    return plotext


def _plotext(points: Sequence[tuple[float, float]], width: int, height: int, newest: str) -> list[str] | None:
    """Lines of a plot without colour, or `None` where plotext does not work here."""
    plotext = load_plotext()
    if plotext is None:
        return None
    try:
        top, start = _top([y for _, y in points]), points[0][0]
        figure = plotext.figure
        plotext.terminal.limit(False, False)
        figure.clear.all()
        figure.plot_size(width, height)
        figure.draw(figure.signal([x for x, _ in points], [y for _, y in points], marker="braille").lines())
        figure.ruler(0).lim(start, 0)
        ticks = [start, start / 2, 0]
        figure.ruler(0).ticks(ticks, [_ago(start), _ago(start / 2), newest])
        figure.ruler(1).lim(0, top)
        figure.ruler(1).ticks([0, top / 2, top], ["0", _tick(top / 2), _tick(top)])
        lines = [line.rstrip() for line in figure.build().string(colorless=True).splitlines()]
    except Exception as error:
        # Whatever goes wrong in a compiled plotting library is no reason to lose the screen.
        _log.debug("plotext cannot draw this: %s", error)
        return None
    return lines[:height] if lines else None


def _ago(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes <= -2 else f"{minutes * 60:.0f} s"


def _tick(value: float) -> str:
    return f"{value:g}"


def columns(points: Sequence[tuple[float, float]], width: int, height: int, glyphs: Glyphs) -> list[str]:
    """The newest points as columns of `height` rows, the scale in front."""
    top = _top([y for _, y in points])
    label = f"{_tick(top):>5} "
    values = [y for _, y in points][-(width - len(label)) :]
    levels = len(glyphs.spark)
    rows = []
    for row in reversed(range(height)):
        cells = []
        for value in values:
            filled = round(value / top * height * levels) - row * levels
            cells.append(glyphs.spark[min(filled, levels) - 1] if filled > 0 else " ")
        rows.append((label if row == height - 1 else " " * len(label)) + "".join(cells))
    return rows


class Plotter:
    """Keeps the last plot: a new one is made at most every `REDRAW_EVERY` seconds, and only of something new."""

    def __init__(self, glyphs: Glyphs, series: Series = SERIES[0]) -> None:
        self._glyphs = glyphs
        self._series = series
        self._room = (0, 0, False)
        self._newest: float | None = None
        self._drawn_at = 0.0
        self._lines: list[Content] = []

    def lines(self, history: Sequence[Sample], width: int, height: int, over: bool = False) -> list[Content]:
        """The plot for this room; `over`: nothing is added any more."""
        newest = history[-1].t if history else None
        due = time.monotonic() - self._drawn_at >= REDRAW_EVERY and newest != self._newest
        room = (width, height, over)
        if due or room != self._room:
            edge = "end" if over else "now"
            self._lines = plot_lines(history, width, height, self._glyphs, self._series, edge)
            self._room, self._newest, self._drawn_at = room, newest, time.monotonic()
        return self._lines
