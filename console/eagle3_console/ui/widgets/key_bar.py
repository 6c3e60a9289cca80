"""The footer: the keys that work now, as many as there is room for; a click does what the key does."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content

from eagle3_console.keys import Key
from eagle3_console.state import ConsoleState
from eagle3_console.ui.draw import View, words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.possible import footer, label, why_not
from eagle3_console.ui.widgets.panel import Bar

_LAST = ("help", "palette", "detach")
"""These stay, however narrow it is."""
_GAP = "  "
_ROOMY = 60


class KeyBar(Bar):
    """One line of keys."""

    def __init__(self, keys: Sequence[Key], readonly: bool, glyphs: Glyphs, state: ConsoleState, now: float) -> None:
        super().__init__(self._line, glyphs, state, now)
        self.id = "keys"
        self._keys = tuple(keys)
        self._readonly = readonly

    def _hidden(self) -> Content:
        """How many panels have no room."""
        screen = self.screen
        count = 0 if screen.has_class("-zoomed") else hidden_panels(screen.size.height)
        if not count:
            return Content("")
        what = f"{count} panel{'s' if count > 1 else ''}" if screen.size.width >= _ROOMY else f"{count}"
        return words((f" {what} hidden ", "reverse"))

    def _line(self, view: View) -> list[Content]:
        hidden = self._hidden()
        room = view.width - hidden.cell_length
        items = [_item(key, view.state) for key in chosen(self._keys, view.state, self._readonly, room)]
        return [hidden + " " + Content(_GAP).join(items)]

    async def on_click(self, event: events.Click) -> None:
        """The key under the mouse."""
        hidden = self._hidden().cell_length
        at = hidden + 1
        for key in chosen(self._keys, self._state, self._readonly, self.size.width - hidden):
            end = at + _item(key, self._state).cell_length
            if at <= event.x < end:
                await self.app.run_action(key.action)
                return
            at = end + len(_GAP)


def hidden_panels(height: int) -> int:
    """How many panels the style sheet leaves out at this height: the log first, then the box, then the server."""
    return sum(height < least for least in (20, 14, 10))


def chosen(keys: Sequence[Key], state: ConsoleState, readonly: bool, width: int) -> list[Key]:
    """The keys that work now and for which there is room, the least needed left out first."""
    able = [key for key in keys if key.footer and not (key.act and why_not(key.act, state, readonly))]
    for fewer in _ever_fewer(able, state):
        if 1 + sum(_item(key, state).cell_length + len(_GAP) for key in fewer) - len(_GAP) <= width:
            return fewer
    return [key for key in able if key.id in _LAST]


def _ever_fewer(keys: Sequence[Key], state: ConsoleState) -> list[list[Key]]:
    """All, then without one after the other: the least needed first, of those equally needed the last of the table."""
    may_go = [key for key in reversed(keys) if key.id not in _LAST]
    least_needed = sorted(may_go, key=lambda key: -footer(key, state))
    dropped = [{key.id for key in least_needed[:count]} for count in range(len(least_needed) + 1)]
    return [[key for key in keys if key.id not in left_out] for left_out in dropped]


def _item(key: Key, state: ConsoleState) -> Content:
    return words((key.shown, "bold $text-accent"), f" {label(key, state)}")
