"""A dialog whose text scrolls above what is always in sight: its buttons, and a line to type into."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget


class DialogText(VerticalScroll, can_focus=False):
    """The text. The frame around it says when there is more of it."""

    def __init__(self, *children: Widget, classes: str = "") -> None:
        super().__init__(*children, id="dialog-text", classes=classes)

    def watch_virtual_size(self, size: Size) -> None:
        """The text is another one."""
        self.call_after_refresh(self._tell)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Another part of it is shown."""
        super().watch_scroll_y(old_value, new_value)
        self._tell()

    def on_resize(self) -> None:
        """More or less room."""
        self._tell()

    def _tell(self) -> None:
        if not self.is_attached or not isinstance(self.parent, Widget):
            return
        if self.scroll_offset.y < self.max_scroll_y:
            said = "more below (pgdn)"
        else:
            said = "more above (pgup)" if self.max_scroll_y else ""
        self.parent.border_subtitle = said


class TextModal(ModalScreen[ScreenResultType]):
    """Keys that scroll a `DialogText`, wherever the focus is. In a line to type into, home and end are its own."""

    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-roomy")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll_text('down')", show=False),
        Binding("up,k", "scroll_text('up')", show=False),
        Binding("pagedown,space", "scroll_text('page_down')", show=False),
        Binding("pageup,b", "scroll_text('page_up')", show=False),
        Binding("home,g", "scroll_text('home')", show=False),
        Binding("end,G", "scroll_text('end')", show=False),
    ]

    def action_scroll_text(self, where: str) -> None:
        """By a line, by what is in sight, or to one end."""
        text = self.query_one(DialogText)
        if where in ("home", "end"):
            text.scroll_to(y=0 if where == "home" else text.max_scroll_y, animate=False)
        else:
            lines = max(text.size.height - 1, 1) if where.startswith("page") else 1
            text.scroll_relative(y=lines if where.endswith("down") else -lines, animate=False)
