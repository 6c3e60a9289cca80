"""Every key in one list, with what it does, and for those that do nothing now the reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget

from eagle3_console.keys import Key
from eagle3_console.ui.draw import MUTED, words, wrap

_KEY_CELLS = 8


class KeyList(Widget):
    """The table, as wide as there is room."""

    def __init__(self, keys: Sequence[Key], reasons: Mapping[str, str], again: str) -> None:
        super().__init__()
        self._keys = sorted(keys, key=lambda key: key.group)
        self._reasons = reasons
        self._again = again

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as it takes."""
        return len(list(self._lines(width)))

    def render(self) -> Content:
        """All lines; the frame around it scrolls."""
        return Content("\n").join(self._lines(self.size.width))

    def _lines(self, width: int) -> Iterator[Content]:
        room = max(20, width - _KEY_CELLS)
        for group, keys in itertools.groupby(self._keys, lambda key: key.group):
            yield words((group, "bold underline"))
            for key in keys:
                reason = self._reasons.get(key.id, "")
                text = wrap(key.help, room, MUTED if reason else "")
                text += wrap(f"not now: {reason}", room, f"italic {MUTED}") if reason else []
                yield words((f"{key.shown:>6}  ", MUTED if reason else "bold $text-accent")) + text[0]
                yield from (Content(" " * _KEY_CELLS) + line for line in text[1:])
            yield Content("")
        copy = next((key.shown for key in self._keys if key.id == "copy"), "y")
        yield from wrap(
            f"In the log: arrows or j k, page keys, space b; left right where > and < say that lines go on; mouse marks text, {copy} copies it.",
            width,
        )
        yield from wrap("Keys, theme and alerts are yours to set: eagle3-console config show", width)
        yield from wrap(f"Detaching stops nothing. Come back with: eagle3-console {self._again}", width)


class HelpScreen(ModalScreen[None]):
    """The list in a frame.

    Args:
        reasons: id of a key that is not possible now -> why.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "leave", "back")]

    def __init__(self, keys: Sequence[Key], reasons: Mapping[str, str], again: str) -> None:
        super().__init__()
        self._list = KeyList(keys, reasons, again)

    def compose(self) -> ComposeResult:
        """The table."""
        with VerticalScroll(id="help"):
            yield self._list

    def on_mount(self) -> None:
        """The frame says how to leave."""
        frame = self.query_one("#help")
        frame.border_title = "Keys (esc leaves, arrows scroll)"
        self.set_focus(frame)

    def action_leave(self) -> None:
        """Back to the dashboard."""
        self.dismiss(None)
