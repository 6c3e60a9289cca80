"""ctrl+p: every action and every theme by name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.types import IgnoreReturnCallbackType

from eagle3_console.ui import themes
from eagle3_console.ui.possible import label

if TYPE_CHECKING:
    from eagle3_console.ui.app import ConsoleApp


class Actions(Provider):
    """Every key of the table as ``group: label``; what is not possible now says why."""

    async def discover(self) -> Hits:
        """All of them, the possible ones first."""
        for title, help_text, run in self._all():
            yield DiscoveryHit(title, run, help=help_text)

    async def search(self, query: str) -> Hits:
        """Those whose name has the letters of the query, then those whose explanation has its words."""
        matcher = self.matcher(query)
        for title, help_text, run in self._all():
            score = matcher.match(title) or 0.01 * (query.lower() in help_text.lower())
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, help=help_text)

    def _all(self) -> Iterator[tuple[str, str, IgnoreReturnCallbackType]]:
        app = _console(self)
        reasons = {key.id: reason for key, reason in app.impossible()}
        for key in sorted(app.keys, key=lambda key: key.id in reasons):
            if key.action == "command_palette":
                continue
            text = f"{key.help} ({key.shown})"
            if key.id in reasons:
                text = f"not now: {reasons[key.id]}"
            title = f"{key.group}: {label(key, app.state)}"
            yield title, text, functools.partial(app.run_action, key.action)


class Themes(Provider):
    """Every theme, ours first."""

    async def discover(self) -> Hits:
        """Ours; Textual's are found by their name."""
        for theme in themes.OWN:
            yield DiscoveryHit(f"theme: {theme.name}", self._take(theme.name), help=self._says(theme.name))

    async def search(self, query: str) -> Hits:
        """Those whose name has the letters of the query."""
        matcher = self.matcher(query)
        for name in themes.NAMES:
            title = f"theme: {name}"
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), self._take(name), help=self._says(name))

    def _take(self, name: str) -> IgnoreReturnCallbackType:
        return lambda: _console(self).take_theme(name)

    def _says(self, name: str) -> str:
        return themes.SAYS.get(name, "one of Textual's") + (" (now)" if name == _console(self).theme else "")


def _console(provider: Provider) -> ConsoleApp:
    from eagle3_console.ui.app import ConsoleApp

    app = provider.app
    assert isinstance(app, ConsoleApp)
    return app
