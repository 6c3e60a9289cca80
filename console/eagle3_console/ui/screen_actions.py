"""What the keys do with the screen itself: panels, alerts, help, pictures, leaving."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.command import CommandPalette

from eagle3_console import settings
from eagle3_console.keys import Key
from eagle3_console.loglines import save_new
from eagle3_console.ui.base import ConsoleBase
from eagle3_console.ui.widgets.help import HelpScreen


class ScreenActions(ConsoleBase):
    """Actions that touch neither box nor log."""

    def impossible(self) -> Iterable[tuple[Key, str]]:
        """The keys that would do nothing now, each with the reason."""
        raise NotImplementedError

    def farewell(self) -> str:
        """What goes on without the console, and how to come back to it."""
        raise NotImplementedError

    def action_panel(self, number: int) -> None:
        """Focus a panel."""
        self.dashboard.focus_panel(number)

    def action_zoom(self) -> None:
        """One panel alone, or all."""
        self.dashboard.toggle_zoom()

    def action_alerts(self) -> None:
        """Panel 5 alone, with every alert; a second time back to all."""
        self.dashboard.toggle_alerts()

    async def action_back(self) -> None:
        """Leave the search line, then the search, then the filter of the log, then the zoom."""
        if self.log_panel.search_open or self.log_panel.view.searching:
            await self.log_panel.caught_up()
            self.log_panel.close_search(forget=True)
        elif self.log_panel.no_filter():
            pass
        elif self.dashboard.has_class("-zoomed"):
            self.dashboard.zoom(None)

    async def action_help(self) -> None:
        """Every key."""
        reasons = {key.id: reason for key, reason in self.impossible()}
        await self.push_screen(HelpScreen(self.keys, reasons, self.again))

    async def action_palette(self) -> None:
        """Everything by name."""
        await self.push_screen(CommandPalette(id="--command-palette"))

    def take_theme(self, name: str) -> None:
        """Another theme, until the screen closes."""
        self.theme = name
        self.notify(f'theme = "{name}" in {settings.path()} keeps it', title=name, markup=False)

    def action_screenshot_here(self) -> None:
        """A picture of the screen into a new file in the directory that the console was started in."""
        try:
            path = save_new(Path.cwd(), "eagle3-console", self.export_screenshot(), suffix=".svg")
        except OSError as error:
            text = f"a picture cannot be saved in {Path.cwd()}: {error.strerror}"
            self.notify(text, severity="error", markup=False)
            return
        self.notify(f"saved {path}", title="screenshot", markup=False)

    def action_help_quit(self) -> None:
        """ctrl+c: people fear that it stops the run."""
        self.notify(f"ctrl+c stops nothing; {self.key_of('detach').shown} detaches, and what runs on the box goes on")

    def action_detach(self) -> None:
        """Leave; nothing on the box stops."""
        self.exit(message=self.farewell())

    async def action_quit(self) -> None:
        """ctrl+q is Textual's own key for the same."""
        self.action_detach()
