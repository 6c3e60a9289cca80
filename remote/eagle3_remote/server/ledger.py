"""What the supervisor notes of a server job while its processes live, for when they are gone: which schedulers there
were, and which shared-memory segments they used. It is evidence for sentences and for files, never for signals."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from eagle3_remote.box import shm
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs, stopping
from eagle3_remote.server import processes
from eagle3_remote.server.processes import SEEN_FILE

SHM_FILE = "shm.json"
"""In the run directory: the segments that were there before the job, and those that its processes used."""
SEGMENTS_EVERY = 10.0
"""Seconds between two looks at the segments: a GPU process has ten thousand mappings."""


class Ledger:
    """Notes one job; writes only what is news."""

    def __init__(self, job: jobs.Job) -> None:
        self._job = job
        self._leader: int | None = None
        self._schedulers: list[dict[str, Any]] = []
        self._looked = float("-inf")

    def begin(self) -> None:
        """Before the job's first process is started, and once only: a restart finds segments that are the job's."""
        if not (self._job.run_dir / SHM_FILE).exists():
            _write(self._job.run_dir / SHM_FILE, {"before": _plain(shm.present()), "ours": []})

    def tick(self) -> processes.Look:
        """Look once; call it every few seconds."""
        now = processes.look(self._job)
        leader = self._job.leader
        if leader is None:
            return now
        if leader.pid != self._leader:
            self._leader, self._schedulers = leader.pid, []
        known = {one["pid"] for one in self._schedulers}
        news = [
            {"pid": one.pid, "start_time": one.start_time, "rank": one.rank}
            for one in now.role("scheduler")
            if one.pid not in known
        ]
        if news:
            self._schedulers += news
            _write(self._job.run_dir / SEEN_FILE, {"leader": leader.pid, "schedulers": self._schedulers})
        if time.monotonic() - self._looked > SEGMENTS_EVERY:
            self._looked = time.monotonic()
            note_segments(self._job)
        return now


def note_segments(job: jobs.Job) -> None:
    """Add the segments that the job's living processes use now to those noted before."""
    record = read_json(job.run_dir / SHM_FILE)
    if record is None:
        return  # what was there before the job is not known: nothing can be proven
    used = shm.used_by(stat.pid for stat in stopping.members(job))
    old = _segments(record, "ours")
    if not used <= old:
        _write(job.run_dir / SHM_FILE, {**record, "ours": _plain(used | old)})


def segments(job: jobs.Job) -> set[shm.Segment]:
    """The segments that are provably the job's."""
    record = read_json(job.run_dir / SHM_FILE) or {}
    return _segments(record, "ours") - _segments(record, "before")


def _segments(record: dict[str, Any], key: str) -> set[shm.Segment]:
    try:
        return {shm.Segment(str(name), int(inode)) for name, inode in record.get(key, ())}
    except (TypeError, ValueError):
        return set()


def _plain(segments: set[shm.Segment]) -> list[list[object]]:
    return [[one.name, one.inode] for one in sorted(segments)]


def _write(path: Path, value: dict[str, Any]) -> None:
    try:
        write_atomic(path, json.dumps(value).encode())
    except OSError as error:  # a full disk costs the note, not the job
        os.write(2, f"eagle3: {path.name} could not be written: {error.strerror}\n".encode())
