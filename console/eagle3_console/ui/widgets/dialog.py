"""Questions before something is lost, and the help."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from eagle3_console.ui.draw import words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.keys import Key


@dataclasses.dataclass(frozen=True)
class Choice:
    """One way to go on."""

    answer: str
    key: str
    """The key that confirms at once."""
    label: str
    losses: tuple[str, ...]
    """What would be lost, in sentences."""


class AskDialog(ModalScreen[str | None]):
    """Says what each choice would lose. Cancel has the focus; a choice's own key, or enter on its button, confirms.

    The result is the `Choice.answer`, or `None` for cancel.

    Args:
        line: gives the exact line that would run; it is shown when it comes, and so is the reason why it does not.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "cancel", "cancel"),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
        Binding("pagedown,space", "scroll_text(1)", show=False),
        Binding("pageup,b", "scroll_text(-1)", show=False),
    ]
    AUTO_FOCUS = "#cancel"

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        glyphs: Glyphs,
        line: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        super().__init__()
        self._line = line
        self._title = title
        self._choices = tuple(choices)
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """Title, losses, buttons."""
        with Vertical(id="dialog"):
            yield Static(words((self._title, "bold")), id="dialog-title")
            with VerticalScroll(
                id="dialog-text", can_focus=False, classes="-single" if len(self._choices) == 1 else ""
            ):
                for choice in self._choices:
                    if len(self._choices) > 1:
                        yield Static(words((choice.label, "bold underline")), classes="dialog-choice")
                    for loss in choice.losses or ("Nothing is lost.",):
                        yield Static(words(f"{self._glyphs.warning} {loss}"), classes="dialog-loss")
                if self._line is not None:
                    yield Static(words("Asking the box for the exact line."), id="dialog-line")
            with Horizontal(id="dialog-buttons"):
                yield Button("Cancel (esc)", id="cancel", compact=True)
                for number, choice in enumerate(self._choices):
                    label = Content(f"{choice.label} ({choice.key})")
                    yield Button(label, id=f"choice-{number}", variant="error", compact=True)

    def on_mount(self) -> None:
        """Ask for the line."""
        if self._line is not None:
            self.run_worker(self._show_line(self._line), name="line", exit_on_error=False)

    async def _show_line(self, line: Callable[[], Awaitable[str]]) -> None:
        try:
            text = await line()
        except Exception as error:
            text = str(error)
        lines = Content("\n").join(words(one) for one in text.splitlines())
        self.query_one("#dialog-line", Static).update(lines)

    def action_scroll_text(self, pages: int) -> None:
        """The line is longer than the dialog."""
        text = self.query_one("#dialog-text", VerticalScroll)
        text.scroll_relative(y=pages * max(text.size.height - 1, 1), animate=False)

    def on_key(self, event: events.Key) -> None:
        """A choice's own key confirms it."""
        for choice in self._choices:
            if event.key == choice.key:
                event.stop()
                self.dismiss(choice.answer)
                return

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Enter or a click."""
        event.stop()
        name = event.button.id or ""
        self.dismiss(None if name == "cancel" else self._choices[int(name.removeprefix("choice-"))].answer)

    def action_cancel(self) -> None:
        """Nothing happens."""
        self.dismiss(None)


class HelpScreen(ModalScreen[None]):
    """Every key in one list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "leave", "back")]

    def __init__(self, keys: Sequence[Key], target: str) -> None:
        super().__init__()
        self._keys = tuple(keys)
        self._target = target

    def compose(self) -> ComposeResult:
        """The table."""
        lines = [words((f"{key.shown:>4}  ", "bold $text-accent"), key.help) for key in self._keys]
        lines += [
            words(""),
            words("In the log: arrows or j k, page keys, space b; mouse marks text, y copies it."),
            words(f"Detaching stops nothing. Come back with: eagle3-console {self._target}"),
        ]
        with VerticalScroll(id="help"):
            yield Static(Content("\n").join(lines))

    def on_mount(self) -> None:
        """The frame says how to leave."""
        frame = self.query_one("#help")
        frame.border_title = "Keys (esc leaves)"
        frame.focus()

    def action_leave(self) -> None:
        """Back to the dashboard."""
        self.dismiss(None)
