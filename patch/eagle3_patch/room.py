"""How many bytes of dumps may lie in the dump directory at once. Standard library only."""

from __future__ import annotations

import os
import threading
import time

_LOOK = 0.05
"""Seconds between two looks whether folders were taken away."""


class Room:
    """Bytes of the folders that are being written, or were and are not taken away yet. Shared by the writers.

    Args:
        limit: bytes; 0: as many as the file system takes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._coming: dict[str, int] = {}
        self._lying: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, folder: str, size: int, patience: float) -> bool:
        """Reserve `size` bytes for `folder`; waits up to `patience` seconds for others to be taken away.

        A folder larger than the whole limit is let in when nothing else lies there.
        """
        if not self.limit:
            return True
        deadline = time.monotonic() + patience
        while True:
            with self._lock:
                if self._held() + size > self.limit:
                    self._lying = {path: held for path, held in self._lying.items() if os.path.exists(path)}
                others = self._held()
                if not others or others + size <= self.limit:
                    self._coming[folder] = size
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK)

    def lies(self, folder: str) -> None:
        """The folder is there: from now on its absence means that it was taken away."""
        if not self.limit:
            return
        with self._lock:
            self._lying[folder] = self._coming.pop(folder, 0)

    def give(self, folder: str) -> None:
        """Nothing came of it."""
        with self._lock:
            self._coming.pop(folder, None)

    def _held(self) -> int:
        return sum(self._coming.values()) + sum(self._lying.values())
