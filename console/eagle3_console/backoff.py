"""How long to wait before dialling again."""

from __future__ import annotations

import random
from collections.abc import Iterator

CEILING = 30.0


def delays(jitter: random.Random | None = None) -> Iterator[float]:
    """Seconds before each try: 0, 1, 2, 4 … 30, then 30 for ever, each but the first ± 20 %."""
    chance = jitter if jitter is not None else random.Random()
    yield 0.0
    base = 1.0
    while True:
        yield min(base, CEILING) * chance.uniform(0.8, 1.2)
        base = min(base * 2, CEILING)
