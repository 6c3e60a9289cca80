"""The truth about server and extraction: process identity, log and HTTP weighed together into one phase and sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from pathlib import Path

from eagle3_remote.box import identity, patience
from eagle3_remote.extract import verified
from eagle3_remote.files import read_json
from eagle3_remote.job import jobs
from eagle3_remote.protocol import (
    STARTING,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobState,
    JobStatus,
    Phase,
    ServerLog,
    ServerSpec,
    ServerStatus,
    decode,
)
from eagle3_remote.server import stuck, watchdog
from eagle3_remote.server.health import Health, HealthProbe, url_of
from eagle3_remote.server.laststart import last_start
from eagle3_remote.server.launch import PlanError, parse_version
from eagle3_remote.server.signs import SignReader
from eagle3_remote.serverlog import LogState, local_seconds, view
from eagle3_remote.serverlog.logtail import LogTail

UNRESPONSIVE_AFTER = 60.0
"""Seconds of failing health requests (at least three) before a server that was ready is called unresponsive."""
_OUTPUT_SECONDS = 0.3
"""So long a snapshot waits for the output's file system."""
BUSY_WITHIN = 3.0
"""A batch line that is the log's last word, and not older than so many seconds: the server is at work."""

NO_SIGNS = stuck.Signs()

_UP = (Phase.HTTP_UP, Phase.WARMING_UP, Phase.READY)
_SENTENCES = {
    Phase.SPAWNING: "The server process starts.",
    Phase.INITIALISING: "The server sets up its ranks.",
    Phase.DOWNLOADING: "The server downloads the model.",
    Phase.LOADING_WEIGHTS: "The server loads the weights.",
    Phase.FINISHING_WEIGHTS: "All shards are read; the server finishes the weights.",
    Phase.ALLOCATING_KV_CACHE: "The server allocates the KV cache.",
    Phase.WARMING_KERNELS: "The server compiles and tunes its kernels; the first time this takes many minutes.",
    Phase.CAPTURING: "The server captures or compiles graphs.",
    Phase.HTTP_UP: "The HTTP side is up; the server is not ready yet.",
    Phase.WARMING_UP: "The server answers its warm-up request.",
    Phase.READY: "The server is ready.",
    Phase.BUSY: "The server is ready and at work.",
    Phase.STOPPING: "The server is being stopped.",
}

_UNCHECKED = " Its rows are not checked yet: the first request, the probe, does it."
"""The warm-up is skipped: nothing has passed the patched layers so far."""


class StatusReader:
    """Reads the box; keeps only what makes the next look cheap (folded logs, the last health answer)."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._tails: dict[str, LogTail] = {}
        self._last_start: dict[str, float | None] = {}
        """By the job that starts; looked up once for each."""
        # A server that is started again keeps its job's id: what the last one answered says nothing of this one.
        self._probes: dict[tuple[str, identity.Identity | None], HealthProbe] = {}
        self._signs: dict[tuple[str, identity.Identity | None], SignReader] = {}

    def server(self, job: jobs.Job | None = None) -> ServerStatus:
        """The given server job; `None`: the one that runs, else the last one."""
        job = job or jobs.newest(self._home, "server")
        if job is None:
            return ServerStatus(Phase.NOT_RUNNING, "No server was started from here.")
        status = jobs.status_of(job)
        spec = decode(ServerSpec, job.spec["message"])
        state = self._fold(job)
        alive = status.state in (JobState.STARTING, JobState.RUNNING)
        origin = None if status.started_at is None else local_seconds(status.started_at)
        log = view(state, origin=origin, ended=not alive and not job.stop_requested and status.rc != 0)
        health = self._health(job, spec, log) if alive and log.phase in _UP else Health()
        signs = self._look(job, spec).read(log, health) if alive and not job.stop_requested else stuck.Signs()
        if signs.dead and log.failure is None:
            log = dataclasses.replace(
                log, failure="scheduler_died", root_cause=stuck.died(signs.dead), advice=stuck.DIED_ADVICE
            )
        active = state.active and signs.silent_for < BUSY_WITHIN
        phase, sentence = judge(status, log, health, stopping=job.stop_requested, active=active, signs=signs)
        leader = job.leader
        kept = watchdog.record(job)
        phase, sentence = with_restarts(phase, sentence, kept, time.time() if alive else None)
        return ServerStatus(
            phase=phase,
            sentence=sentence,
            job=status,
            spec=spec,
            dump_dir=str(job.spec.get("dump_dir", "")),
            sglang_version=str(job.spec.get("sglang_version", "")),
            argv=tuple(job.spec.get("argv", ())),
            log=log,
            uptime=identity.age(leader) if alive and leader is not None else None,
            last_start=self._usual(job) if phase in STARTING else None,
            health_ms=health.ms if health.ok else None,
            watched=watchdog.watched(job),
            restarts=kept.restarts,
        )

    def extract(self) -> ExtractStatus | None:
        """The extraction that runs, else the last one; `None` when there never was one."""
        job = jobs.newest(self._home, "extract")
        return None if job is None else with_verified(extract_status(job))

    def _usual(self, job: jobs.Job) -> float | None:
        with self._lock:
            if job.id not in self._last_start:
                self._last_start = {job.id: last_start(self._home, job)}
            return self._last_start[job.id]

    def _fold(self, job: jobs.Job) -> LogState:
        with self._lock:
            if job.id not in self._tails:
                self._tails.clear()  # one server at a time: the old log is not looked at again
                self._tails[job.id] = LogTail(job.log_path, keep=job.run_dir)
            return self._tails[job.id].update()

    def _health(self, job: jobs.Job, spec: ServerSpec, log: ServerLog) -> Health:
        key = job.id, job.leader
        with self._lock:
            if key not in self._probes:
                self._probes.clear()
                url = url_of(spec.host, spec.port) + _health_path(str(job.spec.get("sglang_version", "")))
                self._probes[key] = HealthProbe(url)
            probe = self._probes[key]
        return probe.poll()

    def _look(self, job: jobs.Job, spec: ServerSpec) -> SignReader:
        key = job.id, job.leader
        with self._lock:
            if key not in self._signs:
                self._signs.clear()
                self._signs[key] = SignReader(job, spec)
            return self._signs[key]


def _health_path(version: str) -> str:
    """``/health`` runs a one-token prefill before 0.5.6, where it cannot be told not to."""
    try:
        return "/health" if parse_version(version) >= (0, 5, 6) else "/get_model_info"
    except PlanError:
        return "/health"


def judge(
    job: JobStatus,
    log: ServerLog,
    health: Health,
    *,
    stopping: bool,
    active: bool,
    signs: stuck.Signs = NO_SIGNS,
) -> tuple[Phase, str]:
    """Phase and sentence of one server job. Pure."""
    if job.state is JobState.REBOOTED:
        return Phase.EXITED, "The box was restarted since; the server is gone."
    if job.state is JobState.KILLED:
        if stopping:
            return Phase.EXITED, "The server was stopped."
        return Phase.FAILED, f"The server was killed and left no exit code.{_cause(log)}"
    if job.state is JobState.FINISHED:
        if stopping:
            return Phase.EXITED, "The server was stopped."
        if job.rc == 0:
            return Phase.EXITED, "The server ended by itself without an error."
        return Phase.FAILED, f"The server failed ({_exit_words(job.rc)}).{_cause(log)}"
    if stopping:
        return Phase.STOPPING, _SENTENCES[Phase.STOPPING]
    if log.phase is Phase.FAILED:
        return Phase.FAILED, f"The server is failing.{_cause(log)}"
    if log.phase in (Phase.STOPPING, Phase.EXITED):
        return Phase.STOPPING, _SENTENCES[Phase.STOPPING]
    if signs.dead:
        return Phase.FAILED, f"The server is failing.{_cause(log)}"
    up = log.phase is Phase.READY or (log.phase in _UP and health.ok)
    if not up and (why := stuck.starting(log.phase, signs, log.last_line)) is not None:
        return Phase.STUCK, why
    if up and (health.ok or signs.halted) and (why := stuck.serving(signs)) is not None:
        return Phase.STUCK, why
    if log.phase is Phase.READY and health.failures >= 3 and health.failing_for > UNRESPONSIVE_AFTER and not active:
        return Phase.UNRESPONSIVE, f"The server has not answered for {health.failing_for:.0f} s; its process lives."
    if log.phase is Phase.READY and health.failures and health.ms is None:
        # Without a warm-up the ready line comes before the port listens.
        return Phase.HTTP_UP, _SENTENCES[Phase.HTTP_UP]
    if up:
        phase = Phase.BUSY if active else Phase.READY
        return phase, _SENTENCES[phase] + (_UNCHECKED if log.markers and not log.checked else "")
    if log.phase is Phase.LOADING_WEIGHTS and log.shards_total:
        eta = f", about {log.shard_eta} left" if log.shard_eta else ""
        waits = f"; it waits for {_few(log.waiting_ranks)}" if log.waiting_ranks else ""
        return log.phase, f"The server loads the weights: {log.shards_done} of {log.shards_total} shards{eta}{waits}."
    return log.phase, _SENTENCES[log.phase]


def with_restarts(phase: Phase, sentence: str, kept: watchdog.Record, now: float | None) -> tuple[Phase, str]:
    """Add what the watchdog did. Pure.

    Args:
        now: Unix seconds; `None` when the job has ended.
    """
    if not kept.restarts and not kept.given_up:
        return phase, sentence
    count = f"{len(kept.restarts)} of {watchdog.LIMIT}"
    if now is not None and kept.starts_at is not None:
        wait = max(0.0, kept.starts_at - now)
        why = kept.restarts[-1].reason
        return Phase.SPAWNING, f"The server crashed and is started again in {wait:.0f} s (restart {count}): {why}."
    if kept.restarts:
        sentence += f" Restarted {count} because: {kept.restarts[-1].reason}."
    if now is None and kept.given_up:
        sentence += f" It is not started again: {kept.given_up}."
    return phase, sentence


def _few(ranks: tuple[str, ...]) -> str:
    return ", ".join(ranks[:3]) + (f" and {len(ranks) - 3} more" if len(ranks) > 3 else "")


def _exit_words(rc: int | None) -> str:
    return f"signal {-rc}" if rc is not None and rc < 0 else f"exit code {rc}"


def _cause(log: ServerLog) -> str:
    if log.root_cause is None:
        last = f" The last line of its log: {log.last_line}" if log.last_line else " Its log is empty."
        return f" The log names no cause.{last}"
    return f" {log.root_cause.rstrip('.')}. {log.advice}"


def extract_status(job: jobs.Job) -> ExtractStatus:
    """One extraction: its own progress file, corrected by whether its process still lives."""
    status = jobs.status_of(job)
    spec = decode(ExtractSpec, job.spec["message"])
    progress = ExtractStatus(ExtractState.PLANNING, "The extraction starts.")
    with contextlib.suppress(ValueError):  # not written yet
        progress = decode(ExtractStatus, read_json(job.run_dir / "progress.json") or {})
    progress = dataclasses.replace(progress, job=status, spec=spec)
    if status.state in (JobState.STARTING, JobState.RUNNING):
        return progress
    if progress.state in (ExtractState.FINISHED, ExtractState.STOPPED, ExtractState.FAILED):
        return progress
    return dataclasses.replace(
        progress,
        state=ExtractState.FAILED,
        sentence=_dead_sentence(status, progress, job),
        in_flight=0,
        tokens_in_flight=0,
        samples_per_s=0.0,
        tokens_per_s=0.0,
        bytes_per_s=0.0,
        eta=None,
    )


def with_verified(extract: ExtractStatus) -> ExtractStatus:
    """Add whether a finished dataset was checked since; where its file system does not answer, nothing is known."""
    if extract.state is not ExtractState.FINISHED or extract.spec is None:
        return extract
    out = extract.spec.out
    try:
        return dataclasses.replace(extract, verified=patience.within(_OUTPUT_SECONDS, out, lambda: verified.read(out)))
    except patience.NoAnswer:
        return extract


def _dead_sentence(status: JobStatus, progress: ExtractStatus, job: jobs.Job) -> str:
    if status.state is JobState.REBOOTED:
        what = "The box was restarted during the extraction"
    elif status.state is JobState.KILLED or (status.rc is not None and status.rc < 0):
        what = "The extraction was killed"
    else:
        what = f"The extraction ended early (exit code {status.rc})"
    last = _last_line(job.log_path)
    why = f" Its last word: {last}" if last and status.state is JobState.FINISHED else ""
    out = str(job.spec["message"].get("out", ""))
    kept = "what was stored before stays"
    if progress.total:
        kept = f"{progress.stored} of {progress.total} samples are stored and stay"
    return f"{what}: {kept}; start it again with the same output directory {out} to go on.{why}"


def _last_line(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
