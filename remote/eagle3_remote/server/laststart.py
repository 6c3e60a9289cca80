"""How long the last start of the same model took: what is usual, for somebody who waits for this one."""

from __future__ import annotations

from pathlib import Path

from eagle3_remote.job import jobs
from eagle3_remote.protocol import Phase
from eagle3_remote.serverlog import local_seconds, view
from eagle3_remote.serverlog.logtail import LogTail

_LOOKED_AT = 5
"""Starts that are looked at: those that failed say nothing, and each log must be folded."""


def last_start(home: Path, job: jobs.Job) -> float | None:
    """Seconds from the start to ready of the newest other server job with the model of `job`; `None`: none is known."""
    model = job.spec["message"].get("model")
    others = [one for one in jobs.everything(home, "server") if one.id != job.id]
    same = [one for one in others if one.spec.get("message", {}).get("model") == model]
    for one in same[:_LOOKED_AT]:
        started_at = jobs.status_of(one).started_at
        if started_at is None:
            continue
        log = view(LogTail(one.log_path, keep=one.run_dir).update(), origin=local_seconds(started_at))
        ready = next((span.at for span in log.spans if span.phase is Phase.READY), None)
        if ready is not None:
            return ready
    return None
