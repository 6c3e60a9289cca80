"""The log on the screen. It follows the end, or it stands still; nothing but the reader moves it."""

from __future__ import annotations

import re
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from eagle3_console.loglines import ERROR, WARNING, names_cause
from eagle3_console.ui.log_buffer import LogBuffer

SYNC_EVERY = 0.1
"""Seconds between two paints of a busy log."""

CAUSE_MARK = "  <- root cause"

_LEVELS = (
    ("log--error", ERROR),
    ("log--warning", WARNING),
    ("log--ours", re.compile(r"^\[console\]|eagle3-patch ready|fired up and ready to roll")),
)


class LogView(ScrollView, can_focus=True):
    """Lines of a `LogBuffer`. The position is the absolute number of the top line, so pruning does not move it."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log--error",
        "log--warning",
        "log--ours",
        "log--match",
        "log--current",
        "log--cause",
        "log--cut",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", show=False),
        Binding("down,j", "step(1)", "Down", show=False),
        Binding("pageup,b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("left", "side(-1)", "Left", show=False),
        Binding("right", "side(1)", "Right", show=False),
    ]

    class Moved(Message):
        """What the title says of the log has changed."""

    def __init__(self, buffer: LogBuffer | None = None) -> None:
        super().__init__()
        self.buffer = buffer or LogBuffer()
        self.following = True
        self._base = self.buffer.first
        """Number of the line that lies at row 0 of the scrolled area."""
        self._paused_at = 0
        self._dirty = False
        self._syncing = False
        self._width = 0
        self._pattern: re.Pattern[str] | None = None
        self._current: int | None = None
        self._found: list[int] = []
        self._searched_to = 0
        self._cause = ""
        self.nothing = ""
        """What stands in place of lines where there are none."""

    @property
    def top(self) -> int:
        """Absolute number of the line at the top."""
        return self._base + self.scroll_offset.y

    @property
    def new_lines(self) -> int:
        """Lines that came since the reader stopped following."""
        return 0 if self.following else max(0, self.buffer.end - self._paused_at)

    def on_mount(self) -> None:
        """Paint what came, a few times a second."""
        self.set_interval(SYNC_EVERY, self.sync)

    def feed(self, data: bytes) -> None:
        """Take bytes; they are painted with the next beat."""
        self.buffer.feed(data, reading_from=None if self.following else self.top)
        self._dirty = True

    def restart(self) -> None:
        """Another log begins; the old lines go."""
        self.buffer.clear()
        self._current, self._width = None, 0
        self.follow()

    def show_buffer(self, buffer: LogBuffer) -> None:
        """Show other lines from now on, their end first. A search goes on in them."""
        self.buffer = buffer
        self._current, self._width = None, 0
        self._found, self._searched_to = [], 0
        self.follow()

    def name_cause(self, cause: str) -> None:
        """Mark the lines that say so; empty: none."""
        if cause != self._cause:
            self._cause = cause
            self.refresh()

    def mark(self, number: int) -> None:
        """Take the reader to a line."""
        self._go(number)

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.following = True
        self._dirty = True
        self.sync()

    def pause(self) -> None:
        """Stand still from now on."""
        if self.following:
            self.following = False
            self._paused_at = self.buffer.end
            self.post_message(self.Moved())

    def sync(self) -> None:
        """Bring the scrolled area in line with the buffer; the line at the top stays where it is, unless followed."""
        if not self._dirty or not self.size:
            return
        self._dirty = False
        top = self.top
        visible = range(max(top, self.buffer.first), min(top + self.size.height, self.buffer.end))
        self._width = max([self._width, *(cell_len(self.buffer.line(number)) for number in visible)])
        self._syncing = True
        try:
            self._base = self.buffer.first
            self.virtual_size = Size(self._width, self.buffer.end - self._base)
            self._put(self.max_scroll_y if self.following else max(0, top - self._base))
        finally:
            self._syncing = False
        self.refresh()
        self.post_message(self.Moved())

    def _put(self, y: float) -> None:
        self.scroll_target_y = y
        self.scroll_y = y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """A reader who scrolls up is not to be dragged back."""
        super().watch_scroll_y(old_value, new_value)
        if not self._syncing and self.following and new_value < self.max_scroll_y:
            self.pause()

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        """The title says from which column on the lines are shown, whatever moved them."""
        super().watch_scroll_x(old_value, new_value)
        if old_value != new_value:
            self.post_message(self.Moved())

    def on_resize(self) -> None:
        """The end stays in sight while it is followed."""
        self._dirty = True
        self.sync()

    def action_step(self, lines: int) -> None:
        """Move by lines."""
        self.show_line(self.top + lines)

    def action_page(self, pages: int) -> None:
        """Move by screens, with one line kept in sight."""
        self.show_line(self.top + pages * max(1, self.size.height - 1))

    def action_scroll_home(self) -> None:
        """The key ``home``: the oldest line from its first column on, at once."""
        self.head()
        self._show_cell(0)

    def action_scroll_end(self) -> None:
        """The key ``end``, which scrolls by itself in every scrolled area: here it follows."""
        self.follow()

    def action_side(self, halves: int) -> None:
        """Move sideways in long lines, by half a screen as in less."""
        self._show_cell(self.scroll_offset.x + halves * max(1, self.room // 2))

    def _show_cell(self, cell: int) -> None:
        """Let the lines begin at a cell, as far as the longest in sight goes."""
        width = max([self._width, *(cell_len(text) for text in self._visible())])
        if width > self._width:
            self._width = width
            self.virtual_size = Size(width, self.virtual_size.height)
        self.scroll_to(x=max(0, cell), animate=False, immediate=True, force=True)
        self.post_message(self.Moved())

    @property
    def room(self) -> int:
        """Cells of a row; where the scroll bar stands is none of them."""
        return self.size.width - self.scrollbar_size_vertical

    @property
    def column(self) -> int:
        """The first column in sight, from 1 on."""
        return self.scroll_offset.x + 1

    def head(self) -> None:
        """Go to the oldest line kept."""
        self.show_line(self.buffer.first)

    def show_line(self, top: int) -> None:
        """Put a line at the top (as far as the end allows) and stand still there."""
        self.pause()
        self._dirty = True
        self.sync()
        self._put(min(max(0, top - self._base), self.max_scroll_y))

    def search(self, pattern: re.Pattern[str] | None) -> bool:
        """Look for a pattern from where the reader is; from the end while following. False: nothing matches."""
        self._pattern, self._current = pattern, None
        self._found, self._searched_to = [], 0
        self.refresh()
        if pattern is None:
            self.post_message(self.Moved())
            return True
        found = self.matches()
        if self.following:
            return self._go(found[-1] if found else None)
        return self._go(next((number for number in found if number >= self.top), found[0] if found else None))

    def next_match(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) match, around the ends. False: there is none, or no search."""
        found = self.matches()
        if not found:
            return False
        here = self._current if self._current is not None else self.top
        if step > 0:
            return self._go(next((number for number in found if number > here), found[0]))
        return self._go(next((number for number in reversed(found) if number < here), found[-1]))

    def matches(self) -> list[int]:
        """Numbers of the lines that match the search, as the buffer stands. Only what is new is looked at."""
        if self._pattern is None:
            return []
        # The newest line may still be growing: it is looked at again.
        again = max(self.buffer.first, min(self._searched_to, self.buffer.end - 1))
        kept = [number for number in self._found if self.buffer.first <= number < again]
        self._found = kept + self.buffer.find(self._pattern, again)
        self._searched_to = self.buffer.end
        return self._found

    @property
    def current(self) -> int | None:
        """Line of the match that the reader was taken to."""
        return self._current

    @property
    def searching(self) -> bool:
        """Whether a pattern is set."""
        return self._pattern is not None

    def _go(self, number: int | None) -> bool:
        if number is None:
            self.post_message(self.Moved())
            return False
        self._current = number
        self.show_line(number - self.size.height // 3)
        self._show_match(self.buffer.line(number))
        self.refresh()
        self.post_message(self.Moved())
        return True

    def _show_match(self, text: str) -> None:
        """Move sideways where the match lies beyond the screen."""
        match = self._pattern.search(text) if self._pattern is not None else None
        if match is None:
            return
        start, end = cell_len(text[: match.start()]), cell_len(text[: match.end()])
        if end <= self.room:
            self._show_cell(0)
        elif not self.scroll_offset.x < start <= end < self.scroll_offset.x + self.room:
            self._show_cell(start - self.room // 2)

    def _visible(self) -> list[str]:
        first, last = max(self.top, self.buffer.first), min(self.top + self.size.height, self.buffer.end)
        return [self.buffer.line(number) for number in range(first, last)]

    def text_to_copy(self) -> str:
        """The line of the current match, or else what is on the screen."""
        if self._current is not None and self.buffer.first <= self._current < self.buffer.end:
            return self.buffer.line(self._current)
        return "\n".join(self._visible())

    def render_line(self, y: int) -> Strip:
        """One row; a line that is no longer kept is empty."""
        scroll_x, scroll_y = self.scroll_offset
        number, width, style = self._base + scroll_y + y, self.room, self.rich_style
        if y == 0 and self.nothing and self.buffer.first == self.buffer.end:
            return Strip([Segment(self.nothing, style)], cell_len(self.nothing)).adjust_cell_length(width, style)
        if not self.buffer.first <= number < self.buffer.end:
            return Strip.blank(width, style)
        text = self._styled(number)
        strip = Strip(text.render(self.app.console), text.cell_len).apply_style(style)
        shown = strip.crop_extend(scroll_x, scroll_x + width, style)
        if width > 2 and (scroll_x or text.cell_len > width):
            shown = self._cut(shown, width, left=scroll_x > 0, right=text.cell_len > scroll_x + width)
        return shown.apply_offsets(scroll_x, number)

    def _cut(self, shown: Strip, width: int, left: bool, right: bool) -> Strip:
        """A row with less's signs where its line goes on."""
        style = self.get_component_rich_style("log--cut")
        if right:
            shown = Strip.join([shown.crop(0, width - 1), Strip([Segment(">", style)], 1)])
        return Strip.join([Strip([Segment("<", style)], 1), shown.crop(1)]) if left else shown

    def _styled(self, number: int) -> Text:
        plain = self.buffer.line(number)
        text = Text(plain, end="", no_wrap=True)
        if self._cause and names_cause(self._cause, plain):
            text.stylize(self.get_component_rich_style("log--cause", partial=True))
            return self._marked(text.append(CAUSE_MARK, self.get_component_rich_style("log--cause")), plain, number)
        for name, pattern in _LEVELS:
            if pattern.search(plain):
                text.stylize(self.get_component_rich_style(name, partial=True))
                break
        return self._marked(text, plain, number)

    def _marked(self, text: Text, plain: str, number: int) -> Text:
        """What is searched and what is selected, on top of a line's own style."""
        if self._pattern is not None:
            name = "log--current" if number == self._current else "log--match"
            style = self.get_component_rich_style(name)
            for match in self._pattern.finditer(plain):
                text.stylize(style, *match.span())
        selection = self.text_selection
        span = selection.get_span(number) if selection is not None else None
        if span is not None:
            start, end = span
            text.stylize(
                self.screen.get_component_rich_style("screen--selection"), start, len(plain) if end == -1 else end
            )
        return text

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text; rows of a selection are absolute line numbers."""
        start, end = selection.start, selection.end
        first = max(self.buffer.first, start.y if start is not None else self.buffer.first)
        last = min(self.buffer.end - 1, end.y if end is not None else self.buffer.end - 1)
        lines = [self.buffer.line(number) for number in range(first, last + 1)]
        if lines and end is not None and end.y == last:
            lines[-1] = lines[-1][: end.x]
        if lines and start is not None and start.y == first:
            lines[0] = lines[0][start.x :]
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Text that is being marked must not move."""
        if selection is not None:
            self.pause()
        self.refresh()
