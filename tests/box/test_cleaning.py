"""What is removed of ended jobs and unused releases, and what never is."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3_console.commands.jobs import clean_text
from eagle3_remote.box import bootstrap, identity, releases
from eagle3_remote.job import cleaning, jobs, secretfile, stopping
from eagle3_remote.protocol import CleanSpec, JobDetail, JobRecord, JobState, StopReport, decode
from eagle3_remote.server import dumpdir
from tests.box.client import Answered, agent, until
from tests.extract.filling import small_disk_at

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
DAY = 86400.0


def start(home: Path, release: Path, kind: str, code: str = "pass", **message: object) -> jobs.Job:
    job = jobs.start(home, release, jobs.new_id(kind), [sys.executable, "-u", "-c", code], {}, message)
    if code == "pass":
        until(lambda: jobs.state_of(job) is JobState.FINISHED and not jobs.lock_held(job))
    return job


def aged(job: jobs.Job, days: float) -> jobs.Job:
    """As if it had ended so long ago."""
    spec = json.loads((job.run_dir / "spec.json").read_text())
    (job.run_dir / "spec.json").write_text(json.dumps({**spec, "created_at": spec["created_at"] - days * DAY}))
    for path in job.run_dir.iterdir():
        os.utime(path, (time.time() - days * DAY,) * 2)
    return job


def ids(records: tuple[JobRecord, ...]) -> set[str]:
    return {record.status.id for record in records}


def put_release(home: Path, number: int, source: Path | None = None, age: float = 2 * DAY) -> Path:
    """A complete release as the bootstrap leaves it; old enough to go."""
    path = home / "releases" / f"{number:064x}"
    if source is None:
        path.mkdir(parents=True)
    else:
        shutil.copytree(source, path)
    stamp = path / bootstrap.STAMP
    stamp.write_text(path.name)
    os.utime(stamp, (time.time() - age + number,) * 2)
    return path


def test_however_many_jobs_there_are_the_processes_are_looked_at_once(
    home: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        aged(start(home, release, "merge"), 30)
    for number in range(releases.KEEP + 2):
        put_release(home, number)
    looks: list[None] = []
    everything = identity.everything

    def counted() -> list[identity.ProcessStat]:
        looks.append(None)
        return everything()

    monkeypatch.setattr(identity, "everything", counted)
    monkeypatch.setattr(identity, "carries_job", lambda *_: pytest.fail("an environment is read once more"))
    assert (len(cleaning.records(home)), len(looks)) == (3, 1)
    looks.clear()
    assert len(cleaning.clean(home, CleanSpec(keep=1, go=True)).jobs) == 2
    assert len(looks) == 1
    looks.clear()
    releases.unused(home, keep=0)
    assert len(looks) == 1


def test_every_job_in_words(home: Path, release: Path) -> None:
    server = start(home, release, "server", "import sys; sys.exit(3)", model="m", python="p")
    killed = start(home, release, "merge", "import os; os.kill(os.getpid(), 9)")
    until(lambda: {jobs.state_of(one) for one in (server, killed)} == {JobState.FINISHED})
    running = start(home, release, "extract", SLEEP, data="d", out="/no/such/out")
    until(lambda: running.log_path.read_bytes() == b"up\n")
    with agent(release, home) as one:
        records = [decode(JobRecord, record) for record in one.call("jobs.records")]
        assert [record.status.id for record in records] == [running.id, killed.id, server.id]
        assert [record.words for record in records] == [
            "running",
            "killed by signal 9 (SIGKILL)",
            "finished (exit code 3)",
        ]
        assert all(record.size > record.status.log_size for record in records)
        assert {record.release for record in records} == {str(release)}
        detail = one.ask(JobDetail, "jobs.show", job=running.id, lines=5)
        assert (detail.last_lines, detail.cwd, detail.message["out"]) == (("up",), "/", "/no/such/out")
        assert f"runs as process {detail.record.status.pid}" in detail.ended
        one.ask(StopReport, "extract.stop", job=None)
        detail = one.ask(JobDetail, "jobs.show", job=running.id, lines=5)
        assert detail.record.words == "stopped by signal 15 (SIGTERM)"
        assert "had been asked for" in detail.ended
        with pytest.raises(Answered, match="There is no job extract-x"):
            one.call("jobs.show", job="extract-x", lines=1)
        with pytest.raises(Answered, match="'jobs list' shows"):
            one.call("jobs.clean", ids=["extract-x"], go=True)


def test_only_what_is_old_and_not_needed_goes_and_only_when_told(home: Path, release: Path) -> None:
    old = [aged(start(home, release, "merge"), days) for days in (40, 30, 20, 10)]
    young = start(home, release, "merge")
    rule = CleanSpec(older_than=7 * DAY, keep=2)
    planned = cleaning.clean(home, rule)
    assert (planned.gone, ids(planned.jobs)) == (
        False,
        {job.id for job in old[:3]},
    )  # young and the 10 days old one are 2
    assert {job.id for job in jobs.everything(home)} == {job.id for job in (*old, young)}
    done = cleaning.clean(home, CleanSpec(ids=tuple(ids(planned.jobs)), go=True))
    assert (done.gone, ids(done.jobs), done.problems) == (True, ids(planned.jobs), ())
    assert done.bytes == planned.bytes > 0
    assert {job.id for job in jobs.everything(home)} == {old[3].id, young.id}
    assert {path.name for path in jobs.runs_dir(home).iterdir()} == {old[3].id, young.id, ".lock"}


@pytest.mark.parametrize("how", ["by rule", "by id"])
def test_what_runs_or_is_needed_never_goes(home: Path, release: Path, tmp_path: Path, how: str) -> None:
    dataset, dumps = tmp_path / "data", tmp_path / "dumps"
    dataset.mkdir()
    dumps.mkdir()
    with_dumps = start(home, release, "server", model="m", python="p")
    spec = json.loads((with_dumps.run_dir / "spec.json").read_text())
    (with_dumps.run_dir / "spec.json").write_text(json.dumps({**spec, "dump_dir": str(dumps)}))
    (dumps / dumpdir.OWNER_FILE).write_text(json.dumps({"job": with_dumps.id}))
    serving = start(home, release, "server", model="m", python="p")
    useless = start(home, release, "server", model="m", python="p")
    newest = start(home, release, "server", model="m", python="p")
    earlier = start(home, release, "extract", data="d", out=str(dataset))
    of_dataset = start(home, release, "extract", data="d", out=str(dataset))
    of_nothing = start(home, release, "extract", data="d", out=str(tmp_path / "gone"))
    running = jobs.start(
        home,
        release,
        jobs.new_id("extract"),
        [sys.executable, "-c", SLEEP],
        {},
        {"data": "d", "out": "/x"},
        facts={"server_job": serving.id},
    )
    orphaned = start(home, release, "merge", "import os, time\nif os.fork() == 0: time.sleep(600)")
    until(lambda: jobs.state_of(orphaned) is JobState.FINISHED)
    everything = [with_dumps, serving, useless, newest, earlier, of_dataset, of_nothing, running, orphaned]
    wish = CleanSpec(go=True) if how == "by rule" else CleanSpec(ids=tuple(job.id for job in everything), go=True)
    try:
        report = cleaning.clean(home, wish)
        assert ids(report.jobs) == {useless.id, earlier.id, of_nothing.id}
        needed = {record.status.id: record.needed for record in report.kept}
        assert str(dumps) in needed[with_dumps.id]
        assert running.id in needed[serving.id]
        assert "newest server" in needed[newest.id]
        assert str(dataset) in needed[of_dataset.id]
        assert "still live" in needed[orphaned.id]
        assert how == "by rule" or needed[running.id] == "it runs"
        assert {job.id for job in jobs.everything(home)} == {job.id for job in everything} - ids(report.jobs)
        assert jobs.state_of(running) is JobState.RUNNING
    finally:
        stopping.stop(running, grace=5)
        stopping.stop(orphaned, grace=5)


def test_a_cleaning_that_was_killed_leaves_no_half_job(home: Path, release: Path) -> None:
    job = start(home, release, "merge")
    half = jobs.runs_dir(home) / f".gone-{job.id}"
    half.mkdir()
    (half / "spec.json").write_text("{}")
    assert [one.id for one in jobs.everything(home)] == [job.id]
    assert ids(cleaning.clean(home, CleanSpec(go=True)).jobs) == {job.id}
    assert [path.name for path in jobs.runs_dir(home).iterdir()] == [".lock"]


def test_what_cannot_be_deleted_is_said(home: Path, release: Path, needs: Callable[[bool, str], None]) -> None:
    job = start(home, release, "merge")
    with small_disk_at(job.run_dir / "mounted", "1m", needs):
        report = cleaning.clean(home, CleanSpec(go=True))
        (left,) = jobs.runs_dir(home).glob(".gone-*")
        (problem,) = report.problems
        assert str(left) in problem
        assert "mounted: Device or resource busy" in problem
        assert [path.name for path in left.iterdir()] == ["mounted"]  # what could be deleted is
        os.rename(left, job.run_dir)  # where it was mounted
    shutil.rmtree(job.run_dir)


def half_written(home: Path, age: float = DAY) -> Path:
    """What is left when the start is killed before spec.json is written."""
    run_dir = jobs.runs_dir(home) / jobs.new_id("server")
    run_dir.mkdir(parents=True)
    secretfile.write(run_dir, secretfile.Secrets({}, {"--api-key": "the-key"}))
    os.utime(run_dir, (time.time() - age,) * 2)
    return run_dir


def test_a_run_folder_whose_start_was_killed_goes_with_its_secrets(home: Path) -> None:
    half = half_written(home)
    planned = cleaning.clean(home, CleanSpec())
    assert (planned.unfinished, planned.bytes > 0, half.exists()) == ((str(half),), True, True)
    assert f"Would remove {half}: its job was never started" in clean_text(planned)
    assert cleaning.clean(home, CleanSpec(go=True)).unfinished == (str(half),)
    assert [path.name for path in jobs.runs_dir(home).iterdir()] == [".lock"]


@pytest.mark.parametrize("why", ["young", "locked", "no job's name"])
def test_a_folder_that_may_be_in_use_or_is_no_jobs_stays(home: Path, why: str) -> None:
    half = half_written(home, age=1 if why == "young" else DAY)
    if why == "no job's name":
        half = half.rename(half.with_name("notes"))
    with open(half / "lock", "w") as lock:
        if why == "locked":
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(half, (half.stat().st_atime, time.time() - (1 if why == "young" else DAY)))
        report = cleaning.clean(home, CleanSpec(go=True))
    assert (report.unfinished, report.problems, half.exists()) == ((), (), True)


def test_a_job_that_starts_meanwhile_is_not_removed_with_what_was_agreed_to(home: Path, release: Path) -> None:
    job = start(home, release, "merge")
    planned = cleaning.clean(home, CleanSpec())
    later = start(home, release, "merge")
    done = cleaning.clean(home, CleanSpec(ids=tuple(ids(planned.jobs)), go=True))
    assert ids(done.jobs) == {job.id}
    assert [one.id for one in jobs.everything(home)] == [later.id]
