"""What is wrong, derived from what is known of a box by pure functions: every finding has a cause and a cure.

A finding stays found for as long as it is so; `fresh` picks what a person has not been told yet. One module a thing that
can be wrong: `disks`, `server`, `extraction`, `link`; `trend` has what changes over time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from eagle3_console.alerts.disks import Pressure, disks, pressure
from eagle3_console.alerts.extraction import EXTRACTING, extraction, of_work
from eagle3_console.alerts.link import of_link
from eagle3_console.alerts.server import patch, ranks, server
from eagle3_console.alerts.trend import Sample, sample_of, used_fraction
from eagle3_console.events import Alert
from eagle3_console.keys import SHOWN
from eagle3_console.told import SERVING
from eagle3_remote.protocol import Snapshot

__all__ = [
    "EXTRACTING",
    "REARM_AFTER",
    "SERVING",
    "Pressure",
    "Sample",
    "conditions",
    "fresh",
    "of_link",
    "of_work",
    "pressure",
    "ranks",
    "sample_of",
    "used_fraction",
]

REARM_AFTER = 300.0
"""Seconds for which a cause must be gone before it is told again: a value at its threshold is not news twice a second."""


def conditions(
    snapshot: Snapshot, at: float, history: Sequence[Sample] = (), keys: Mapping[str, str] = SHOWN
) -> tuple[Alert, ...]:
    """Everything that is so now and that a person wants to know, each with its cause.

    Args:
        at: this machine's Unix clock, for the alert's time.
        history: of the extraction that `snapshot` shows, oldest first.
        keys: id -> key as the person has it; the cures name some.
    """
    found = [
        *disks(snapshot, history, keys),
        *server(snapshot.server, snapshot.extract, keys),
        *patch(snapshot.server, keys),
        *extraction(snapshot.extract, history, keys),
    ]
    return tuple(dataclasses.replace(alert, at=at) for alert in found)


def fresh(active: Mapping[str, float], found: Iterable[Alert], at: float) -> tuple[tuple[Alert, ...], dict[str, float]]:
    """What of `found` is news, and the causes that count as told from now on.

    `active` maps each cause told to when it was last seen; a cause gone for `REARM_AFTER` may be told again.
    """
    known = {cause: seen for cause, seen in active.items() if at - seen < REARM_AFTER}
    news = []
    for alert in found:
        if alert.cause not in known:
            news.append(alert)
        known[alert.cause] = at
    return tuple(news), known
