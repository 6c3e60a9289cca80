"""A line to type into whose keys act in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Input

PATIENCE = 2.0
"""Seconds after which a key no longer waits for the keys before it."""


class OrderedInput(Input):
    """One line; keys act in the order in which they came, however fast.

    Textual alone does not see to that: letters wait in the line's queue, and a bound key acts when it has come round to the
    application, by then perhaps on another widget. So here the keys that edit act in the line's own queue, like letters.
    Those that lead out of it, here and around it, have priority, with which the application takes no key before they are
    done; and they begin when the line has `caught_up`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "take", "next", show=False, priority=True)]

    async def caught_up(self) -> None:
        """Return when every key and paste that came before has had its effect."""
        done = asyncio.Event()
        if self.call_later(done.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), PATIENCE)

    async def on_key(self, event: events.Key) -> None:
        """A key that edits acts here and now."""
        bound = self.screen.active_bindings.get(event.key)
        if bound is not None and bound.node is self and bound.enabled and not bound.binding.priority:
            event.stop()
            event.prevent_default()
            await self.run_action(bound.binding.action)

    async def action_take(self) -> None:
        """What was typed is taken."""
        await self.caught_up()
        self.take()

    def take(self) -> None:
        """What enter does."""
        raise NotImplementedError
