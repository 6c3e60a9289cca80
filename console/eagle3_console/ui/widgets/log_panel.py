"""Panel 4: the log view, its title line, and the search line."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from eagle3_console import units
from eagle3_console.ui.draw import words
from eagle3_console.ui.log_buffer import search_pattern
from eagle3_console.ui.widgets.log_view import LogView


class LogPanel(Vertical):
    """The log of one job, byte for byte once: what comes twice is dropped, what is missing is said."""

    def __init__(self) -> None:
        super().__init__(id="panel-4", classes="panel")
        self.view = LogView()
        self._search = Input(placeholder="search (regular expression; enter finds, esc leaves)", compact=True)
        self._job = ""
        self._next_offset: int | None = None
        self._not_found = ""

    def compose(self) -> ComposeResult:
        """The log, and below it the search line while it is used."""
        self._search.display = False
        yield self.view
        yield self._search

    def on_mount(self) -> None:
        """The title says what is followed from the first moment."""
        self._entitle()

    def restart(self, job: str) -> None:
        """What was shown does not go on: another job, or the file was cut."""
        self._job, self._next_offset = job, None
        self.view.restart()
        self._entitle()

    def feed(self, job: str, data: bytes, offset: int) -> None:
        """Bytes of the log at their place in the file."""
        if job != self._job:
            self.restart(job)
        if self._next_offset is None and offset > 0:
            self.view.feed(f"[console] the first {units.number(offset)} bytes are in the file\n".encode())
        elif self._next_offset is not None and offset > self._next_offset:
            missing = units.number(offset - self._next_offset)
            self.view.feed(f"\n[console] {missing} bytes skipped here; they are in the file\n".encode())
        elif self._next_offset is not None:
            data = data[self._next_offset - offset :]
            offset = self._next_offset
        self.view.feed(data)
        self._next_offset = offset + len(data)

    def open_search(self) -> None:
        """Show the search line and type into it."""
        self._search.display = True
        self._search.value = ""
        self._search.focus()

    @property
    def search_open(self) -> bool:
        """Whether the search line is shown."""
        return bool(self._search.display)

    def close_search(self, forget: bool) -> None:
        """Hide the search line; `forget` ends the search as well."""
        self._search.display = False
        self.view.focus()
        if forget:
            self._not_found = ""
            self.view.search(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: find."""
        event.stop()
        text = event.value
        self.close_search(forget=not text)
        if text:
            found = self.view.search(search_pattern(text))
            self._not_found = "" if found else text
            self._entitle()

    def on_log_view_moved(self, event: LogView.Moved) -> None:
        """Position, follow or search changed."""
        event.stop()
        self._entitle()

    def _entitle(self) -> None:
        view = self.view
        parts = ["4 Log"]
        if self._job:
            parts.append(self._job)
        if view.following:
            parts.append("following")
        else:
            lines = "line" if view.new_lines == 1 else "lines"
            parts.append(f"paused, {units.number(view.new_lines)} new {lines} (f follows)")
        if self._not_found:
            parts.append(f"not found: {self._not_found}")
        elif view.searching:
            found = view.matches()
            place = found.index(view.current) + 1 if view.current in found else 0
            parts.append(f"match {place} of {len(found)} (n, N)")
        # As `Content`: a title given as a string would be read as markup, and this one holds text of others.
        self.border_title = words("  ".join(parts))
