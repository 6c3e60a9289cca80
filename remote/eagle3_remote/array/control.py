"""The agent's calls about arrays."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

from eagle3_remote.array import slurm
from eagle3_remote.array import submit as submitting
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.array.status import ArrayReader
from eagle3_remote.protocol import ArraySpec, ArrayStatus, StopReport, Submission, TaskState
from eagle3_remote.rpc import Refused

_BRIEF_EVERY = 1.5
_BRIEF_TASKS = 64
_URGENCY = {TaskState.LOST: 0, TaskState.FAILED: 0, TaskState.STOPPED: 0, TaskState.QUEUED: 2, TaskState.FINISHED: 3}


class ArrayControl:
    """Submits, reads and stops arrays.

    Args:
        home: the box folder.
        release: the folder that holds ``eagle3_remote`` and ``eagle3_patch``.
    """

    def __init__(self, home: Path, release: Path) -> None:
        self._home, self._release = home, release
        self._reader = ArrayReader(home)
        self._lock = threading.Lock()
        self._brief: tuple[float, ArrayStatus | None] = (float("-inf"), None)

    def submit(self, spec: ArraySpec, dry_run: bool) -> Submission:
        """See `eagle3_remote.array.submit.submit`."""
        return submitting.submit(self._home, self._release, spec, dry_run=dry_run)

    def status(self, out: str | None) -> ArrayStatus | None:
        """The array that writes `out`; `None`: the last one, or `None` where there was none.

        Raises:
            Refused: there is none for `out`.
        """
        if out is not None:
            return self._reader.status(ArrayFolder.of(out))
        latest = self._reader.latest()
        return None if latest is None else self._reader.status(latest[0])

    def brief(self) -> ArrayStatus | None:
        """The last array for a snapshot, which is asked for twice a second: not read anew each time, and of its tasks only those
        that a screen has room for, first those that ended early."""
        with self._lock:
            at, now = self._brief
            if time.monotonic() - at > _BRIEF_EVERY:
                now = self.status(None)
                if now is not None:
                    ordered = sorted(now.tasks, key=lambda task: (_URGENCY.get(task.state, 1), task.index))
                    now = dataclasses.replace(now, tasks=tuple(ordered[:_BRIEF_TASKS]))
                self._brief = (time.monotonic(), now)
            return now

    def submitted_at(self) -> float | None:
        """Unix seconds of the last submission from here."""
        latest = self._reader.latest()
        return None if latest is None else latest[1]

    def stop(self, out: str | None) -> StopReport:
        """Waiting tasks leave the queue, running ones finish what is in flight.

        Raises:
            Refused: there is no array, or Slurm refuses.
        """
        now = self.status(out)
        if now is None:
            raise Refused("No array was ever submitted from here: there is nothing to stop.")
        if now.over or not now.job:
            return StopReport(now.job, False, f"No task of array {now.job} runs or waits any more.")
        try:
            slurm.cancel(now.job)
        except slurm.SlurmError as error:
            raise Refused(str(error)) from error
        return StopReport(
            now.job,
            True,
            f"Array {now.job} stops: waiting tasks left the queue, running ones finish what is in flight.",
        )
