"""How many bytes of rows may be in memory at once. Standard library only."""

from __future__ import annotations

import threading
import time


class Budget:
    """Bytes taken by unfinished requests, and by finished ones that wait for a writer (those are *moving*)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._moving = 0
        self._changed = threading.Condition()

    @property
    def taken(self) -> int:
        """Bytes in memory now."""
        with self._changed:
            return self._taken

    def take(self, size: int, patience: float) -> bool:
        """Take `size` bytes; waits up to `patience` seconds while writers may still give some back."""
        deadline = time.monotonic() + patience
        with self._changed:
            while self._taken + size > self.limit:
                left = deadline - time.monotonic()
                if size > self.limit or not self._moving or left <= 0:
                    return False
                self._changed.wait(left)
            self._taken += size
            return True

    def move(self, size: int) -> None:
        """A request of `size` bytes was handed to the writers."""
        with self._changed:
            self._moving += size

    def drop(self, size: int) -> None:
        """Bytes of a request that will not be written are free."""
        with self._changed:
            self._taken -= size
            self._changed.notify_all()

    def written(self, size: int) -> None:
        """A request that was handed to the writers is done with."""
        with self._changed:
            self._taken -= size
            self._moving -= size
            self._changed.notify_all()
