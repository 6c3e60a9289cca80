"""Dumps that nobody waits for any more: of requests that were given up, or that came twice."""

from __future__ import annotations

import asyncio
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
            names = await asyncio.to_thread(collect.listed, lane.dump_dir)
            # asked after the listing: a request is in flight before it is sent, so its dump is never taken for a late one
            keep = set(lane.in_flight)
            lane.late -= await asyncio.to_thread(_remove, lane.dump_dir, self._runs, keep, set(lane.late), names)

    async def remove_last(self) -> None:
        """At the end: also those that come within a moment."""
        left = _LINGER
        await self.remove()
        while left > 0 and any(lane.late and lane.there for lane in self._lanes):
            await asyncio.sleep(0.1)
            left -= 0.1
            await self.remove()


def _remove(dump_dir: str, runs: list[str], keep: set[str], late: set[str], names: list[str]) -> set[str]:
    """Delete all dumps of `runs` but for `keep`; returns those of `late` that were there."""
    there = set(names)
    came = {rid for rid in late if layout.folder_name(rid) in there}
    collect.sweep(dump_dir, runs, keep, names)
    return came
