"""Panel 4: the log view, its title line, and the search line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical

from eagle3_console import units
from eagle3_console.loglines import Level, Sieve, line_of_cause, ranks_in
from eagle3_console.ui.draw import words
from eagle3_console.ui.log_buffer import LogBuffer, is_pattern, search_pattern
from eagle3_console.ui.widgets.log_view import LogView
from eagle3_console.ui.widgets.ordered_input import OrderedInput
from eagle3_remote.protocol import PhaseSpan, ServerLog

T = TypeVar("T")

_AROUND_TITLE = 4
"""Cells of the border beside the title."""


class SearchLine(OrderedInput):
    """What is searched or filtered for.

    Args:
        taken: called with the text when enter takes it.
    """

    def __init__(self, taken: Callable[[str], None]) -> None:
        super().__init__(compact=True)
        self._taken = taken

    def take(self) -> None:
        """Find."""
        self._taken(self.value)


class LogPanel(Vertical):
    """The log of one job, byte for byte once: what comes twice is dropped, what is missing is said."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__(id="panel-4", classes="panel")
        self._keys = keys
        """Id -> key, for the title."""
        self.view = LogView()
        self._whole = self.view.buffer
        self._sieve = Sieve()
        """Lets every line through while nothing is filtered; then the view shows the whole buffer itself."""
        self._sifted = 0
        """Number of the line of the whole log that is looked at next."""
        self._search = SearchLine(self._taken)
        self._job = ""
        self._next_offset: int | None = None
        self._not_found = ""
        self._searched = self._filter = ""
        """As they were typed; what is no regular expression was taken as it stands, and that is said."""
        self._spans: tuple[PhaseSpan, ...] = ()
        self._filtering = False
        """What is typed now says which lines are shown, not which are looked for."""

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
        self._whole.clear()
        self.view.restart()
        self._spans = ()
        self._show(phase=None)

    def feed(self, job: str, data: bytes, offset: int) -> None:
        """Bytes of the log at their place in the file."""
        if job != self._job:
            self.restart(job)
        if self._next_offset is None and offset > 0:
            self._take(f"[console] the first {units.number(offset)} bytes are in the file\n".encode())
        elif self._next_offset is not None and offset < self._next_offset:
            data = data[self._next_offset - offset :]
            offset = self._next_offset
        self._take(data)
        self._next_offset = offset + len(data)

    def _take(self, data: bytes) -> None:
        if self._sieve.open:
            self.view.feed(data)
        else:
            self._whole.feed(data)
            self._sift()

    def _sift(self) -> None:
        lines = (self._whole.line(number) for number in range(max(self._sifted, self._whole.first), self._whole.ended))
        wanted = [line for line in lines if self._sieve.wants(line)]
        self._sifted = self._whole.ended
        if wanted:
            self.view.feed(("\n".join(wanted) + "\n").encode())

    def _show(self, **changes: Any) -> None:
        """Filter anew, as before but for what is named: ``rank``, ``level``, ``pattern``, ``phase``."""
        old = self._sieve
        wanted: dict[str, Any] = {
            "rank": old.rank,
            "level": old.level,
            "pattern": old.pattern,
            "phase": old.phase,
        } | changes
        self._sieve, self._sifted = Sieve(**wanted, spans=self._spans), self._whole.first
        self.view.nothing = "" if self._sieve.open else f"no line matches ({self._keys['back']}: all lines)"
        if self._sieve.open:
            self.view.show_buffer(self._whole)
        else:
            self.view.show_buffer(LogBuffer())
            self._sift()
        self._entitle()

    def next_level(self) -> None:
        """All lines, those with warnings and errors, errors alone, and all again."""
        self._show(level=Level((self._sieve.level + 1) % len(Level)))

    def next_rank(self) -> bool:
        """All ranks, then each alone, and all again. False: no line says its rank."""
        whole = self._whole
        ranks = ["", *ranks_in(whole.line(number) for number in range(whole.first, whole.end))]
        self._show(rank=_after(ranks, self._sieve.rank))
        return len(ranks) > 1

    def next_phase(self) -> bool:
        """All phases of the server, then each alone, and all again. False: the box tells of none."""
        phases = [None, *(span.phase for span in self._spans)]
        self._show(phase=_after(phases, self._sieve.phase))
        return len(phases) > 1

    def know(self, log: ServerLog) -> None:
        """What the box read in this log: its phases, and why the server failed."""
        self.view.name_cause(log.root_cause or log.refused or "")
        spans = tuple(span for span in log.spans if span.stamp is not None or span is log.spans[0])
        if spans != self._spans and any(span.stamp is not None for span in spans):
            self._spans = spans
            if self._sieve.phase is not None and self.view.following:  # a reader is not moved
                self._show()

    def no_filter(self) -> bool:
        """Show every line again. False: nothing was filtered."""
        filtered = not self._sieve.open
        if filtered:
            self._show(rank="", level=Level.INFO, pattern=None, phase=None)
        return filtered

    def go_to_cause(self, cause: str) -> bool:
        """Take the reader to the line that names the root cause. False: it is not among the lines that are kept."""
        whole = self._whole
        number = line_of_cause(cause, ((one, whole.line(one)) for one in range(whole.first, whole.end)))
        if number is None:
            return False
        self.no_filter()
        self.view.mark(number)
        return True

    @property
    def job(self) -> str:
        """The job whose log this is; empty before the first line."""
        return self._job

    def text(self) -> str:
        """Every line that is shown and kept."""
        buffer = self.view.buffer
        return "".join(f"{buffer.line(number)}\n" for number in range(buffer.first, buffer.end))

    def open_search(self, filtering: bool = False) -> None:
        """Show the search line and type into it; `filtering`: lines that do not match are left out."""
        self._filtering = filtering
        what = "show only lines with" if filtering else "search"
        self._search.placeholder = f"{what} (regular expression; enter {'shows' if filtering else 'finds'}, esc leaves)"
        self._search.display = True
        self._search.value = ""
        self.screen.set_focus(self._search)  # at once: the next key is for it

    @property
    def search_open(self) -> bool:
        """Whether the search line is shown."""
        return bool(self._search.display)

    async def caught_up(self) -> None:
        """Return when what was typed into the search line stands in it."""
        await self._search.caught_up()

    def close_search(self, forget: bool) -> None:
        """Hide the search line; `forget` ends the search as well."""
        self._search.display = False
        self.screen.set_focus(self.view)
        if forget:
            self._not_found = ""
            self.view.search(None)

    def _taken(self, text: str) -> None:
        if self._filtering:
            self.close_search(forget=False)
            self._filter = text
            self._show(pattern=search_pattern(text) if text else None)
            return
        self.close_search(forget=not text)
        if text:
            self._searched = text
            found = self.view.search(search_pattern(text))
            self._not_found = "" if found else text
            self._entitle()

    def on_log_view_moved(self, event: LogView.Moved) -> None:
        """Position, follow or search changed."""
        event.stop()
        self._entitle()

    def _named(self, *names: str) -> str:
        return ", ".join(self._keys[f"log.{name}"] for name in names)

    def _entitle(self) -> None:
        view = self.view
        parts = ["4 Log"]
        if self._job:
            parts.append(self._job)
        if view.following:
            parts.append("following")
        else:
            lines = "line" if view.new_lines == 1 else "lines"
            parts.append(
                f"standing still, {units.number(view.new_lines)} new {lines} ({self._keys['log.follow']} follows)"
            )
        if view.column > 1:
            parts.append(f"from column {view.column}")
        if not self._sieve.open:
            only = self._sieve.rank or "all ranks"
            level = f", {self._sieve.level.name.lower()}" if self._sieve.level is not Level.INFO else ""
            count = f"{units.number(self._sieve.kept)} of {units.number(self._sieve.seen)} lines"
            phase = f", {self._sieve.phase.value}" if self._sieve.phase is not None else ""
            matching = f", with {self._filter}{_literal(self._filter)}" if self._sieve.pattern is not None else ""
            parts.append(f"{only}{level}{phase}{matching}: {count} ({self._named('rank', 'level', 'phase', 'filter')})")
        if self._not_found:
            parts.append(f"not found: {self._not_found}{_literal(self._not_found)}")
        elif view.searching:
            found = view.matches()
            place = found.index(view.current) + 1 if view.current in found else 0
            parts.append(f"match {place} of {len(found)}{_literal(self._searched)} ({self._named('next', 'previous')})")
        title = words("  ".join(parts))
        if self._job and title.cell_length > self.outer_size.width - _AROUND_TITLE:
            title = words("  ".join(part for part in parts if part != self._job))
        # As `Content`: a title given as a string would be read as markup, and this one holds text of others.
        self.border_title = title


def _literal(text: str) -> str:
    return "" if is_pattern(text) else " (as text)"


def _after(choices: Sequence[T], now: T) -> T:
    """The next choice, around the end; the second where `now` is none of them."""
    place = choices.index(now) if now in choices else 0
    return choices[(place + 1) % len(choices)]
