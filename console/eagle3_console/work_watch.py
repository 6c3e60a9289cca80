"""Watching the long pieces of work on the box's disks that somebody started: exports, merges, removals."""

from __future__ import annotations

import asyncio
import time

from eagle3_console.errors import BoxRefused
from eagle3_console.events import WorkSeen
from eagle3_console.watch import Watcher
from eagle3_remote.protocol import JobState, JobStatus, WorkStatus

KINDS = ("export", "merge", "reclaim")
_EVERY = 5.0
"""Seconds between two looks while none runs: every run directory is looked into."""
_EVERY_RUNNING = 1.0


class WorkWatch:
    """Emits `WorkSeen` while something runs, and once more when it has ended.

    Args:
        watcher: the calls go through it, so that a lost link is dialled again once for all.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._followed: tuple[str, ...] = ()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY_RUNNING if self._followed else _EVERY)

    async def look(self) -> None:
        """One look."""
        jobs = await self._watcher.call_list("jobs.list", {"kind": None}, JobStatus)
        alive = [job.id for job in jobs if job.kind in KINDS and job.state in (JobState.RUNNING, JobState.STARTING)]
        wanted = dict.fromkeys([*self._followed, *alive])
        seen = []
        for job in wanted:
            try:
                seen.append(await self._watcher.call("work", {"job": job}, WorkStatus))
            except BoxRefused:
                continue  # its run directory was cleaned away meanwhile
        if wanted:
            self._watcher.emit(WorkSeen(tuple(seen), time.time()))
        self._followed = tuple(alive)
