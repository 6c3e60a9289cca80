"""Takes the alerts of a session to where they are wanted, by level."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from eagle3_console.events import Alert, Level
from eagle3_console.notify import webhook
from eagle3_console.notify.terminal import BELL, notification
from eagle3_console.recording import scrub
from eagle3_console.settings import AlertSettings
from eagle3_console.state import ConsoleState

_GRAVE: tuple[Level, ...] = ("info", "warning", "error")


class Notifier:
    """The channels that somebody has set. None of them can hold up or end a session.

    Args:
        wanted: the settings.
        write: puts text on the terminal; `None`: there is none.
        say: is told when a channel fails; the alert is for the screen.
    """

    def __init__(
        self, wanted: AlertSettings, write: Callable[[str], None] | None, say: Callable[[Alert], None]
    ) -> None:
        self._wanted = wanted
        self._write = write
        self._webhook: webhook.Webhook | None = None
        if wanted.webhook:
            self._webhook = webhook.Webhook(wanted.webhook, lambda why: say(webhook.fault(why)))

    def follow(self, host: str, before: ConsoleState, after: ConsoleState) -> None:
        """Tell what an event made new. What was so before the console came is on its screen, and nobody is called for it."""
        if before.snapshot is None and after.snapshot is not None:
            return
        for alert in news(before.alerts, after.alerts):
            self.tell(host, alert)

    def tell(self, host: str, alert: Alert) -> None:
        """One alert, to each channel that wants its level."""
        wanted = self._wanted
        text = ""
        if wanted.bell is not False and _enough(alert.level, "info" if wanted.bell is True else wanted.bell):
            text += BELL
        if _enough(alert.level, wanted.desktop_from):
            text += notification(wanted.desktop, line_of(host, alert), os.environ)
        if text and self._write is not None:
            self._write(text)
        if self._webhook is not None and alert.cause != webhook.FAULT and _enough(alert.level, wanted.webhook_from):
            self._webhook.put(webhook.message(host, alert))

    async def close(self) -> None:
        """Wait, not long, for what is still to be posted."""
        if self._webhook is not None:
            await self._webhook.close()


def _enough(level: Level, least: Level) -> bool:
    return _GRAVE.index(level) >= _GRAVE.index(least)


def line_of(host: str, alert: Alert) -> str:
    """An alert in one line, without secrets: it leaves the console."""
    return scrub.text(f"{host}: {alert.level}: {alert.text}")


def news(before: Sequence[Alert], after: Sequence[Alert]) -> list[Alert]:
    """Alerts that were added, oldest first. Both lists are one list that grows at its end and is cut at its beginning."""
    if before is after:
        return []
    last = before[-1] if before else None
    added: list[Alert] = []
    for alert in reversed(after):
        if alert is last:
            break
        added.append(alert)
    return added[::-1]
