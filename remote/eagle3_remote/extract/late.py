"""Dumps that nobody waits for any more: of requests that were given up, or that came twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from eagle3_patch import layout
from eagle3_remote.extract import collect
from eagle3_remote.extract.lane import Lane

_LINGER = 3.0
"""Seconds that the end waits for dumps of requests that were given up, so that none is left lying."""


class LateDumps:
    """Removes them from the lanes' dump directories.

    Args:
        runs: of this dataset; folders of other requests are left alone.
    """

    def __init__(self, lanes: Sequence[Lane], runs: list[str]) -> None:
        self._lanes, self._runs = lanes, runs

    async def remove_often(self, every: float) -> None:
        """Again and again, until cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.remove()

    async def remove(self) -> None:
        """Once."""
        for lane in self._lanes:
            lane.late -= await asyncio.to_thread(
                _remove, lane.dump_dir, self._runs, set(lane.in_flight), set(lane.late)
            )

    async def remove_last(self) -> None:
        """At the end: also those that come within a moment."""
        left = _LINGER
        await self.remove()
        while left > 0 and any(lane.late and lane.there for lane in self._lanes):
            await asyncio.sleep(0.1)
            left -= 0.1
            await self.remove()


def _remove(dump_dir: str, runs: list[str], keep: set[str], late: set[str]) -> set[str]:
    """Delete all dumps of `runs` but for `keep`; returns those of `late` that were there."""
    came = {rid for rid in late if os.path.exists(os.path.join(dump_dir, layout.folder_name(rid)))}
    collect.sweep(dump_dir, runs, keep)
    return came
