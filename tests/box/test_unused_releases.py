"""Releases that nothing uses go; one that anything may still start from stays."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.starting import _CODE
from eagle3_remote import protocol
from eagle3_remote.box import bootstrap, releases
from eagle3_remote.job import stopping
from eagle3_remote.protocol import CleanReport, JobDetail, JobRecord, JobState, StopReport, decode
from tests.box.client import agent, make_release, until
from tests.box.test_cleaning import DAY, SLEEP, put_release, start


def make_old(release: Path) -> None:
    os.utime(release / bootstrap.STAMP, (time.time() - 2 * DAY,) * 2)


def test_the_last_used_releases_and_young_ones_stay(home: Path) -> None:
    made = [put_release(home, number) for number in range(6)]
    assert releases.collect(home, keep=4) == made[:2]
    assert {path.name for path in (home / "releases").iterdir()} == {path.name for path in made[2:]}
    young = put_release(home, 7, age=0)
    (home / "releases" / "notes").mkdir()
    (home / "releases" / ("f" * 64)).mkdir()  # not complete: its next deploy makes it anew
    assert set(releases.collect(home, keep=0)) == set(made[2:])
    assert {path.name for path in (home / "releases").iterdir()} == {young.name, "notes", "f" * 64}


def test_a_release_that_a_job_uses_stays_until_it_ended(home: Path, release: Path) -> None:
    used, idle = put_release(home, 1, release), put_release(home, 2)
    job = start(home, used, "extract", SLEEP, data="d", out="/x")
    assert releases.collect(home, keep=0) == [idle]
    supervisor = int(json.loads((job.run_dir / "pid.json").read_text())["supervisor_pid"])
    os.kill(supervisor, signal.SIGKILL)  # nobody's command line names the release any more, the job's own spec does
    assert releases.collect(home, keep=0) == []
    stopping.stop(job, grace=5)
    assert releases.collect(home, keep=0) == [used]


@pytest.mark.parametrize("lock", [True, False], ids=["says so", "an older one that does not"])
def test_a_release_that_an_agent_runs_from_stays_until_it_ended(home: Path, release: Path, lock: bool) -> None:
    used, idle = put_release(home, 1, release), put_release(home, 2)
    if not lock:
        source = used / "eagle3_remote" / "agent.py"
        text = source.read_text()
        source.write_text(text.replace("    releases.hold(release)", "    pass #", 1))
        assert source.read_text() != text
    with agent(used, home / "another home") as one:
        one.call("jobs.list", kind=None)
        make_old(used)
        assert releases.collect(home, keep=0) == [idle]
    assert releases.collect(home, keep=0) == [used]


def test_an_agent_that_starts_makes_its_release_young_again(home: Path, release: Path) -> None:
    used = put_release(home, 1, release)
    with agent(used, home / "another home") as one:
        one.call("jobs.list", kind=None)
    assert releases.collect(home, keep=0) == []


def test_a_release_that_an_agent_took_since_the_look_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = put_release(home, 1)

    def looked(*_: object) -> list[Path]:
        os.utime(used / bootstrap.STAMP)  # as an agent does before it asks for the lock that the collector has by now
        return [used]

    monkeypatch.setattr(releases, "unused", looked)
    assert releases.collect(home, keep=0) == []
    assert used.is_dir()


def test_an_agent_waits_for_who_only_looks_and_ends_where_its_release_was_removed(home: Path, release: Path) -> None:
    used = put_release(home, 1, release)
    with open(used / bootstrap.STAMP, "r+b") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        starting = subprocess.Popen(
            [sys.executable, "-I", "-c", _CODE, str(used)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "EAGLE3_HOME": str(home)},
        )
        until(lambda: (used / bootstrap.STAMP).stat().st_mtime > time.time() - 60)
        used.rename(home / "grave")
    assert starting.communicate()[0] == b""
    assert starting.returncode == protocol.NO_RELEASE  # the console takes it for a release that is to be deployed


def test_a_release_that_was_removed_and_deployed_again_meanwhile_is_not_held_by_its_old_stamp(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, real = put_release(home, 1), os.open

    def opened(*words: Any, **more: Any) -> int:
        descriptor = real(*words, **more)
        monkeypatch.undo()
        used.rename(home / "grave")
        assert put_release(home, 1) == used
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(releases.Removed):
        releases.hold(used)


def test_a_lock_that_nobody_gives_is_not_waited_for_for_ever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = put_release(home, 1)
    monkeypatch.setattr(releases, "_LOCK_WAIT", 0.1)
    with open(used / bootstrap.STAMP, "r+b") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        descriptor = releases.hold(used)
    assert descriptor is not None
    os.close(descriptor)


def test_an_agent_that_hides_its_command_line_is_seen_by_its_lock(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = put_release(home, 1)
    monkeypatch.setattr(releases, "_named_by_processes", lambda: iter(()))
    descriptor = releases.hold(used)
    assert descriptor is not None
    make_old(used)
    assert releases.collect(home, keep=0) == []
    os.close(descriptor)
    assert releases.collect(home, keep=0) == [used]


def test_a_deploy_makes_a_release_young_again(home: Path, release: Path) -> None:
    used = put_release(home, 1)
    source = Path(str(bootstrap.__file__)).read_text()
    done = subprocess.run(
        [sys.executable, "-I", "-c", source, str(home), used.name], input=b"", capture_output=True, check=True
    )
    assert done.stdout.decode().split()[0] == "have"
    assert releases.collect(home, keep=0) == []


def test_a_job_of_an_older_release_is_watched_stopped_and_reported_by_a_newer_agent(home: Path, release: Path) -> None:
    older = put_release(home, 1, release)
    (older / "eagle3_remote" / "__init__.py").write_text('"""Older."""\n__version__ = "0.0.1"\n')
    newer = make_release(home / "newer")
    with agent(older, home):  # as that release wrote it down, supervised by that release's code
        job = start(home, older, "extract", SLEEP, data="d", out="/x")
    until(lambda: job.log_path.read_bytes() == b"up\n")
    with agent(newer, home) as one:
        (record,) = [decode(JobRecord, item) for item in one.call("jobs.records")]
        assert (record.status.state, record.release, record.needed) == (JobState.RUNNING, older.name, "it runs")
        assert one.call("releases.clean") == []
        assert one.ask(StopReport, "extract.stop", job=None).stopped
        detail = one.ask(JobDetail, "jobs.show", job=job.id, lines=1)
        assert (detail.record.words, detail.last_lines) == ("stopped by signal 15 (SIGTERM)", ("up",))
        report = one.ask(CleanReport, "jobs.clean", ids=[job.id], go=True)
        assert [record.needed for record in report.kept] == [
            "it is the newest extraction: the screen and 'report' show it"
        ]
    make_old(older)
    assert releases.collect(home, keep=0) == [older]
