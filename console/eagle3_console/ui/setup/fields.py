"""The set-up's fields: a path with names to go on with below it, and a setting with the reason for what is proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from eagle3_console.errors import ConsoleError
from eagle3_console.judge import FAIL, Finding
from eagle3_console.printable import safe
from eagle3_console.setup.draft import Field
from eagle3_console.setup.propose import Proposal
from eagle3_console.ui.draw import MUTED, words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.setup import draw
from eagle3_console.ui.setup.line import FieldInput
from eagle3_remote.protocol import PathList

Complete = Callable[[str, bool], Awaitable[PathList]]
Told = Callable[[str, str], None]
"""Is called with a field's name and what it says now."""
_LABEL = 13
"""Cells of the labels, as in the style sheet."""
PAUSE = 0.1
"""Seconds without a key before names are asked for."""


class Names(Static):
    """The names below a path; a click takes one."""

    class Clicked(Message):
        """A line of the list."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def on_click(self, event: events.Click) -> None:
        """Tell which line."""
        event.stop()
        self.post_message(self.Clicked(event.y))


class PathInput(FieldInput):
    """A path on the box; enter and the arrows choose among the names below it."""

    def __init__(self, owner: PathField, field: Field, text: str, cut: str) -> None:
        super().__init__(f"input-{field.name}", text, cut, owner.typed, field.hint, select=False)
        self.owner = owner

    def take(self) -> None:
        """The chosen name; where none is chosen, the next field."""
        if not self.owner.take():
            super().take()

    def move(self, step: int) -> None:
        """Through the names; where there are none, to the next field."""
        if not self.owner.choose(step):
            super().move(step)


class PathField(Vertical):
    """Label, path, names to go on with, and what the box found there.

    Args:
        number: its place, shown.
        complete: asks the box for names.
    """

    def __init__(self, number: int, field: Field, text: str, complete: Complete, told: Told, glyphs: Glyphs) -> None:
        super().__init__(id=f"field-{field.name}", classes="path-field")
        self._field = field
        self._label = f"{number} {field.label}"
        self._complete = complete
        self._told = told
        self._glyphs = glyphs
        self._names = PathList("", "")
        self._open = False
        self._good: bool | None = None
        """Whether it is what is asked for, a model for example; `None`: the box has not told."""
        self._chosen: int | None = None
        self._asker: asyncio.Task[None] | None = None
        self.input = PathInput(self, field, text, glyphs.cut)

    def compose(self) -> ComposeResult:
        """Top to bottom."""
        with Horizontal(classes="field-line"):
            yield Static(words((self._label, "bold")), classes="field-label")
            yield self.input
        yield Names(classes="field-names")
        yield Static(classes="field-findings")

    def show(self, found: tuple[Finding, ...], waiting: bool) -> None:
        """What is to be said of it."""
        below = self.query_one(".field-findings", Static)
        if waiting:
            below.update(words((f"{self._glyphs.dot} looking at it", MUTED)))
        elif found:
            below.update(draw.findings(found, self._glyphs))
        below.display = waiting or bool(found)
        wrong = [one.what for one in found if one.level == FAIL]
        self.set_class(bool(wrong), "-wrong")
        # A model whose weights are not whole is a model: nobody looks for it further down.
        good = None if waiting or not found else self._field.label.lower() not in wrong
        if good is not self._good:
            self._good = good
            self._draw()

    def on_mount(self) -> None:
        """No names yet."""
        self._draw()

    def on_unmount(self) -> None:
        """Ask no more."""
        if self._asker is not None:
            self._asker.cancel()

    def typed(self, text: str) -> None:
        """Ask for names, and tell the screen."""
        self._chosen = None
        self._open = True
        self._ask()
        self._told(self._field.name, text)

    def on_descendant_focus(self) -> None:
        """Offer names at once."""
        self._open = True
        self._ask()

    def on_descendant_blur(self) -> None:
        """Nothing is offered where nobody types."""
        self._open = False
        self._draw()

    def on_names_clicked(self, event: Names.Clicked) -> None:
        """A name was clicked."""
        event.stop()
        self._chosen = draw.row_of(self._names, self._chosen, event.line)
        self.take()

    @property
    def completes(self) -> bool:
        """Whether tab has something to complete, from what is known by now: it never waits for the box.

        A right answer has nothing to complete, though names may go on with it; nor has a whole name, before it is known to
        be a wrong one.
        """
        names = self._names
        if not self._current or not names.entries:
            return False
        if self._chosen is not None:
            return True
        whole = any(one.name == names.word != "~" for one in names.entries)
        if not self.input.value or (self._good is not False if whole else self._good and not names.word):
            return False
        return self._only != self.input.value

    def complete(self) -> bool:
        """The chosen name, else what all names share, else choose the first; whether there was something to complete."""
        if not self.completes:
            return False
        names = self._names
        if self._chosen is not None:
            return self.take()
        if self._only:
            self._set(self._only)
        elif (common := draw.shared(names)) != names.word:
            self._set(names.folder + common)
        else:
            self._open = True
            self.choose(1)
        return True

    def choose(self, step: int) -> bool:
        """Move through the names; whether there are any."""
        if not self._open or not self._current or not self._names.entries:
            return False
        if self._chosen is None:
            if step < 0:
                return False
            self._chosen = 0
        elif self._chosen + step < 0:
            self._chosen = None
        else:
            self._chosen = min(self._chosen + step, len(self._names.entries) - 1)
        self._draw()
        return True

    def take(self) -> bool:
        """Take the chosen name; whether there was one."""
        if self._chosen is None or not self._current:
            return False
        self._set(draw.text_after(self._names, self._names.entries[self._chosen]))
        return True

    def close(self) -> None:
        """Close the list."""
        self._open, self._chosen = False, None
        self._draw()

    @property
    def listing(self) -> bool:
        """Whether names are shown."""
        return bool(self.query_one(Names).display)

    @property
    def _only(self) -> str:
        """The path with the one name that may follow; empty: there are more, or none."""
        names = self._names
        return draw.text_after(names, names.entries[0]) if len(names.entries) == 1 and not names.more else ""

    @property
    def _current(self) -> bool:
        """Whether the names are those of what stands in the field now."""
        return self._names.folder + self._names.word == self.input.value

    def _set(self, text: str) -> None:
        self._chosen = None
        if safe(text) != text:
            # An input line would hand it to the terminal as it is.
            self.notify("this name has characters that cannot be shown: rename it on the box", severity="warning")
            self._draw()
            return
        self.input.value = text
        self.input.cursor_position = len(text)

    def _ask(self) -> None:
        if self._asker is not None:
            self._asker.cancel()
        self._asker = asyncio.create_task(self._ask_later(self.input.value), name=f"names for {self._field.name}")

    async def _ask_later(self, typed: str) -> None:
        await asyncio.sleep(PAUSE)
        try:
            self._names = await self._complete(typed, self._field.path == "folder")
        except ConsoleError as error:
            self._names = PathList("", typed, error=str(error))
        self._draw()

    def _draw(self) -> None:
        shown = self.query_one(Names)
        open_now = self._open and self.input.has_focus and self._current
        done = bool(self._only) and self._only == self.input.value
        shown.display = open_now and not done and (bool(self._names.entries) or bool(self._names.error))
        self.screen.refresh_bindings()
        if shown.display:
            width = max(20, self.size.width - _LABEL - 2)
            shown.update(draw.names(self._names, self._chosen, self.completes, width, self._glyphs))


class SettingField(Horizontal):
    """Label, value, and why it is proposed."""

    def __init__(self, field: Field, text: str, told: Told, glyphs: Glyphs) -> None:
        wide = bool(field.path) or field.name == "server_args"
        super().__init__(id=f"field-{field.name}", classes="setting-field" + (" -long" if wide else ""))
        self._field = field
        self._glyphs = glyphs
        self._given = text
        self.input = FieldInput(f"input-{field.name}", text, glyphs.cut, lambda typed: told(field.name, typed))

    def compose(self) -> ComposeResult:
        """Left to right."""
        yield Static(words((self._field.label, "bold")), classes="field-label")
        yield self.input
        yield Static(classes="setting-reason")

    def show(self, text: str, proposal: Proposal | None, own: bool, found: tuple[Finding, ...]) -> None:
        """What counts in it, and why."""
        # Never under somebody's fingers: a space typed behind what is proposed would be gone.
        touched = self.input.has_focus and self.input.value != self._given
        if not own and self.input.value != text and not touched:
            self.input.put(text)
            self._given = text
        below = (
            draw.findings(found, self._glyphs, label=False) if found else draw.proposal(proposal, text if own else None)
        )
        if found and own and proposal is not None:
            below = Content("\n").join([below, draw.proposal(proposal, text)])
        if self.input.has_focus:
            below = words(self._field.hint, ". ") + below
        self.query_one(".setting-reason", Static).update(below)
        self.set_class(any(one.level == FAIL for one in found), "-wrong")
