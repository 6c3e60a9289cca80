"""The set-up's fields: a path with names to go on with below it, and a setting with the reason for what is proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

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
_LABEL = 13
"""Cells of the labels, as in the style sheet."""
PAUSE = 0.1
"""Seconds without a key before names are asked for."""


class Typed(Message):
    """A field says something else now."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self.name = name
        self.text = text


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
    """A path on the box, completed as it is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "complete", key_display="tab"),
        Binding("escape", "close", "close list", key_display="esc"),
    ]

    def __init__(self, owner: _PathOwner, field: Field, text: str, cut: str) -> None:
        super().__init__(f"input-{field.name}", text, cut, field.hint, select=False)
        self._owner = owner

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is not possible now is the screen's key: esc leaves it, and tab goes from an empty field to the next."""
        if action == "close":
            return self._owner.listing
        return bool(self.value) if action == "complete" else True

    def action_complete(self) -> None:
        """What all names share, then the chosen one, then the next field."""
        if not self._owner.complete():
            self.screen.focus_next()

    def action_move(self, step: int) -> None:
        """Through the names; where there are none, to the next field."""
        if not self._owner.choose(step):
            super().action_move(step)

    def action_take(self) -> None:
        """The chosen name; where none is chosen, the next field."""
        if not self._owner.take():
            super().action_take()

    def action_close(self) -> None:
        """Close the list."""
        self._owner.close()


class _PathOwner(Vertical):
    """What `PathInput` asks of the field that it is part of."""

    def complete(self) -> bool:
        raise NotImplementedError

    def choose(self, step: int) -> bool:
        raise NotImplementedError

    def take(self) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @property
    def listing(self) -> bool:
        """Whether names are shown."""
        raise NotImplementedError


class PathField(_PathOwner):
    """Label, path, names to go on with, and what the box found there.

    Args:
        number: its place, shown.
        complete: asks the box for names.
    """

    def __init__(self, number: int, field: Field, text: str, complete: Complete, glyphs: Glyphs) -> None:
        super().__init__(id=f"field-{field.name}", classes="path-field")
        self._field = field
        self._label = f"{number} {field.label}"
        self._complete = complete
        self._glyphs = glyphs
        self._names = PathList("", "")
        self._open = False
        self._complete_then = False
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
        self.set_class(any(one.level == FAIL for one in found), "-wrong")

    def on_mount(self) -> None:
        """No names yet."""
        self._draw()

    def on_unmount(self) -> None:
        """Ask no more."""
        if self._asker is not None:
            self._asker.cancel()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Ask for names, and tell the screen."""
        event.stop()
        self._chosen = None
        self._open = True
        self._complete_then = False
        self._ask()
        self.post_message(Typed(self._field.name, event.value))

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

    def complete(self) -> bool:
        """See `PathInput.action_complete`; whether there was something to complete."""
        if self._open and not self._current:
            self._complete_then = True  # faster than the box: as soon as the names are there
            return True
        if not self._names.entries:
            return False
        if self._chosen is not None:
            return self.take()
        names = self._names
        if len(names.entries) == 1 and not names.more:
            text = draw.text_after(names, names.entries[0])
            if text == self.input.value:
                return False
            self._set(text)
            return True
        common = draw.shared(names)
        if common != names.word:
            self._set(names.folder + common)
            return True
        return self.choose(1)

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
        then, self._complete_then = self._complete_then, False
        if then and self._current and self.input.has_focus and not self.complete():
            self.screen.focus_next()

    def _draw(self) -> None:
        shown = self.query_one(Names)
        open_now = self._open and self.input.has_focus and self._current
        done = (
            len(self._names.entries) == 1 and draw.text_after(self._names, self._names.entries[0]) == self.input.value
        )
        shown.display = open_now and not done and (bool(self._names.entries) or bool(self._names.error))
        self.screen.refresh_bindings()
        if shown.display:
            shown.update(draw.names(self._names, self._chosen, max(20, self.size.width - _LABEL - 2), self._glyphs))


class SettingField(Horizontal):
    """Label, value, and why it is proposed."""

    def __init__(self, field: Field, text: str, glyphs: Glyphs) -> None:
        wide = bool(field.path) or field.name == "server_args"
        super().__init__(id=f"field-{field.name}", classes="setting-field" + (" -long" if wide else ""))
        self._field = field
        self._glyphs = glyphs
        self._given = text
        self.input = FieldInput(f"input-{field.name}", text, glyphs.cut)

    def compose(self) -> ComposeResult:
        """Left to right."""
        yield Static(words((self._field.label, "bold")), classes="field-label")
        yield self.input
        yield Static(classes="setting-reason")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the screen."""
        event.stop()
        self.post_message(Typed(self._field.name, event.value))

    def show(self, text: str, proposal: Proposal | None, own: bool, found: tuple[Finding, ...]) -> None:
        """What counts in it, and why."""
        # Never under somebody's fingers: a space typed behind what is proposed would be gone.
        touched = self.input.has_focus and self.input.value != self._given
        if not own and self.input.value != text and not touched:
            self.input.put(text)
            self._given = text
        below = draw.findings(found, self._glyphs, label=False) if found else draw.proposal(proposal, own)
        if found and own and proposal is not None:
            below = Content("\n").join([below, draw.proposal(proposal, own)])
        if self.input.has_focus:
            below = words(self._field.hint, ". ") + below
        self.query_one(".setting-reason", Static).update(below)
        self.set_class(any(one.level == FAIL for one in found), "-wrong")
