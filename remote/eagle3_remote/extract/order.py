"""Which samples of an input are asked for, and in which order."""

from __future__ import annotations

import dataclasses

from eagle3_remote.extract.shards import WHOLE, Shard


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
