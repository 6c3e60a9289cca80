"""Detached jobs: one run directory each, judged by lock, identity and exit code. Nothing is kept in memory.

::

    <home>/runs/<job id>/spec.json  what was started       pid.json  who it is      out.log  what it said
                         lock       held by its supervisor rc        how it ended   stop.json  somebody asked it to end
                         secret.json  what nobody else is shown of what was started

    of a server besides: fold-*.json  what its log says, see `eagle3_remote.serverlog.checkpoint`
                         seen.json, shm.json  what its processes were and used     watch.json, restarts.json  see `watchdog`
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_remote.box import identity
from eagle3_remote.files import locked, read_json, write_atomic
from eagle3_remote.job import secretfile
from eagle3_remote.job.secretfile import Secrets
from eagle3_remote.protocol import JobState, JobStatus

_ID = re.compile(r"(?P<kind>server|extract|verify|reclaim|merge|export)-\d{8}T\d{6}-[0-9a-f]{4}")
_START_GRACE = 15.0
"""Seconds in which a run directory without lock and identity counts as being started."""


class JobError(Exception):
    """A job could not be started; the text is a sentence for a person."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run directory and the words of its ``spec.json``."""

    id: str
    run_dir: Path
    spec: dict[str, Any]

    @property
    def kind(self) -> str:
        """``server``, ``extract``, ``verify``, ``reclaim``, ``merge`` or ``export``."""
        return self.id.partition("-")[0]

    @property
    def log_path(self) -> Path:
        """Standard output and error of the job."""
        return self.run_dir / "out.log"

    @property
    def leader(self) -> identity.Identity | None:
        """The job's first process as ``pid.json`` names it; it may be gone."""
        record = read_json(self.run_dir / "pid.json")
        try:
            return (
                None
                if record is None
                else identity.Identity(str(record["boot_id"]), int(record["pid"]), int(record["start_time"]))
            )
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked this job to end."""
        return (self.run_dir / "stop.json").exists()


def runs_dir(home: Path) -> Path:
    """Where the run directories lie."""
    return home / "runs"


@contextlib.contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Hold the box's start lock: two agents never start or stop at the same time."""
    runs_dir(home).mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(runs_dir(home) / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def new_id(kind: str) -> str:
    """``<kind>-<UTC yyyymmddThhmmss>-<4 hex>``."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{kind}-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def code_of(release: Path, module: str, first: str = "") -> str:
    """What ``python -c`` runs to call ``main`` of `module` (below ``eagle3_remote``) with its arguments; `first` comes before."""
    return (
        f"import sys; sys.path.insert(0, {str(release)!r}); {first}"
        f"from eagle3_remote.{module} import main; sys.exit(main(sys.argv[1:]))"
    )


def start(
    home: Path,
    release: Path,
    job_id: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    message: Mapping[str, Any],
    *,
    cwd: str = "/",
    facts: Mapping[str, Any] | None = None,
    run_dir_arg: bool = False,
    secrets: Secrets | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Job:
    """Make the run directory, start the supervisor detached, and return when the job's first process runs.

    Args:
        env: only what is set on top of this process's environment.
        message: the encoded spec the job was started for, kept under ``message``.
        facts: more keys for ``spec.json``.
        run_dir_arg: append the run directory to `argv`.
        secrets: what is kept apart (`secretfile`); the variables among them are added to `env` when the job starts.
        files: more files of the run directory, for its owner alone.

    Raises:
        JobError: the directory could not be made or the job could not be started; nothing runs then.
    """
    run_dir = runs_dir(home) / job_id
    line = [*argv, str(run_dir)] if run_dir_arg else list(argv)
    spec = {
        **(facts or {}),
        "id": job_id,
        "kind": job_id.partition("-")[0],
        "argv": line,
        "env": dict(env),
        "cwd": cwd,
        "release": str(release),
        "boot_id": identity.boot_id(),
        "created_at": time.time(),
        "message": dict(message),
    }
    try:
        run_dir.mkdir(parents=True, mode=0o700)
        try:
            secretfile.write(run_dir, secrets or Secrets())
            for name, data in (files or {}).items():
                write_atomic(run_dir / name, data)
            write_atomic(run_dir / "spec.json", json.dumps(spec, indent=1).encode())
        except OSError:
            shutil.rmtree(run_dir, ignore_errors=True)  # a half one is shown nowhere, and its secrets would stay
            raise
    except OSError as error:
        raise JobError(f"The run directory {run_dir} could not be written: {error.strerror}.") from error
    started = subprocess.run(
        [sys.executable, "-I", "-c", code_of(release, "job.supervisor"), str(run_dir)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        check=False,
    )
    if started.returncode != 0:
        reason = started.stderr.decode("utf-8", "replace").strip().splitlines()
        raise JobError(f"Job {job_id} could not be started: {reason[-1] if reason else 'no reason was given'}.")
    return Job(job_id, run_dir, spec)


def find(home: Path, job_id: str) -> Job | None:
    """One job by its id."""
    if not _ID.fullmatch(job_id):
        return None
    run_dir = runs_dir(home) / job_id
    spec = read_json(run_dir / "spec.json")
    if spec is None or spec.get("id") != job_id or not isinstance(spec.get("message"), dict):
        return None
    return Job(job_id, run_dir, spec)


def everything(home: Path, kind: str | None = None) -> list[Job]:
    """All jobs, newest first."""
    try:
        names = [name for name in os.listdir(runs_dir(home)) if _ID.fullmatch(name)]
    except OSError:
        return []
    jobs = [find(home, name) for name in names if kind is None or name.startswith(f"{kind}-")]
    return sorted((job for job in jobs if job is not None), key=_created, reverse=True)


def unfinished(home: Path) -> list[Path]:
    """Run directories that nobody finished writing: whoever began was killed, and no job was ever started from them."""
    return [path for path in sorted(runs_dir(home).glob("*")) if _ID.fullmatch(path.name) and _unfinished(path)]


def _unfinished(path: Path) -> bool:
    try:
        old = time.time() - path.stat().st_mtime > _START_GRACE
        return old and not os.path.lexists(path / "spec.json") and not lock_held(Job(path.name, path, {}))
    except OSError:
        return False


def _created(job: Job) -> tuple[float, str]:
    created = job.spec.get("created_at")
    return (float(created) if isinstance(created, (int, float)) else 0.0, job.id)


def newest(home: Path, kind: str) -> Job | None:
    """The living job of that kind, else the last one that was started."""
    jobs = everything(home, kind)
    for job in jobs:
        if state_of(job) in (JobState.RUNNING, JobState.STARTING):
            return job
    return jobs[0] if jobs else None


def living(home: Path, kind: str) -> list[Job]:
    """Jobs of that kind that run or are being started."""
    return [job for job in everything(home, kind) if state_of(job) in (JobState.RUNNING, JobState.STARTING)]


def exit_code(job: Job) -> int | None:
    """What ``rc`` says; `None` when the job did not end under its supervisor's eyes."""
    try:
        return int((job.run_dir / "rc").read_text())
    except (OSError, ValueError):
        return None


def state_of(job: Job) -> JobState:
    """The honest state: exit code, then boot, then lock, then identity."""
    if exit_code(job) is not None:
        return JobState.FINISHED
    if job.spec.get("boot_id") != identity.boot_id():
        return JobState.REBOOTED
    leader = job.leader
    if lock_held(job):
        return JobState.STARTING if leader is None else JobState.RUNNING
    if exit_code(job) is not None:  # it ended between the two looks
        return JobState.FINISHED
    if leader is None:
        return JobState.STARTING if time.time() - _created(job)[0] < _START_GRACE else JobState.KILLED
    # The supervisor is gone; the job may well live on without it.
    return JobState.RUNNING if leader_lives(job, leader) else JobState.KILLED


def lock_held(job: Job) -> bool:
    """Whether the job's supervisor lives."""
    try:
        return locked(job.run_dir / "lock")
    except OSError:
        return False


def leader_lives(job: Job, leader: identity.Identity) -> bool:
    """Whether `leader` is alive and says itself that it is this job's."""
    return identity.same_process(leader) and identity.carries_job(leader.pid, job.id)


def status_of(job: Job) -> JobStatus:
    """One job as the console sees it."""
    state = state_of(job)
    record = read_json(job.run_dir / "pid.json") or {}
    started = record.get("started_at", job.spec.get("created_at"))
    try:
        log = job.log_path.stat()
        size, inode = log.st_size, log.st_ino
    except OSError:
        size = inode = 0
    try:
        ended = (job.run_dir / "rc").stat().st_mtime if state is JobState.FINISHED else None
    except OSError:
        ended = None
    leader = job.leader
    return JobStatus(
        id=job.id,
        kind=job.kind,
        state=state,
        pid=None if leader is None else leader.pid,
        rc=exit_code(job),
        started_at=float(started) if isinstance(started, (int, float)) else None,
        ended_at=ended,
        run_dir=str(job.run_dir),
        log_path=str(job.log_path),
        log_size=size,
        log_inode=inode,
    )
