"""Detached jobs: they outlive everybody, are judged honestly, and nothing foreign is ever touched."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.box import identity
from eagle3_remote.job import jobs, secretfile, stopping
from eagle3_remote.protocol import JobState
from tests.box.client import until

SLEEP = "import time; time.sleep(600)"


def start(home: Path, release: Path, code: str, kind: str = "extract", env: dict[str, str] | None = None) -> jobs.Job:
    return jobs.start(
        home, release, jobs.new_id(kind), [sys.executable, "-u", "-c", code], env or {}, {"out": "/x"}, cwd="/"
    )


def stop(job: jobs.Job) -> None:
    stopping.stop(job, grace=0.2, term=0.2)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def log_of(job: jobs.Job) -> str:
    return job.log_path.read_text()


def supervisor_of(job: jobs.Job) -> int:
    return int(json.loads((job.run_dir / "pid.json").read_text())["supervisor_pid"])


def test_a_job_runs_to_its_end(home: Path, release: Path) -> None:
    code = "import os, sys; print(os.environ['A'], os.getcwd()); print('e', file=sys.stderr); sys.exit(7)"
    job = start(home, release, code, env={"A": "one"})
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    status = jobs.status_of(job)
    assert (status.rc, status.kind, status.state) == (7, "extract", JobState.FINISHED)
    assert log_of(job) == "one /\ne\n"
    assert status.log_size == len("one /\ne\n")
    assert status.started_at is not None
    assert status.ended_at is not None
    assert status.ended_at >= status.started_at
    assert (job.run_dir.stat().st_mode & 0o777, job.log_path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert [one.id for one in jobs.everything(home)] == [job.id]


def test_a_job_that_a_signal_ended(home: Path, release: Path) -> None:
    job = start(home, release, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    assert jobs.exit_code(job) == -signal.SIGKILL


def test_a_program_that_is_not_there(home: Path, release: Path) -> None:
    with pytest.raises(jobs.JobError, match=r"/no/such could not be started: No such file"):
        jobs.start(home, release, jobs.new_id("server"), ["/no/such"], {}, {})
    (job,) = jobs.everything(home)
    assert jobs.exit_code(job) == 127
    assert "could not be started" in log_of(job)


def test_a_home_that_cannot_be_written(tmp_path: Path, release: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(jobs.JobError, match="could not be written"):
        start(tmp_path / "file", release, SLEEP)


def test_job_has_its_own_session_and_no_terminal(home: Path, release: Path) -> None:
    job = start(home, release, "import os, sys, time; print(sys.stdin.read() == '', flush=True); time.sleep(600)")
    leader = job.leader
    assert leader is not None
    stat = identity.stat_of(leader.pid)
    assert stat is not None
    assert stat.pgid == stat.sid == leader.pid != os.getsid(0)
    supervisor = identity.stat_of(supervisor_of(job))
    assert supervisor is not None
    assert supervisor.sid not in (os.getsid(0), stat.sid)
    until(lambda: log_of(job) == "True\n")
    stop(job)


def test_supervisor_survives_hangup_and_term(home: Path, release: Path) -> None:
    job = start(home, release, "import time; time.sleep(1); print('done')")
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        os.kill(supervisor_of(job), number)
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    assert (jobs.exit_code(job), log_of(job)) == (0, "done\n")


def test_signals_are_not_ignored_in_the_job(home: Path, release: Path) -> None:
    job = start(home, release, SLEEP)
    report = stopping.stop(job, grace=20)
    assert report.stopped
    assert "after TERM" in report.sentence
    assert jobs.exit_code(job) == -signal.SIGTERM


def test_killed_supervisor_leaves_the_job_running_and_known(home: Path, release: Path) -> None:
    job = start(home, release, SLEEP)
    os.kill(supervisor_of(job), signal.SIGKILL)
    until(lambda: identity.stat_of(supervisor_of(job)) is None)
    assert jobs.state_of(job) is JobState.RUNNING
    report = stopping.stop(job, grace=20)
    assert report.stopped
    assert jobs.state_of(job) is JobState.KILLED  # nobody saw how it ended


def test_a_reboot_is_told_from_a_kill(home: Path, release: Path) -> None:
    job = start(home, release, SLEEP)
    os.kill(supervisor_of(job), signal.SIGKILL)
    assert job.leader is not None
    os.kill(job.leader.pid, signal.SIGKILL)
    until(lambda: jobs.state_of(job) is JobState.KILLED)
    spec = json.loads((job.run_dir / "spec.json").read_text())
    (job.run_dir / "spec.json").write_text(json.dumps({**spec, "boot_id": "another"}))
    again = jobs.find(home, job.id)
    assert again is not None
    assert jobs.state_of(again) is JobState.REBOOTED


@pytest.mark.parametrize("forgery", ["reused pid", "exact identity", "another boot", "garbage"])
def test_a_stranger_is_never_signalled(
    home: Path, release: Path, stranger: subprocess.Popen[bytes], forgery: str
) -> None:
    job = start(home, release, "pass")
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    (job.run_dir / "rc").unlink()
    seen = identity.identify(stranger.pid)
    assert seen is not None
    record = {"boot_id": seen.boot_id, "pid": seen.pid, "start_time": seen.start_time, "pgid": seen.pid}
    if forgery == "reused pid":
        record["start_time"] = seen.start_time - 1
    if forgery == "another boot":
        record["boot_id"] = "another"
    text = "{" if forgery == "garbage" else json.dumps(record)
    (job.run_dir / "pid.json").write_text(text)
    os.utime(job.run_dir / "spec.json")
    report = stopping.stop(job, grace=0.1, term=0.1, kill=0.1)
    assert stopping.terminate_leader(job) is False
    if forgery != "garbage":  # without an identity a fresh run directory is one that is being started
        assert not report.stopped
        assert jobs.state_of(job) is JobState.KILLED
    time.sleep(0.2)
    assert stranger.poll() is None


def test_a_child_that_ignores_term_is_killed(home: Path, release: Path) -> None:
    code = (
        "import os, signal, time\n"
        "for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(n, signal.SIG_IGN)\n"
        "os.fork()\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    job = start(home, release, code)
    until(lambda: log_of(job).count("up") == 2)
    assert len(stopping.members(job)) == 2
    report = stopping.stop(job, grace=0.5, term=0.5)
    assert report.stopped
    assert report.leftovers == ()
    assert "killed" in report.sentence
    assert stopping.members(job) == []
    assert jobs.exit_code(job) == -signal.SIGKILL


def test_grandchildren_that_left_the_session_are_found(home: Path, release: Path) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print('far', flush=True); time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(600)\n"
    )
    job = start(home, release, code)
    until(lambda: "far" in log_of(job))
    assert len({stat.sid for stat in stopping.members(job)}) == 2
    assert stopping.stop(job, grace=1, term=5).stopped
    assert stopping.members(job) == []


def test_orphans_of_a_dead_leader_are_found(home: Path, release: Path) -> None:
    code = "import os, time\nif os.fork() == 0:\n    print('orphan', flush=True); time.sleep(600)\n"
    job = start(home, release, code)
    until(lambda: jobs.state_of(job) is JobState.FINISHED and "orphan" in log_of(job))
    assert len(stopping.members(job)) == 1
    report = stopping.stop(job, grace=0.2, term=5)
    assert report.stopped, report.sentence
    assert stopping.members(job) == []


def test_two_jobs_do_not_touch_each_other(home: Path, release: Path) -> None:
    one, two = start(home, release, SLEEP), start(home, release, SLEEP)
    assert stopping.stop(one, grace=20).stopped
    assert jobs.state_of(two) is JobState.RUNNING
    assert [job.id for job in jobs.living(home, "extract")] == [two.id]
    newest = jobs.newest(home, "extract")
    assert newest is not None
    assert newest.id == two.id
    assert stopping.stop(two, grace=20).stopped


def test_stopping_what_does_not_run(home: Path, release: Path) -> None:
    job = start(home, release, "pass")
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    report = stopping.stop(job)
    assert not report.stopped
    assert "was not running" in report.sentence
    assert not job.stop_requested


def test_ids_cannot_lead_out_of_the_runs(home: Path, release: Path) -> None:
    job = start(home, release, "pass")
    for name in ("../" + job.id, job.id + "/../x", "", ".", "server-1"):
        assert jobs.find(home, name) is None
    until(lambda: jobs.state_of(job) is JobState.FINISHED)


def test_the_process_that_is_gone_has_no_identity(stranger: subprocess.Popen[bytes]) -> None:
    seen = identity.identify(stranger.pid)
    assert seen is not None
    assert identity.same_process(seen)
    stranger.kill()
    until(lambda: not identity.same_process(seen))  # a zombie is not alive
    assert identity.signal_process(seen, signal.SIGTERM) is False
    assert identity.identify(2**22 + 1) is None


def test_looking_at_a_job_while_it_starts_does_not_disturb_it(home: Path, release: Path) -> None:
    watcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import pathlib, sys\n"
            "from eagle3_remote.job import jobs\n"
            "while True: [jobs.status_of(job) for job in jobs.everything(pathlib.Path(sys.argv[1]))]",
            str(home),
        ]
    )
    try:
        started = [start(home, release, "pass") for _ in range(5)]
        for job in started:
            until(lambda job=job: jobs.state_of(job) is JobState.FINISHED)
            assert jobs.exit_code(job) == 0
    finally:
        watcher.kill()
        watcher.wait()


def test_a_job_that_cannot_be_written_down_does_not_run(home: Path, release: Path) -> None:
    job_id = jobs.new_id("server")
    (jobs.runs_dir(home) / job_id).mkdir(parents=True)
    spec = {"id": job_id, "argv": [sys.executable, "-c", SLEEP], "env": {}, "cwd": "/", "message": {}}
    (jobs.runs_dir(home) / job_id / "spec.json").write_text(json.dumps(spec))
    (jobs.runs_dir(home) / job_id / "pid.json").mkdir()  # a rename onto it fails, as on a full disk
    code = jobs.code_of(release, "job.supervisor")
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(jobs.runs_dir(home) / job_id)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert b"Error" in done.stderr
    job = jobs.find(home, job_id)
    assert job is not None
    assert stopping.members(job) == []


@pytest.mark.parametrize(("limit", "size"), [(10, 5), (150, 200), (150, 5)], ids=["secrets", "arguments", "spec"])
def test_of_a_run_directory_that_could_not_be_finished_nothing_is_left(
    home: Path, release: Path, limit: int, size: int
) -> None:
    secrets = secretfile.Secrets({}, {"--api-key": "the-key"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # a write that fails for real, as on a full disk
    try:
        with pytest.raises(jobs.JobError, match="could not be written: File too large"):
            jobs.start(
                home, release, jobs.new_id("server"), ["true"], {}, {}, secrets=secrets, files={"a.yaml": b"-" * size}
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(jobs.runs_dir(home).iterdir()) == []


def test_a_run_directory_that_is_there_already_is_not_touched(home: Path, release: Path) -> None:
    job = start(home, release, "pass")
    with pytest.raises(jobs.JobError, match="File exists"):
        jobs.start(home, release, job.id, ["true"], {}, {})
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    assert (job.run_dir / "spec.json").exists()


def test_a_broken_run_directory_hides_nothing_else(home: Path, release: Path) -> None:
    job = start(home, release, "pass")
    for number, text in enumerate(("", "{", "[]", "{}", '{"id": "x"}')):
        folder = jobs.runs_dir(home) / f"extract-20260101T000000-000{number}"
        folder.mkdir()
        (folder / "spec.json").write_text(text)
    (jobs.runs_dir(home) / "notes").mkdir()
    assert [one.id for one in jobs.everything(home)] == [job.id]
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
