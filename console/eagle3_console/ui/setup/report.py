"""The report of a run, over the dashboard."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Markdown

from eagle3_console.printable import plain
from eagle3_console.ui.draw import words


class ReportScreen(ModalScreen[None]):
    """What a run came to."""

    CSS_PATH = "setup.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "leave", "back"),
        Binding("y", "copy", "copy"),
    ]

    def __init__(self, text: str, again: str) -> None:
        super().__init__()
        self.text = text
        self._again = again

    def compose(self) -> ComposeResult:
        """The text, as long as it is."""
        with VerticalScroll(id="report"):
            # What comes from the box is plain text in it; a link that somebody wrote is not opened.
            yield Markdown("\n".join(map(plain, self.text.splitlines())), open_links=False)

    def on_mount(self) -> None:
        """The frame says how to leave."""
        frame = self.query_one("#report")
        frame.border_title = "Report (esc leaves, y copies)"
        frame.border_subtitle = words(f"into a file: eagle3-console report {self._again} > FILE")
        frame.focus()

    def action_leave(self) -> None:
        """Back to the dashboard."""
        self.dismiss(None)

    def action_copy(self) -> None:
        """All of it, through the terminal."""
        self.app.copy_to_clipboard(self.text)
        self.notify("the report is copied")
