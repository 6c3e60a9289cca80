"""Questions before something is lost."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Static

from eagle3_console.keys import Key
from eagle3_console.ui.draw import words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.widgets.text_modal import DialogText, TextModal

_BUTTON_CELLS = 6
"""What a button takes beside its words: its padding and the gap to the next."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """One way to go on."""

    answer: str
    key: Key
    """The key that confirms at once."""
    label: str
    losses: tuple[str, ...]
    """What would be lost, in sentences."""


class AskDialog(TextModal[str | None]):
    """Says what each choice would lose. Cancel has the focus; a choice's own key, or enter on its button, confirms.

    The result is the `Choice.answer`, or `None` for cancel.

    Args:
        line: gives the exact line that would run; it is shown when it comes, and so is the reason why it does not.
        type_to_confirm: words that must be typed before the one choice can be taken; no key confirms then.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "cancel", "cancel"),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]
    AUTO_FOCUS = "#cancel"

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        glyphs: Glyphs,
        line: Callable[[], Awaitable[str]] | None = None,
        type_to_confirm: str = "",
    ) -> None:
        super().__init__()
        self._typed = Input(id="typed", compact=True) if type_to_confirm else None
        self._wanted = type_to_confirm
        self._line = line
        self._title = title
        self._choices = tuple(choices)
        self._glyphs = glyphs
        self._drawn_at = math.inf
        """On Textual's clock of keys."""

    def compose(self) -> ComposeResult:
        """Title, losses, buttons."""
        with Vertical(id="dialog"):
            yield Static(words((self._title, "bold")), id="dialog-title")
            with DialogText(classes="-single" if len(self._choices) == 1 else ""):
                for choice in self._choices:
                    if len(self._choices) > 1:
                        yield Static(words((choice.label, "bold underline")), classes="dialog-choice")
                    for loss in choice.losses or ("Nothing is lost.",):
                        yield Static(words(f"{self._glyphs.warning} {loss}"), classes="dialog-loss")
                if self._line is not None:
                    yield Static(words("Asking the box for the exact line."), id="dialog-line")
            with Vertical(id="dialog-foot"):
                yield from self._foot()

    def _foot(self) -> ComposeResult:
        """What is in sight however long the text is."""
        if self._typed is not None:
            text = f"An extraction runs. To go on, type the name of the host: {self._wanted}"
            yield Static(words((text, "bold")), id="dialog-wanted")
            yield self._typed
        with Horizontal(id="dialog-buttons"):
            yield Button("Cancel (esc)", id="cancel", compact=True)
            for number, choice in enumerate(self._choices):
                how = choice.key.shown if self._typed is None else "enter"
                label = words(f"{choice.label} ({how})")
                button = Button(label, id=f"choice-{number}", variant="error", compact=True)
                button.disabled = self._typed is not None
                yield button

    def on_resize(self) -> None:
        """Buttons that do not fit beside each other lie below each other."""
        row = self.query_one("#dialog-buttons", Horizontal)
        needed = sum(len(str(button.label)) + _BUTTON_CELLS for button in row.query(Button))
        row.set_class(needed > row.size.width > 0, "-stacked")

    def on_mount(self) -> None:
        """Ask for the line."""
        self.call_after_refresh(self._drawn)
        if self._typed is not None:
            self.set_focus(self._typed)  # at once: the next key is for it
        if self._line is not None:
            self.run_worker(self._show_line(self._line), name="line", exit_on_error=False)

    def _drawn(self) -> None:
        self._drawn_at = time.monotonic()

    async def _show_line(self, line: Callable[[], Awaitable[str]]) -> None:
        try:
            text = await line()
        except Exception as error:
            text = str(error)
        lines = Content("\n").join(words(one) for one in text.splitlines())
        self.query_one("#dialog-line", Static).update(lines)

    def on_key(self, event: events.Key) -> None:
        """A choice's own key confirms it. What was pressed before anybody could read the question answers nothing."""
        if event.time < self._drawn_at:
            if event.key != "escape":
                event.stop()
            return
        for choice in self._choices:
            if self._typed is None and event.key in choice.key.keys.split(","):
                event.stop()
                self.dismiss(choice.answer)
                return

    def on_input_changed(self, event: Input.Changed) -> None:
        """The button can be pressed once the words are right."""
        event.stop()
        self.query_one("#choice-0", Button).disabled = event.value.strip() != self._wanted

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter confirms what was typed, if it is right."""
        event.stop()
        if event.value.strip() == self._wanted:
            self.dismiss(self._choices[0].answer)
        else:
            text = f"{self._glyphs.failed} This is not {self._wanted}; nothing was done. esc leaves."
            self.query_one("#dialog-wanted", Static).update(words((text, "bold $text-error")))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Enter or a click."""
        event.stop()
        name = event.button.id or ""
        if name == "cancel":
            self.action_cancel()
        else:
            self.dismiss(self._choices[int(name.removeprefix("choice-"))].answer)

    def action_cancel(self) -> None:
        """Nothing happens, and that is said: enter is quickly pressed."""
        self.app.notify(f"nothing was done: {self._title.rstrip('?.')}", title="cancelled", markup=False)
        self.dismiss(None)
