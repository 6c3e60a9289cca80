"""A window with the result of something that took a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from eagle3_console import units
from eagle3_console.ui.draw import words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.widgets.text_modal import DialogText, TextModal
from eagle3_remote.protocol import VerifyReport


class ReportDialog(TextModal[None]):
    """A verdict and lines below it; nothing is asked."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "close")]

    def __init__(self, title: Content, lines: Sequence[Content]) -> None:
        super().__init__()
        self._title = title
        self._lines = tuple(lines)

    @classmethod
    def of_verify(cls, report: VerifyReport, glyphs: Glyphs, keys: Mapping[str, str]) -> ReportDialog:
        """Counts first, then what comes next, then every fault that was sent along.

        Args:
            keys: id -> key, as this person has them.
        """
        good = (f"{glyphs.done} verified: every file is as the manifest says", "bold $text-success")
        faults = "1 fault" if report.problem_count == 1 else f"{units.number(report.problem_count)} faults"
        bad = (f"{glyphs.failed} verified: {faults}", "bold $text-error")
        lines = [
            words(report.dataset),
            words(f"samples {units.number(report.samples)}   tokens {units.number(report.tokens)}"),
            words(f"{units.gb_and_gib(report.bytes)} read in {units.duration(report.seconds)}"),
        ]
        if not report.complete:
            lines.append(words("Not a whole dataset yet: an extraction under way or stopped leaves a part."))
        if report.ok and report.complete:
            lines.append(words(f"What was made, and what comes next: {keys['report']}, once this is closed."))
        if report.to_remake:
            what = "file that is" if report.to_remake == 1 else f"{units.number(report.to_remake)} files that are"
            lines.append(
                words(f"{keys['extract.start']} makes the {what} missing or damaged again, while the server runs.")
            )
        lines += [words("")] if report.problems or report.probes or report.unchecked else []
        lines += [words((f"{one.where}: ", "bold"), f"{one.kind}: {one.reason}") for one in report.problems]
        if report.problem_count > len(report.problems):
            lines.append(words(f"and {units.number(report.problem_count - len(report.problems))} more"))
        lines += [words(f"live server, {one.name}: {one.result}: {one.sentence}") for one in report.probes]
        lines += [words(f"not checked: {text}") for text in report.unchecked]
        return cls(words(good if report.ok else bad), lines)

    def compose(self) -> ComposeResult:
        """Verdict, lines, the one button."""
        with Vertical(id="dialog", classes="-calm"):
            yield Static(self._title, id="dialog-title")
            with DialogText(classes="-single"):
                for line in self._lines:
                    yield Static(line, classes="dialog-loss")
            with Vertical(id="dialog-foot"), Horizontal(id="dialog-buttons"):
                yield Button("Close (esc)", id="cancel", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Enter or a click."""
        event.stop()
        self.dismiss(None)

    def action_leave(self) -> None:
        """Back to the dashboard."""
        self.dismiss(None)
