"""Host memory for rows: a fixed number of bytes, cut into slabs. Standard library only; any kind of slab."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

SLAB_BYTES = 8 * 1024**2
"""One copy from the GPU. Below about 1 MiB the copies themselves become the cost, above it only the waste in last slabs grows."""
LEAST_SLABS = 64
"""A small limit is cut into so many at least."""
SEGMENT_BYTES = 256 * 1024**2
"""Pinned at once: pinning takes the longer the more often it is asked for. It is never given back."""


class Pool(Generic[T]):
    """Slabs taken by unfinished requests, and by finished ones that wait for a writer (those are *moving*).

    Segments and slabs are powers of two, which PyTorch's pinned allocator does not round up: what is pinned is never more
    than the limit.

    Args:
        limit: bytes in all.
        make: ``make(bytes, slab_bytes)`` allocates a segment and cuts it into slabs.
    """

    def __init__(self, limit: int, make: Callable[[int, int], Sequence[T]]) -> None:
        self.slab_bytes = min(SLAB_BYTES, _power_of_two(max(limit // LEAST_SLABS, 1)))
        self._capacity = limit // self.slab_bytes
        """Slabs in all."""
        self._make = make
        self._free: list[T] = []
        self._made = 0
        self._taken = 0
        self._moving = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """Bytes of all slabs that there may ever be."""
        return self._capacity * self.slab_bytes

    @property
    def made(self) -> int:
        """Bytes of the slabs that exist."""
        return self._made * self.slab_bytes

    @property
    def taken(self) -> int:
        """Bytes of the slabs that are in use now."""
        with self._changed:
            return self._taken * self.slab_bytes

    def take(self, count: int, patience: float) -> list[T] | None:
        """`count` slabs; waits up to `patience` seconds while writers may still give some back.

        Returns:
            `None`: there is no room.
        """
        deadline = time.monotonic() + patience
        with self._changed:
            while self._taken + count > self._capacity:
                left = deadline - time.monotonic()
                if count > self._capacity or not self._moving or left <= 0:
                    return None
                self._changed.wait(left)
            while len(self._free) < count:
                self._grow()
            self._taken += count
            taken = self._free[-count:]
            del self._free[-count:]
            return taken

    def move(self, count: int) -> None:
        """So many slabs were handed to the writers."""
        with self._changed:
            self._moving += count

    def drop(self, slabs: Iterable[T]) -> None:
        """Slabs of a request that will not be written are free. A copy into them may still be on its way: the next one
        into them follows it on the same stream."""
        with self._changed:
            self._give(list(slabs))

    def written(self, slabs: Iterable[T]) -> None:
        """A request that was handed to the writers is done with."""
        given = list(slabs)
        with self._changed:
            self._moving -= len(given)
            self._give(given)

    def _give(self, slabs: list[T]) -> None:
        self._taken -= len(slabs)
        self._free += slabs
        self._changed.notify_all()

    def _grow(self) -> None:
        left = (self._capacity - self._made) * self.slab_bytes
        slabs = self._make(min(SEGMENT_BYTES, _power_of_two(left)), self.slab_bytes)
        self._made += len(slabs)
        self._free += slabs


def _power_of_two(number: int) -> int:
    """The largest one that is not above `number`."""
    return 1 << (number.bit_length() - 1)
