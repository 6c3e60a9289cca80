"""How long to wait before dialling again."""

from __future__ import annotations

import random

CEILING = 30.0
HELD = 30.0
"""Seconds after which a link counts as one that held."""


class Backoff:
    """Seconds before each try: 0, 1, 2, 4 … 30, then 30 for ever, each but the first ± 20 %.

    A link that breaks again soon after it was made does not begin anew: a box whose agent dies at once, or whose
    network flaps, would be dialled several times a second.
    """

    def __init__(self, jitter: random.Random | None = None) -> None:
        self._chance = jitter if jitter is not None else random.Random()
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait before the next try."""
        tries, self._tries = self._tries, self._tries + 1
        if tries == 0:
            return 0.0
        return min(2.0 ** min(tries - 1, 10), CEILING) * self._chance.uniform(0.8, 1.2)

    def held(self, seconds: float) -> None:
        """The link stood for so long."""
        if seconds >= HELD:
            self._tries = 0
