"""Which part of the input one of several extractions takes; they share nothing.

Shard i of n takes the items whose number leaves i when it is counted from 0 and divided by n: of nearly the same size and length
distribution for any n, and known without knowing how long the input is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from eagle3_remote.extract.errors import ExtractionError

_ENVIRONMENT = (
    ("SLURM_PROCID", ("SLURM_NTASKS",)),
    ("JOB_COMPLETION_INDEX", ("JOB_COMPLETIONS", "JOB_COMPLETION_COUNT")),
    ("RANK", ("WORLD_SIZE",)),
)


@dataclasses.dataclass(frozen=True)
class Shard:
    """Part `index` (from 0) of `count`."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, number: int) -> bool:
        """Whether item `number` (from 1) is this shard's."""
        return (number - 1) % self.count == self.index

    def share(self, total: int) -> int:
        """How many of `total` items are this shard's."""
        return (total - self.index + self.count - 1) // self.count


WHOLE = Shard(0, 1)


def parse(text: str) -> Shard:
    """``i/n``, i from 0.

    Raises:
        ExtractionError: it is not.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if found is None or not int(found[1]) < int(found[2]):
        raise ExtractionError(f"A shard is i/n with i from 0 to n-1, for example 0/4, not {text!r}.")
    return Shard(int(found[1]), int(found[2]))


def from_environment(env: Mapping[str, str]) -> tuple[Shard, str]:
    """The shard that Slurm, Kubernetes or torchrun gave this process, and the names it was read from; `WHOLE` and "" where none did.

    Kubernetes names only the index of an indexed job: the number of completions must be given beside it.

    Raises:
        ExtractionError: an index without a number, or values that cannot be.
    """
    for index, counts in _ENVIRONMENT:
        if index not in env:
            continue
        count = next((name for name in counts if name in env), None)
        if count is None:
            if index != "JOB_COMPLETION_INDEX":
                continue
            raise ExtractionError(
                f"{index} is {env[index]}, but nothing says of how many: set {counts[0]} to the job's completions, or give --shard i/n."
            )
        try:
            shard = parse(f"{env[index]}/{env[count]}")
        except ExtractionError:
            raise ExtractionError(
                f"{index}={env[index]} and {count}={env[count]} name no shard: give --shard i/n."
            ) from None
        if shard.count > 1:
            return shard, f"{index} and {count}"
    return WHOLE, ""
