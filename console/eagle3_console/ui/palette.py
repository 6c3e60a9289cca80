"""ctrl+p: every action and every theme by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.types import IgnoreReturnCallbackType

from eagle3_console.ui import themes
from eagle3_console.ui.possible import label

if TYPE_CHECKING:
    from eagle3_console.ui.app import ConsoleApp


Entry: TypeAlias = tuple[str, str, IgnoreReturnCallbackType]
"""Title, explanation, what it does."""


class Everything(Provider):
    """Every key of the table as ``group: label``, then the themes. One provider, since the order of several is not fixed."""

    async def discover(self) -> Hits:
        """The possible keys, those that are not and why, our own themes; Textual's are found by their name."""
        for title, help_text, run in (*self._keys(), *self._themes(theme.name for theme in themes.OWN)):
            yield DiscoveryHit(title, run, help=help_text)

    async def search(self, query: str) -> Hits:
        """Those whose name has the letters of the query, then those whose explanation has its words."""
        matcher = self.matcher(query)
        for title, help_text, run in (*self._keys(), *self._themes(themes.NAMES)):
            score = matcher.match(title) or 0.01 * (query.lower() in help_text.lower())
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, help=help_text)

    def _keys(self) -> Iterator[Entry]:
        app = _console(self)
        reasons = {key.id: reason for key, reason in app.impossible()}
        for key in sorted(app.keys, key=lambda key: key.id in reasons):
            if key.id == "palette":
                continue
            text = f"not now: {reasons[key.id]}" if key.id in reasons else f"{key.help} ({key.shown})"
            yield f"{key.group}: {label(key, app.state)}", text, functools.partial(app.run_action, key.action)

    def _themes(self, names: Iterable[str]) -> Iterator[Entry]:
        app = _console(self)
        for name in names:
            text = themes.SAYS.get(name, "one of Textual's") + (" (now)" if name == app.theme else "")
            yield f"theme: {name}", text, functools.partial(app.take_theme, name)


def _console(provider: Provider) -> ConsoleApp:
    from eagle3_console.ui.app import ConsoleApp

    app = provider.app
    assert isinstance(app, ConsoleApp)
    return app
