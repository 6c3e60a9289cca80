"""Gathers what tells a server at work from one that is stuck: silence, schedulers that do not answer, processes."""

from __future__ import annotations

import calendar
import dataclasses
import time

from eagle3_remote.job import jobs
from eagle3_remote.protocol import Phase, ServerLog, ServerSpec
from eagle3_remote.server import processes, stuck
from eagle3_remote.server.health import SCHEDULERS, UNPROVEN, Health, HealthProbe, asks_schedulers, url_of
from eagle3_remote.server.launch import PlanError, parse_version
from eagle3_remote.serverlog import local_seconds
from eagle3_remote.serverlog.lines import STAMP

LOOK_EVERY = 1.0
"""Seconds for which one look at the processes is used again."""
_ROLES = ("main", "scheduler", "detokenizer")
"""Without one of these no request is answered."""


class SignReader:
    """The signs of one server job; remembers the last look and the last answer."""

    def __init__(self, job: jobs.Job, spec: ServerSpec) -> None:
        self._job = job
        self._local_stamps = "TZ" not in spec.env
        self._looked = float("-inf")
        self._look = processes.Look()
        self._busy: list[processes.Process] | None = None
        self._schedulers: HealthProbe | None = None
        try:
            path = asks_schedulers(parse_version(str(job.spec.get("sglang_version", ""))))
        except PlanError:
            return
        self._schedulers = HealthProbe(url_of(spec.host, spec.port) + path, SCHEDULERS, any_answer=True)

    def read(self, log: ServerLog, health: Health) -> stuck.Signs:
        """Now. Processes are watched for a moment (`processes.SAMPLE`) only where that decides."""
        silent = self.silent_for(log)
        deaf = min(silent, self._deaf_for(log)) if log.phase is Phase.READY and health.ok else 0.0
        signs = stuck.Signs(silent_for=silent, deaf_for=deaf)
        closely = log.phase is not Phase.FAILED and stuck.due(log.phase, signs)
        if time.monotonic() - self._looked > LOOK_EVERY or (closely and self._busy is None):
            self._look, self._busy = processes.watch(self._job) if closely else (processes.look(self._job), None)
            self._looked = time.monotonic()
        now, busy = self._look, self._busy
        return dataclasses.replace(
            signs,
            halted=tuple(one for one in now.halted if one.role in _ROLES),
            dead=now.dead,
            resting=busy is not None and not _at_work(now, busy, log),
            doing=processes.doing(now, busy) if busy is not None else "",
        )

    def silent_for(self, log: ServerLog) -> float:
        """Seconds since the log's last line of its own, by its stamp once requests are logged in between."""
        now = time.time()
        try:
            silent = now - self._job.log_path.stat().st_mtime
        except OSError:
            return 0.0
        stamp = STAMP.search(log.last_line) if log.phase in (Phase.HTTP_UP, Phase.WARMING_UP, Phase.READY) else None
        if stamp is not None and stamp["date"] and self._local_stamps:
            try:
                said = time.strptime(f"{stamp['date']} {stamp['time']}", "%Y-%m-%d %H:%M:%S")
                silent = local_seconds(now) - calendar.timegm(said)
            except (ValueError, OverflowError):
                pass
        return max(0.0, silent)

    def _deaf_for(self, log: ServerLog) -> float:
        """Seconds for which the schedulers have not answered; 0 where that could mean nothing."""
        if self._schedulers is None:
            return 0.0
        # A server that has not computed yet may be unable to answer: it has to prove once that it can.
        proven = log.running_requests is not None or self._schedulers.poll(UNPROVEN).ms is not None
        answer = self._schedulers.poll() if proven else Health()
        return answer.failing_for if answer.failures > 1 else 0.0


def _at_work(now: processes.Look, busy: list[processes.Process], log: ServerLog) -> bool:
    """In a server that serves only its schedulers' work counts; while it comes up, anybody's (a compiler's, say)."""
    if log.phase is not Phase.READY:
        return bool(busy)
    schedulers = now.role("scheduler")
    helpers = now.role("helper")  # kernels are compiled by other programs
    return not schedulers or any(one in (*schedulers, *helpers) for one in busy)
