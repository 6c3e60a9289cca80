"""Ending a job, provably: who belongs to it, in what order it is asked to end, and what is left."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterable

from eagle3_remote.box import doctor, identity
from eagle3_remote.files import write_atomic
from eagle3_remote.job import jobs
from eagle3_remote.protocol import JobState, StopReport

_AFTER_LEADER = 5.0
"""Seconds for the children of a process that has ended to end by themselves."""
_POLL = 0.1
_RC_WAIT = 30.0
"""Seconds for the supervisor to write the exit code; on a busy box one look through /proc may take it some."""


def members(
    job: jobs.Job,
    among: identity.Look | None = None,
    known: Iterable[tuple[int, int]] = (),
) -> list[identity.ProcessStat]:
    """Every living process that is provably the job's: its environment names the job (whatever session or group it
    moved to), it is in the process group of the job's own, still living first process, or it descends from one of
    these (whatever it did to its environment).

    Args:
        among: one look at all processes, for several jobs; `None`: look now.
        known: (pid, start time) of those that were members at a look before this one.
    """
    among = identity.look() if among is None else among
    everything = among.stats
    leader = job.leader
    group = leader.pid if leader is not None and jobs.leader_lives(job, leader) else None
    former = set(known)
    ours = {
        stat.pid
        for stat in everything
        if stat.state not in ("Z", "X")
        and (
            (group is not None and stat.pgid == group)
            or (stat.pid, stat.start_time) in former
            or among.carries(stat.pid, job.id)
        )
    }
    children: dict[int, list[identity.ProcessStat]] = {}
    for stat in everything:
        children.setdefault(stat.ppid, []).append(stat)
    found = [stat for stat in everything if stat.pid in ours]
    while found:
        parent = found.pop()
        for child in children.get(parent.pid, ()):
            # A child is never older than its parent: the pid of a parent that died meanwhile may be another's by now.
            if child.pid not in ours and child.state not in ("Z", "X") and child.start_time >= parent.start_time:
                ours.add(child.pid)
                found.append(child)
    return [stat for stat in everything if stat.pid in ours]


class Roster:
    """The members of one job over time: who was one stays one, though its parent and its environment are gone."""

    def __init__(self, job: jobs.Job) -> None:
        self._job = job
        self._known: set[tuple[int, int]] = set()

    def __call__(self) -> list[identity.ProcessStat]:
        """Those that live now."""
        found = members(self._job, known=self._known)
        self._known.update((stat.pid, stat.start_time) for stat in found)
        return found


def request_stop(job: jobs.Job) -> None:
    """Note that the end of this job was asked for, so that its exit is not taken for a failure."""
    write_atomic(job.run_dir / "stop.json", json.dumps({"at": time.time()}).encode())


def terminate_leader(job: jobs.Job) -> bool:
    """TERM to the job's first process alone; False when it is gone or not provably ours."""
    leader = job.leader
    if leader is None or not jobs.leader_lives(job, leader):
        return False
    return identity.signal_process(leader, signal.SIGTERM)


def wait_end(job: jobs.Job, seconds: float, roster: Roster | None = None) -> bool:
    """Wait until nothing of the job lives; False when something still does."""
    living = roster or Roster(job)
    deadline = time.monotonic() + seconds
    while living():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def stop(job: jobs.Job, *, grace: float = 30.0, term: float = 5.0, kill: float = 10.0) -> StopReport:
    """End a job and prove it: TERM to its first process (which ends its own children in order), after `grace` seconds
    TERM to everything that is left, after `term` more KILL; then look whether anything is left after `kill`."""
    roster = Roster(job)
    lived = bool(roster())
    if not lived and jobs.state_of(job) not in (JobState.RUNNING, JobState.STARTING):
        return StopReport(job.id, False, f"Job {job.id} was not running; nothing was signalled.")
    request_stop(job)
    how = "ended by itself after TERM" if lived else "had no process just then and is not started again"
    try:
        signalled, denied = terminate_leader(job), False
    except PermissionError:
        signalled, denied = False, True
    _signal(roster, signal.SIGCONT, "T")  # who is halted hears no TERM
    if not _wait_orderly(job, roster, grace if signalled else 0.0):
        how = "ended after TERM to all its processes"
        _signal(roster, signal.SIGTERM)
        _signal(roster, signal.SIGCONT, "T")
        if not wait_end(job, term, roster):
            how = f"ignored TERM for {grace + term:.0f} s and was killed"
            end_at_once(roster, kill)
    if not roster() and not _wait_for_rc(job, roster):
        how = "was just being started again and was killed"
        end_at_once(roster, kill)
        _wait_for_rc(job, roster)
    left = tuple(f"{doctor.describe(stat.pid)} in state {stat.state}" for stat in roster())
    if left:
        why = " It belongs to another user." if denied else ""
        return StopReport(job.id, False, f"Job {job.id} did not end: {', '.join(left)} still lives.{why}", left)
    return StopReport(job.id, True, f"Job {job.id} {how}; none of its processes is left.")


def end_at_once(roster: Roster, seconds: float) -> bool:
    """KILL to everything of the job, again and again: a child may be born between two looks. False: something lives."""
    deadline = time.monotonic() + seconds
    while roster() and time.monotonic() < deadline:
        _signal(roster, signal.SIGKILL)
        time.sleep(_POLL)
    return not roster()


def _wait_orderly(job: jobs.Job, roster: Roster, grace: float) -> bool:
    """Wait until nothing of the job lives. Once its first process is gone, the others get `_AFTER_LEADER` seconds."""
    deadline = time.monotonic() + grace
    gone_since: float | None = None
    while roster():
        now = time.monotonic()
        leader = job.leader
        if gone_since is None and (leader is None or not jobs.leader_lives(job, leader)):
            gone_since = now
        if now >= deadline or (gone_since is not None and now - gone_since > _AFTER_LEADER):
            return False
        time.sleep(_POLL)
    return True


def _signal(roster: Roster, number: signal.Signals, state: str = "") -> None:
    """Signal every living member (`state`: only those in it)."""
    boot = identity.boot_id()
    for stat in roster():
        if state and stat.state != state:
            continue
        with contextlib.suppress(PermissionError):  # it is named as left over
            identity.signal_process(identity.Identity(boot, stat.pid, stat.start_time), number)


def _wait_for_rc(job: jobs.Job, roster: Roster) -> bool:
    """The supervisor writes the exit code a moment after the last process is gone. False: it had been about to start the
    job again before it could see that the job shall end, and something of the job lives."""
    deadline = time.monotonic() + _RC_WAIT
    while jobs.lock_held(job) and jobs.exit_code(job) is None and time.monotonic() < deadline:
        if roster():
            return False
        time.sleep(_POLL / 2)
    return not roster()
