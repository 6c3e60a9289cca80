"""Ending a job, provably: who belongs to it, in what order it is asked to end, and what is left."""

from __future__ import annotations

import contextlib
import json
import signal
import time

from eagle3_remote import identity, jobs
from eagle3_remote.files import write_atomic
from eagle3_remote.protocol import JobState, StopReport

_AFTER_LEADER = 5.0
"""Seconds for the children of a process that has ended to end by themselves."""
_POLL = 0.1


def members(job: jobs.Job) -> list[identity.ProcessStat]:
    """Every living process that is provably the job's: its environment names the job (whatever session or group it
    moved to), or it is in the process group of the job's own, still living first process."""
    leader = job.leader
    group = leader.pid if leader is not None and jobs.leader_lives(job, leader) else None
    return [
        stat
        for stat in identity.living()
        if (group is not None and stat.pgid == group) or identity.carries_job(stat.pid, job.id)
    ]


def request_stop(job: jobs.Job) -> None:
    """Note that the end of this job was asked for, so that its exit is not taken for a failure."""
    write_atomic(job.run_dir / "stop.json", json.dumps({"at": time.time()}).encode())


def terminate_leader(job: jobs.Job) -> bool:
    """TERM to the job's first process alone; False when it is gone or not provably ours."""
    leader = job.leader
    if leader is None or not jobs.leader_lives(job, leader):
        return False
    return identity.signal_process(leader, signal.SIGTERM)


def wait_end(job: jobs.Job, seconds: float) -> bool:
    """Wait until nothing of the job lives; False when something still does."""
    deadline = time.monotonic() + seconds
    while members(job):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def stop(job: jobs.Job, *, grace: float = 30.0, term: float = 5.0, kill: float = 10.0) -> StopReport:
    """End a job and prove it: TERM to its first process (which ends its own children in order), after `grace` seconds
    TERM to everything that is left, after `term` more KILL; then look whether anything is left after `kill`."""
    if not members(job) and jobs.state_of(job) not in (JobState.RUNNING, JobState.STARTING):
        return StopReport(job.id, False, f"Job {job.id} was not running; nothing was signalled.")
    request_stop(job)
    how = "ended by itself after TERM"
    try:
        signalled, denied = terminate_leader(job), False
    except PermissionError:
        signalled, denied = False, True
    if not _wait_orderly(job, grace if signalled else 0.0):
        how = "ended after TERM to all its processes"
        _signal_members(job, signal.SIGTERM)
        if not wait_end(job, term):
            how = f"ignored TERM for {grace + term:.0f} s and was killed"
            deadline = time.monotonic() + kill
            while members(job) and time.monotonic() < deadline:
                _signal_members(job, signal.SIGKILL)  # again: a child may be born between two looks
                time.sleep(_POLL)
    _wait_for_rc(job)
    left = tuple(f"pid {stat.pid} ({stat.name}, state {stat.state})" for stat in members(job))
    if left:
        why = " It belongs to another user." if denied else ""
        return StopReport(job.id, False, f"Job {job.id} did not end: {', '.join(left)} still lives.{why}", left)
    return StopReport(job.id, True, f"Job {job.id} {how}; none of its processes is left.")


def _wait_orderly(job: jobs.Job, grace: float) -> bool:
    """Wait until nothing of the job lives. Once its first process is gone, the others get `_AFTER_LEADER` seconds."""
    deadline = time.monotonic() + grace
    gone_since: float | None = None
    while members(job):
        now = time.monotonic()
        leader = job.leader
        if gone_since is None and (leader is None or not jobs.leader_lives(job, leader)):
            gone_since = now
        if now >= deadline or (gone_since is not None and now - gone_since > _AFTER_LEADER):
            return False
        time.sleep(_POLL)
    return True


def _signal_members(job: jobs.Job, number: signal.Signals) -> None:
    boot = identity.boot_id()
    for stat in members(job):
        with contextlib.suppress(PermissionError):  # it is named as left over
            identity.signal_process(identity.Identity(boot, stat.pid, stat.start_time), number)


def _wait_for_rc(job: jobs.Job) -> None:
    """The supervisor writes the exit code a moment after the last process is gone."""
    deadline = time.monotonic() + 3.0
    while jobs.lock_held(job) and jobs.exit_code(job) is None and time.monotonic() < deadline:
        time.sleep(_POLL / 2)
