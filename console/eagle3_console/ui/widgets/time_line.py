"""The bar below a recording: where one is, how long it is, how fast it goes."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from eagle3_console.ui.draw import MUTED, clip, first_that_fits, words
from eagle3_console.ui.glyphs import Glyphs

_MIN_BAR = 10


def place(seconds: float) -> str:
    """``01:23``, ``2:01:23``."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


class TimeLine(Widget):
    """One line; a click on its bar goes there."""

    DEFAULT_CSS = "TimeLine { height: 1; width: 1fr; background: $panel; }"

    class Chosen(Message):
        """A part of the whole, 0 to 1, was clicked."""

        def __init__(self, part: float) -> None:
            super().__init__()
            self.part = part

    def __init__(self, glyphs: Glyphs, note: str, total: float) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._note = note
        self._shown: tuple[float, float, str, float, str] = (0.0, total, "playing", 1.0, "")
        self._bar = (0, 1)
        """Where the bar begins and how wide it is."""

    def show(self, position: float, total: float, word: str, speed: float, fault: str) -> None:
        """Draw this from now on; `word`: ``playing``, ``paused`` or ``ended``."""
        shown = (int(position), total, word, speed, fault)
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def render(self) -> Content:
        """State, time, bar, and what is played, or why it ends early."""
        position, total, word, speed, fault = self._shown
        width = self.size.width
        sign = {"playing": self._glyphs.running, "paused": "=", "ended": self._glyphs.done}[word]
        left = words(
            (f" {sign} {word:7} {f'{speed:g}x':>5}", "bold"),
            f"  {place(position):>{len(place(total))}} / {place(total)}  ",
        )
        rest = width - left.cell_length - _MIN_BAR - 2
        long = words((f"{self._glyphs.warning} {fault}", "$text-warning")) if fault else words((self._note, MUTED))
        short = words(("ends early", "$text-warning")) if fault else words(("recording", MUTED))
        right = first_that_fits([long, short, Content("")], max(0, rest))
        room = max(1, width - left.cell_length - right.cell_length - 3)
        self._bar = (left.cell_length, room)
        filled, empty = self._glyphs.bar(position / total if total else 1.0, room)
        line = left + words((filled, "$text-accent"), (empty, MUTED), "  ") + right
        return clip(line, width, self._glyphs)

    def on_click(self, event: events.Click) -> None:
        """Go there."""
        start, room = self._bar
        if start <= event.x < start + room:
            self.post_message(self.Chosen((event.x - start) / max(1, room - 1)))
