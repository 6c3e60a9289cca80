"""The box's own numbers for a snapshot. nvidia-smi is asked in the background, so that a slow one delays nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from eagle3_remote.box import doctor
from eagle3_remote.protocol import Gauges, Gpu, decode

GPU_EVERY = 2.0
"""Seconds between two looks at the GPUs."""


class GaugeReader:
    """Reads the box; remembers only the last row of each GPU."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gpus: tuple[Gpu, ...] = ()
        self._asked = 0.0
        self._asking = False

    def read(self, paths: Mapping[str, str]) -> Gauges:
        """Now. `paths`: label -> path whose file system is shown."""
        self._refresh()
        seen = decode(Gauges, doctor.gauges(dict(paths), with_gpus=False))
        with self._lock:
            gpus = self._gpus
        return Gauges(**{**vars(seen), "gpus": gpus})

    def _refresh(self) -> None:
        with self._lock:
            if self._asking or time.monotonic() - self._asked < GPU_EVERY:
                return
            self._asking = True
        threading.Thread(target=self._ask, name="nvidia-smi", daemon=True).start()

    def _ask(self) -> None:
        try:
            rows = tuple(decode(Gpu, row) for row in doctor.gpus())
        finally:
            with self._lock:
                self._asking = False
                self._asked = time.monotonic()
        with self._lock:
            self._gpus = rows
