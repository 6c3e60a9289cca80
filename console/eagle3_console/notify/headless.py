"""Alerts where there is no screen: told in lines with what else is narrated, and sent to the same channels."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable

from eagle3_console.events import AlertRaised, Event
from eagle3_console.notify.notifier import Notifier, news
from eagle3_console.settings import AlertSettings
from eagle3_console.state import initial, reduce

Emit = Callable[[Event], None]


def terminal_writer() -> Callable[[str], None] | None:
    """Puts text on the terminal behind standard error; `None`: it is none that rings or understands sequences."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return None

    def write(text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the work is not
            stream.write(text)
            stream.flush()

    return write


@contextlib.asynccontextmanager
async def alerting(emit: Emit, host: str, wanted: AlertSettings) -> AsyncIterator[Emit]:
    """`emit`, and what a screen would show as an alert is an event of its own, and sent."""
    state = initial(time.time(), host)
    notifier = Notifier(wanted, terminal_writer(), lambda alert: take(AlertRaised(alert)))

    def take(event: Event) -> None:
        nonlocal state
        before, state = state, reduce(state, event)
        emit(event)
        if not isinstance(event, AlertRaised):
            for alert in news(before.alerts, state.alerts):
                emit(AlertRaised(alert))
        notifier.follow(host, before, state)

    try:
        yield take
    finally:
        await notifier.close()
