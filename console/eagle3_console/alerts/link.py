"""The link to the box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eagle3_console import units
from eagle3_console.events import Alert, Connection

LOST_AFTER = 60.0
"""Seconds without a link before it is news: shorter breaks mend themselves."""


def of_link(connection: Connection, lost_since: float | None, keys: Mapping[str, str]) -> Iterator[Alert]:
    """What is wrong with the link.

    Args:
        lost_since: Unix seconds, this machine's clock, since there is none; `None`: there is one.
    """
    if connection.live or lost_since is None:
        return
    at, key = connection.since, keys["reconnect"]
    again = f"mend it, then {key} on the screen, or the command again where there is none"
    if connection.word == "refused":
        cure = f"{again}: nothing is tried by itself, so that nobody is locked out"
        yield Alert(at, "error", "link-refused", f"the box refuses the link: {connection.sentence}", cure)
    elif connection.word == "stopped":
        yield Alert(at, "error", "link-stopped", f"the box cannot be watched: {connection.sentence}", again)
    elif at - lost_since >= LOST_AFTER:
        text = f"no link to the box for {units.duration(at - lost_since)}: {connection.sentence}"
        cure = f"what runs on the box goes on; it is dialled again and again, {key} tries now"
        yield Alert(at, "error", "link-lost", text, cure)
