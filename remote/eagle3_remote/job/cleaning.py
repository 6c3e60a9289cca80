"""Looking at all jobs, and removing the run folders of those that nobody needs any more."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from eagle3_remote.box import identity, releases
from eagle3_remote.files import read_json
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import CleanReport, CleanSpec, JobDetail, JobRecord, JobState, JobStatus, encode
from eagle3_remote.protocol.secret import hide_argv, hide_assigned, hide_env
from eagle3_remote.rpc import Refused
from eagle3_remote.server import dumpdir

_GRAVE = ".gone-"
_TAIL = 64 * 1024


def records(home: Path) -> list[JobRecord]:
    """Every job, newest first."""
    everything, look = jobs.everything(home), identity.look()
    return [_record(home, job, everything, look) for job in everything]


def show(home: Path, job_id: str, lines: int) -> JobDetail:
    """One job in full, without its secrets.

    Raises:
        Refused: there is no such job.
    """
    job = jobs.find(home, job_id)
    if job is None:
        raise Refused(f"There is no job {job_id} on this box.")
    record = _record(home, job, jobs.everything(home), identity.look())
    spec = job.spec
    return JobDetail(
        record=record,
        argv=hide_argv(map(str, spec.get("argv", ()))),
        env=hide_env({str(key): str(value) for key, value in dict(spec.get("env", {})).items()}),
        cwd=str(spec.get("cwd", "")),
        release=str(spec.get("release", "")),
        ended=_sentence(job, record),
        message=_hidden(spec["message"]),
        last_lines=tuple(_last_lines(job.log_path, lines)),
    )


def clean(home: Path, spec: CleanSpec) -> CleanReport:
    """Remove run folders (or say which would go), and the releases that nothing uses then.

    Raises:
        Refused: an id that is no job's.
    """
    with jobs.exclusive(home):  # nothing starts meanwhile
        everything, look = jobs.everything(home), identity.look()
        known = {job.id: job for job in everything}
        for job_id in spec.ids:
            if job_id not in known:
                raise Refused(f"There is no job {job_id} on this box: 'jobs list' shows those that there are.")
        wanted = [known[job_id] for job_id in dict.fromkeys(spec.ids)] if spec.ids else _by_rule(everything, spec)
        found = [(job, _record(home, job, everything, look)) for job in wanted]
        going = [(job, record) for job, record in found if not record.needed]
        problems, gone = [], []
        for job, record in going:
            problem = _remove(job.run_dir) if spec.go else ""
            if problem:
                problems.append(problem)
            else:
                gone.append(record)
        half = jobs.unfinished(home)
        idle = releases.unused(home, look=look)
        size = sum(record.size for record in gone) + sum(_size(path) for path in (*half, *idle))
        if spec.go:
            problems += filter(None, map(_remove, half))
            half = [path for path in half if not path.exists()]
            problems += _bury(jobs.runs_dir(home))
            idle = releases.collect(home, look=look)
    return CleanReport(
        gone=spec.go,
        jobs=tuple(gone),
        unfinished=tuple(map(str, half)),
        kept=tuple(record for _, record in found if record.needed),
        releases=tuple(path.name for path in idle),
        bytes=size,
        problems=tuple(problems),
    )


def words(state: JobState, rc: int | None, stopped: bool) -> str:
    """How a job is, in words. Pure."""
    if state is JobState.FINISHED and rc is not None:
        if rc < 0:
            name = signal.Signals(-rc).name if -rc in signal.Signals._value2member_map_ else str(-rc)
            return f"{'stopped' if stopped else 'killed'} by signal {-rc} ({name})"
        return f"{'stopped' if stopped else 'finished'} (exit code {rc})"
    if state is JobState.KILLED:
        return "stopped, its exit code is not known" if stopped else "killed, its exit code is not known"
    if state is JobState.REBOOTED:
        return "ended with a restart of the box"
    return "being stopped" if stopped else state.value


def _record(home: Path, job: jobs.Job, everything: Iterable[jobs.Job], look: identity.Look) -> JobRecord:
    status = jobs.status_of(job)
    return JobRecord(
        status=status,
        words=words(status.state, status.rc, job.stop_requested),
        size=_size(job.run_dir),
        release=releases.name_of(home, str(job.spec.get("release", ""))),
        needed=_needed(home, job, status, everything, look),
    )


def _needed(home: Path, job: jobs.Job, status: JobStatus, everything: Iterable[jobs.Job], look: identity.Look) -> str:
    """Who still reads the run folder: the job itself, the dumps and the dataset that are found by it, a screen."""
    if status.state in (JobState.RUNNING, JobState.STARTING):
        return "it runs" if status.state is JobState.RUNNING else "it is being started"
    if jobs.lock_held(job):
        return "its supervisor still lives"
    left = stopping.members(job, look)
    if left:
        return f"processes of it still live (pid {', '.join(str(stat.pid) for stat in left)}): stop it first"
    same = [one for one in everything if one.kind == job.kind]
    if job.kind == "server":
        for one in jobs.living(home, "extract"):
            if one.spec.get("server_job") == job.id:
                return f"job {one.id} extracts through it and waits for it"
        dump = str(job.spec.get("dump_dir", ""))
        if dump and (read_json(Path(dump) / dumpdir.OWNER_FILE) or {}).get("job") == job.id:
            return f"its dump directory {dump} is still there: the next server start, or 'space reclaim', removes that"
        if job.id == same[0].id:
            return "it is the newest server: a restart takes its settings from here"
    if job.kind == "extract":
        out = str(job.spec["message"].get("out", ""))
        newest = next(one for one in same if one.spec["message"].get("out") == out)
        if job.id == newest.id and out and os.path.lexists(out):
            return f"the dataset {out} is still there: 'report', 'space' and going on with it find it by this job"
        if job.id == same[0].id:
            return "it is the newest extraction: the screen and 'report' show it"
    return ""


def _by_rule(everything: list[jobs.Job], spec: CleanSpec) -> list[jobs.Job]:
    """The ended ones that are old enough, without the newest of their kind. What lives is not even named."""
    now, seen, found = time.time(), dict[str, int](), []
    for job in everything:
        seen[job.kind] = seen.get(job.kind, 0) + 1
        if seen[job.kind] <= spec.keep or jobs.state_of(job) in (JobState.RUNNING, JobState.STARTING):
            continue
        if now - _ended_at(job) >= spec.older_than:
            found.append(job)
    return found


def _ended_at(job: jobs.Job) -> float:
    """Unix seconds; of one that nobody saw ending, its last sign of life."""
    for name in ("rc", "out.log", "spec.json"):
        with contextlib.suppress(OSError):
            return (job.run_dir / name).stat().st_mtime
    return 0.0


def _remove(run_dir: Path) -> str:
    """Remove one run folder; what went wrong, a sentence. It leaves its name in one step: nobody meets half a job."""
    grave = run_dir.with_name(f"{_GRAVE}{run_dir.name}-{secrets.token_hex(4)}")
    try:
        os.rename(run_dir, grave)
    except OSError as error:
        return f"The run folder {run_dir} cannot be removed: {error.strerror}."
    return ""


def _bury(runs: Path) -> list[str]:
    """Remove what was renamed away, now or by an earlier cleaning that was killed. What stayed: a sentence each."""
    problems = []
    for path in runs.glob(_GRAVE + "*"):
        shutil.rmtree(path, ignore_errors=True)  # as much as can be
        try:
            if path.exists():
                shutil.rmtree(path)
        except OSError as error:
            problems.append(
                f"{path}, what is left of a run folder, cannot be removed: {error.filename or path}: {error.strerror or error}. No job is "
                "listed for it any more; remove it by hand, or mend the cause and clean again."
            )
    return problems


def _size(path: Path) -> int:
    """Bytes of the files below a folder."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return size


def _hidden(value: object) -> dict[str, object]:
    """A message without its secrets: variables by name, arguments by flag."""
    message = dict(encode(value))
    if isinstance(message.get("env"), dict):
        message["env"] = hide_env({str(key): str(one) for key, one in message["env"].items()})
    if isinstance(message.get("extra_args"), list):
        message["extra_args"] = list(hide_argv(map(str, message["extra_args"])))
    return message


def _sentence(job: jobs.Job, record: JobRecord) -> str:
    status = record.status
    if status.state is JobState.RUNNING:
        return f"Job {job.id} runs as process {status.pid}."
    if status.state is JobState.STARTING:
        return f"Job {job.id} is being started."
    asked = " Its end had been asked for." if job.stop_requested else ""
    if status.state is JobState.REBOOTED:
        return f"The box was restarted while job {job.id} ran.{asked}"
    if status.state is JobState.KILLED:
        return f"Job {job.id} and its supervisor were killed, so that nobody wrote down how it ended.{asked}"
    if status.rc is not None and status.rc < 0:
        return f"Job {job.id} was ended by signal {-status.rc}.{asked}"
    return f"Job {job.id} ended with exit code {status.rc}.{asked}"


def _last_lines(path: Path, count: int) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [hide_assigned(line) for line in lines[-count:]] if count > 0 else []
