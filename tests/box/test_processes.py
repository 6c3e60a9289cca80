"""What is read from /proc of a job's processes: who they are, whether they work, who is halted, who has died."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from eagle3_remote.box import identity
from eagle3_remote.job import jobs, stopping
from eagle3_remote.server import processes
from tests.box.client import until

NAMED = """
import ctypes, os, sys, time
def child(title, work):
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(15, title.encode()[:15])  # PR_SET_NAME, as setproctitle does
    work()
"""


def start(home: Path, release: Path, code: str, **message: object) -> jobs.Job:
    line = [sys.executable, "-u", "-c", NAMED + code]
    return jobs.start(home, release, jobs.new_id("server"), line, {}, {"model": "m", **message})


def stop(job: jobs.Job) -> None:
    stopping.stop(job, grace=0.2, term=0.2)


@pytest.mark.parametrize(
    ("title", "role", "rank"),
    [
        ("sglang::scheduler", "scheduler", ""),
        ("sglang::scheduler_TP1", "scheduler", "TP1"),
        ("sglang::scheduler_DP0_TP12_EP3", "scheduler", "DP0 TP12 EP3"),
        ("sglang::scheduler_PP1_ATTN_CP0_MOE_DP2_TP3", "scheduler", "PP1 ATTN_CP0 MOE_DP2 TP3"),
        ("sglang::detokenizer", "detokenizer", ""),
        ("sglang::data_parallel_controller", "data_parallel_controller", ""),
        ("sglang::tokenizer_worker:77", "tokenizer_worker", ""),
        ("python -m sglang.launch_server", "helper", ""),
    ],
)
def test_names_that_sglang_gives_its_processes(
    title: str, role: str, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "title_of", lambda pid: title)
    stat = identity.stat_of(os.getpid())
    assert stat is not None
    one = processes.from_stat(stat, None)
    assert (one.role, one.rank) == (role, rank)


def test_who_computes_and_who_sleeps(home: Path, release: Path) -> None:
    code = "child('busy', lambda: [0 for _ in iter(int, 1)])\nchild('idle', lambda: time.sleep(600))\ntime.sleep(600)"
    job = start(home, release, code)
    until(lambda: len(processes.look(job).alive) == 3)
    until(lambda: [one.title for one in processes.watch(job)[1]] != [])
    now, busy = processes.watch(job)
    assert len(busy) == 1
    assert {one.role for one in now.alive} == {"main", "helper"}
    assert "computes" in processes.doing(now, busy)
    assert now.dead == now.halted == ()
    stop(job)


def test_a_halted_process_is_told_from_one_that_sleeps(home: Path, release: Path) -> None:
    job = start(home, release, "time.sleep(600)")
    until(lambda: processes.look(job).alive)
    assert job.leader is not None
    os.kill(job.leader.pid, signal.SIGSTOP)
    until(lambda: processes.look(job).halted)
    assert "is halted by a signal" in processes.doing(*processes.watch(job, 0.05))
    os.kill(job.leader.pid, signal.SIGCONT)
    stop(job)


@pytest.mark.parametrize(("end", "code"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)])
def test_a_scheduler_that_died_is_missed_while_the_first_process_lives(
    home: Path, release: Path, end: str, code: int
) -> None:
    job = start(home, release, f"child('sglang::scheduler_TP1', lambda: {end})\ntime.sleep(600)", tp=1)
    until(lambda: processes.look(job).dead)
    (dead,) = processes.look(job).dead
    assert (dead.role, dead.ended_with) == ("scheduler", code)
    os.kill(job.leader.pid, signal.SIGKILL)  # type: ignore[union-attr]
    until(lambda: processes.look(job).alive == ())
    assert processes.look(job).dead == ()  # then all are gone, and the exit code speaks
    stop(job)


def test_a_scheduler_whose_death_left_no_trace_is_missed_by_the_supervisors_note(home: Path, release: Path) -> None:
    gate = home / "go"
    wait = f"[time.sleep(0.02) for _ in iter(lambda: os.path.exists({str(gate)!r}), True)]"
    code = f"child('sglang::scheduler', lambda: ({wait}, os._exit(0)))\nos.wait()\ntime.sleep(600)"  # reaped: no zombie
    job = start(home, release, code)
    until(lambda: processes.seen(job))
    assert processes.look(job).dead == ()
    gate.touch()
    until(lambda: processes.look(job).dead)
    (dead,) = processes.look(job).dead
    assert (dead.role, dead.ended_with) == ("scheduler", None)
    stop(job)


def test_a_descendant_without_our_environment_is_a_member_and_a_stranger_is_not(home: Path, release: Path) -> None:
    code = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', 'import time; time.sleep(600)'], env={{}}, start_new_session=True)"
    job = start(home, release, code)
    until(lambda: len(stopping.members(job)) == 2)
    (bare,) = [one for one in stopping.members(job) if not identity.carries_job(one.pid, job.id)]
    far = identity.identify(bare.pid)
    assert far is not None
    assert os.getpid() not in {one.pid for one in stopping.members(job)}
    report = stopping.stop(job, grace=0.5, term=2)
    assert report.stopped, report.sentence
    assert not identity.same_process(far)
