"""Which samples of an input are asked for, and in which order."""

from __future__ import annotations

import dataclasses
import hashlib
import math

from eagle3_remote.extract.shards import WHOLE, Shard

EVERYWHERE = 2**63 - 1
"""No place is beyond it."""


@dataclasses.dataclass(frozen=True)
class Order:
    """Which samples are asked for, and in which order."""

    limit: int = 0
    """The first so many of the whole input, or with a seed of its shuffled order, whatever the shard; 0: all."""
    seed: int | None = None
    shard: Shard = WHOLE
    on_bad: str = "skip"
    duplicates: str = "keep"
    """``skip``: a sample that repeats the ids of an earlier one is refused."""

    @property
    def whole_first(self) -> bool:
        """Whether nothing can be sent before all of the input was read."""
        return self.seed is not None or self.on_bad == "stop"

    @property
    def looks_at_all(self) -> bool:
        """Whether a shard has to know the other shards' samples: one that repeats theirs is refused."""
        return self.duplicates == "skip" and self.shard != WHOLE

    def takes(self, number: int) -> bool:
        """Whether item `number` is looked at."""
        return self.looks_at_all or self.shard.has(number)


def place(line: int, seed: int | None) -> int:
    """What samples are ordered by: their line, or 63 bits of BLAKE2b over seed and line; the same on every machine and shard."""
    if seed is None:
        return line
    return int.from_bytes(hashlib.blake2b(f"{seed}:{line}".encode(), digest_size=8).digest(), "big") >> 1


def last_place(total: int, limit: int, seed: int) -> int:
    """The place of the `limit`-th of lines 1 to `total` in the order by `seed`; one pass, in flat memory."""
    if limit >= total:
        return EVERYWHERE
    spread = 8 * math.sqrt(total)
    while True:
        # Places are spread evenly: only those near the expected one are looked at closely.
        low, high = (int(min(max(count / total, 0.0), 1.0) * 2**63) for count in (limit - spread, limit + spread))
        before, near = 0, list[int]()
        for line in range(1, total + 1):
            at = place(line, seed)
            if at < low:
                before += 1
            elif at < high:
                near.append(at)
        if before < limit <= before + len(near):
            return sorted(near)[limit - before - 1]
        spread *= 8
