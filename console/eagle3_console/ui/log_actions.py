"""What the keys do in the log: search, filter, follow, save, copy."""

from __future__ import annotations

import os
from pathlib import Path

from eagle3_console import units
from eagle3_console.loglines import save_new
from eagle3_console.ui.base import ConsoleBase


class LogActions(ConsoleBase):
    """Actions of panel 4."""

    def action_search(self) -> None:
        """Type a search."""
        self.dashboard.focus_panel(4)
        self.log_panel.open_search()

    def action_log_filter(self) -> None:
        """Type what the lines that are shown must have; nothing typed shows all."""
        self.dashboard.focus_panel(4)
        self.log_panel.open_search(filtering=True)

    def action_match(self, step: int) -> None:
        """To the next or previous match."""
        if self.log_panel.view.searching and not self.log_panel.view.next_match(step):
            self.notify("nothing in the log matches")

    def action_follow(self) -> None:
        """Follow the log's end, or stand still."""
        view = self.log_panel.view
        if view.following:
            view.pause()
        else:
            view.follow()

    def action_log_top(self) -> None:
        """Oldest line."""
        self.log_panel.view.head()

    def action_log_end(self) -> None:
        """Newest line, and follow."""
        self.log_panel.view.follow()

    def action_log_side(self, halves: int) -> None:
        """Sideways in long lines."""
        self.log_panel.view.action_side(halves)

    def action_log_level(self) -> None:
        """Only what is grave."""
        self.log_panel.next_level()

    def action_log_rank(self) -> None:
        """Only one rank."""
        if not self.log_panel.next_rank():
            self.notify("no line of this log says its rank: the server has one")

    def action_log_phase(self) -> None:
        """Only one phase of the server."""
        if not self.log_panel.next_phase():
            self.notify("no phase of this log is known: no server of ours wrote it, or its lines have no date")

    def action_log_cause(self) -> None:
        """To the root cause."""
        snapshot = self.state.snapshot
        log = snapshot.server.log if snapshot is not None else None
        cause = (log.root_cause or log.refused) if log is not None else None
        if cause is None:
            self.notify("the log names no cause of a failure")
        elif self.log_panel.go_to_cause(cause):
            self.dashboard.focus_panel(4)
        else:
            text = (
                f"not among the lines here: {cause}; 'server log {self.target} --root-cause' looks in all of the file"
            )
            self.notify(text, markup=False)

    def action_log_save(self) -> None:
        """Into a file of its own in the directory that the console was started in."""
        text = self.log_panel.text()
        if not text:
            self.notify("there is nothing to save")
            return
        stem = self.log_panel.job or "server"
        try:
            path = save_new(Path.cwd(), stem, text)
        except OSError as error:
            self.notify(f"the log cannot be saved in {Path.cwd()}: {error.strerror}", severity="error", markup=False)
            return
        lines = units.number(text.count("\n"))
        self.notify(
            f"saved {lines} lines in {path}; all of the file: server log {self.target} --save FILE", markup=False
        )

    def action_copy(self) -> None:
        """Copy through the terminal (OSC 52)."""
        text = self.screen.get_selected_text() or self.log_panel.view.text_to_copy()
        if not text:
            self.notify("there is nothing to copy")
            return
        self.copy_to_clipboard(text)
        lines = text.count("\n") + 1
        said = f"copied {units.number(lines)} line{'s' if lines > 1 else ''}"
        if os.environ.get("TMUX"):  # by default it passes on only what its own programs copy
            save = next(key.shown for key in self.keys if key.id == "log.save")
            said += f"; if it does not arrive: tmux set -s set-clipboard on, or {save} writes a file"
        self.notify(said)
