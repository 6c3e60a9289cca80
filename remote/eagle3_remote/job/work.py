"""Long pieces of work as detached jobs (removing, joining, exporting): their progress file, its reading, and their orderly end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import time
from pathlib import Path

from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import JobState, StopReport, WorkState, WorkStatus, decode, encode
from eagle3_remote.rpc import Refused

EXIT_GOOD, EXIT_NOT_FIT = 0, 5
_EVERY = 0.5
_STOP_WAIT = 30.0
_RATE_FROM = 2.0
"""Seconds of work before a forecast is worth something."""


class Progress:
    """The worker's side: keeps ``progress.json`` in the run directory. TERM and INT ask the work to stop."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "progress.json"
        self._began = self._counting = time.monotonic()
        self._written = 0.0
        self._skipped = 0
        self.status = WorkStatus(WorkState.RUNNING, "It starts.")
        self.stop_asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self.stop_asked = True

    def say(self, sentence: str, *, total: int = 0, bytes_total: int = 0) -> None:
        """What is done now, and how much of it there is."""
        print(sentence, flush=True)  # noqa: T201 - the job's log
        self._counting, self._skipped = time.monotonic(), self.status.done
        self.status = dataclasses.replace(
            self.status,
            sentence=sentence,
            total=total or self.status.total,
            bytes_total=bytes_total or self.status.bytes_total,
        )
        self.write()

    def moved(self, files: int, size: int = 0) -> bool:
        """So much more is done; False when the work shall stop."""
        now = self.status
        self.status = dataclasses.replace(now, done=now.done + files, bytes_done=now.bytes_done + size)
        if time.monotonic() - self._written > _EVERY:
            self.write()
        return not self.stop_asked

    def end(self, state: WorkState, sentence: str) -> None:
        """The last word."""
        print(sentence, flush=True)  # noqa: T201
        self.status = dataclasses.replace(self.status, state=state, sentence=sentence)
        self.write()

    def write(self) -> None:
        """For looking only: a full disk does not end the work."""
        now = time.monotonic()
        since, status = now - self._counting, self.status
        done, left = status.done - self._skipped, status.total - status.done
        running = status.state is WorkState.RUNNING and done > 0 and since > _RATE_FROM
        eta = left * since / done if running and left >= 0 else None
        self.status = dataclasses.replace(status, elapsed=round(now - self._began, 1), eta=eta)
        self._written = now
        with contextlib.suppress(OSError):
            write_atomic(self._path, json.dumps(encode(self.status)).encode())


def run_dir_of(argv: list[str]) -> tuple[Path, dict[str, object]]:
    """(run directory, message of its spec) of a worker started as a job."""
    run_dir = Path(argv[0])
    spec = read_json(run_dir / "spec.json") or {}
    message = spec.get("message")
    if not isinstance(message, dict):
        sys.exit(f"{run_dir} has no usable spec.json")
    return run_dir, message


def status(home: Path, job_id: str) -> WorkStatus:
    """How far a job is: its own word, corrected by whether it lives.

    Raises:
        Refused: there is no such job.
    """
    job = _job(home, job_id)
    seen = jobs.status_of(job)
    said = WorkStatus(WorkState.RUNNING, "It starts.")
    with contextlib.suppress(ValueError):  # not written yet
        said = decode(WorkStatus, read_json(job.run_dir / "progress.json") or {})
    said = dataclasses.replace(said, job=seen)
    if said.state is WorkState.RUNNING and seen.state not in (JobState.RUNNING, JobState.STARTING):
        how = f"exit code {seen.rc}" if seen.rc is not None and seen.rc >= 0 else "it was killed"
        text = f"Job {job_id} ended early ({how}); its last word was: {said.sentence} The same command goes on with it."
        return dataclasses.replace(said, state=WorkState.FAILED, sentence=text, eta=None)
    return said


def stop(home: Path, job_id: str) -> StopReport:
    """Ask a job to stop after the file in hand.

    Raises:
        Refused: there is no such job, or it belongs to somebody else.
    """
    job = _job(home, job_id)
    stopping.request_stop(job)
    try:
        signalled = stopping.terminate_leader(job)
    except PermissionError as error:
        raise Refused(f"Job {job.id} belongs to another user and cannot be stopped from here.") from error
    if not signalled:
        return StopReport(job.id, False, f"Job {job.id} had ended already; nothing was signalled.")
    if not stopping.wait_end(job, _STOP_WAIT):
        return StopReport(job.id, False, f"Job {job.id} is still at its last file; it ends by itself.")
    return StopReport(job.id, True, f"Job {job.id} was stopped; the same command goes on with it.")


def _job(home: Path, job_id: str) -> jobs.Job:
    job = jobs.find(home, job_id)
    if job is None or job.kind not in ("reclaim", "merge", "export"):
        raise Refused(f"There is no job {job_id} of this kind on this box.")
    return job
