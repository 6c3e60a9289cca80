"""One line to type into, which shows where more stands than it has room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip

from eagle3_console.ui.widgets.ordered_input import OrderedInput


class FieldInput(OrderedInput):
    """One line. What a field does not use goes on to the screen.

    At rest it shows the beginning of what it holds, under the hands the place of the cursor; a sign stands where it is cut.

    Args:
        cut: the sign, one cell.
        told: called with the text whenever a person changed it, before the next key.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    def __init__(
        self, name: str, value: str, cut: str, told: Callable[[str], None], hint: str = "", *, select: bool = True
    ) -> None:
        self._told = told
        self._putting = False
        super().__init__(value, placeholder=hint, id=name, compact=True, select_on_focus=select)
        self._cut = cut

    def put(self, text: str) -> None:
        """Hold another text, which nobody typed: nobody is told, and it is shown from its beginning."""
        self._putting = True
        self.value = text
        self._putting = False
        self._show_from(0)

    def watch_value(self, value: str) -> None:
        """Tell at once, not by a message: a key that saves may be the next."""
        if self.is_attached and not self._putting:
            self._told(value)

    async def action_move(self, step: int) -> None:
        """The field below or above."""
        await self.caught_up()
        self.move(step)

    def take(self) -> None:
        """The next field."""
        self.screen.focus_next()

    def move(self, step: int) -> None:
        """What the arrows down and up do."""
        self.screen.focus_next() if step > 0 else self.screen.focus_previous()

    def on_focus(self) -> None:
        """The cursor may stand behind what was shown at rest."""
        self.call_after_refresh(lambda: self._show_from(self._cursor_cell + 1 - self.content_size.width))

    def on_blur(self) -> None:
        """Nobody types: the beginning says most."""
        self.call_after_refresh(self._show_from, 0)

    def render_line(self, y: int) -> Strip:
        """The line, with a sign at each end that is cut. Never over the cursor."""
        strip, width = super().render_line(y), self.content_size.width
        first = self.scroll_offset.x
        at = self._cursor_cell - first if self.has_focus else -1
        if y or not self.value or width < 3:
            return strip
        sign = Strip([Segment(self._cut, self.rich_style)])
        if cell_len(self.value) - first > width and at != width - 1:
            strip = Strip.join([strip.crop(0, width - 1), sign])
        return Strip.join([sign, strip.crop(1)]) if first and at != 0 else strip

    @property
    def _cursor_cell(self) -> int:
        return cell_len(self.value[: self.cursor_position])

    def _show_from(self, cell: int) -> None:
        self.scroll_to(x=max(cell, 0), animate=False, force=True, immediate=True)
