"""The extractions of this box that send to a server: asked to hold their requests while it is stopped on purpose."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3_remote.extract import leaving
from eagle3_remote.job import jobs
from eagle3_remote.protocol import ExtractSpec, ExtractState, decode
from eagle3_remote.server.status import extract_status

DRAIN_WAIT = 5.0
"""Seconds for what is in flight to be answered. What is not by then is drained by the server itself, or sent again."""
_POLL = 0.1


@contextlib.contextmanager
def held(home: Path, server: jobs.Job) -> Iterator[None]:
    """Until this is left, nothing new is sent to `server`; on entry what is in flight is waited for, `DRAIN_WAIT` at most."""
    port = int(server.spec["message"].get("port") or 0)
    told = []
    try:
        for job in jobs.living(home, "extract"):
            if port in _ports(job):
                with contextlib.suppress(OSError):  # a full disk: it finds out when its connections break
                    leaving.mark(job.run_dir, port)
                    told.append(job)
        deadline = time.monotonic() + DRAIN_WAIT
        while any(_sends(job) for job in told) and time.monotonic() < deadline:
            time.sleep(_POLL)
        yield
    finally:
        for job in told:
            with contextlib.suppress(OSError):
                leaving.clear(job.run_dir)


def _ports(job: jobs.Job) -> set[int]:
    spec = decode(ExtractSpec, job.spec["message"])
    return {leaving.port_of(url) for url in (spec.server_url, *(more.url for more in spec.servers)) if url}


def _sends(job: jobs.Job) -> bool:
    """One with other servers goes on sending to those, so that all of `DRAIN_WAIT` is waited for."""
    now = extract_status(job)
    return now.state is ExtractState.RUNNING or now.in_flight > 0
