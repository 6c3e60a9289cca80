"""A server that crashes while an extraction runs is started again by its own supervisor: how often, and when never."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote import serverlog
from eagle3_remote.job import jobs, secretfile, stopping
from eagle3_remote.protocol import JobState, Phase, Restart, encode
from eagle3_remote.protocol.server import ServerSpec
from eagle3_remote.server import apikey, watchdog
from eagle3_remote.server.status import StatusReader, with_restarts
from tests.box.client import until

CRASHES = """

import os, sys, time
count = len([name for name in os.listdir(sys.argv[1]) if name.startswith('out.')])
print(f'incarnation {count}', flush=True)
if count < 3:
    if 'SAYS' in os.environ:
        sys.exit(os.environ['SAYS'])
    raise RuntimeError('it broke')
time.sleep(600)
"""


@pytest.fixture
def quick(release: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The released supervisor waits for tenths of seconds instead of minutes."""
    path = release / "eagle3_remote" / "server" / "watchdog.py"
    old = path.read_text()
    assert "BACK_OFF = (5.0, 20.0, 60.0)" in old
    path.write_text(old.replace("BACK_OFF = (5.0, 20.0, 60.0)", "BACK_OFF = (0.2, 0.2, 30.0)"))
    yield
    path.write_text(old)


@pytest.fixture
def extraction(home: Path, release: Path) -> Iterator[jobs.Job]:
    """A job that the box takes for an extraction on the server's dump directory."""
    line = [sys.executable, "-c", "import time; time.sleep(600)"]
    job = jobs.start(home, release, jobs.new_id("extract"), line, {}, {"data": "d", "out": "/o", "dump_dir": "/dump"})
    yield job
    stopping.stop(job, grace=20)


def server(home: Path, release: Path, code: str = CRASHES, *, watch: bool = True, says: str = "") -> jobs.Job:
    """A stand-in for a server; the flag is there before it can crash."""
    job_id = jobs.new_id("server")
    env = {"SAYS": says} if says else {}
    message = encode(ServerSpec(model="m", python=sys.executable))
    gate = home / f"go-{job_id}"
    wait = f"import os, sys, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    line = [sys.executable, "-u", "-c", wait + code]
    facts = {"dump_dir": "/dump"}
    job = jobs.start(home, release, job_id, line, env, message, facts=facts, run_dir_arg=True)
    watchdog.set_watch(job, watch)
    gate.touch()
    return job


def ended(job: jobs.Job) -> bool:
    return jobs.state_of(job) is JobState.FINISHED


@pytest.mark.usefixtures("quick", "extraction")
def test_a_crashed_server_comes_back_as_the_same_job(home: Path, release: Path) -> None:
    job = server(home, release)
    until(lambda: (job.run_dir / "out.2.log").exists() and "incarnation 3" in job.log_path.read_text())
    until(lambda: watchdog.record(job).starts_at is None)
    first = job.leader
    assert jobs.state_of(job) is JobState.RUNNING
    assert [one.reason for one in watchdog.record(job).restarts] == ["RuntimeError: it broke"] * 2
    seen = StatusReader(home).server()
    assert len(seen.restarts) == 2
    assert seen.watched
    assert "Restarted 2 of 3 because: RuntimeError: it broke." in seen.sentence
    assert first is not None
    os.kill(first.pid, 9)  # the third time it is waited for: half a minute
    until(lambda: watchdog.record(job).starts_at is not None)
    waiting = StatusReader(home).server()
    assert waiting.phase is Phase.SPAWNING
    assert "(restart 3 of 3): it ended by signal 9." in waiting.sentence
    report = stopping.stop(job, grace=1)  # who is waited for can be stopped
    assert report.stopped, report.sentence
    assert "had no process just then and is not started again" in report.sentence
    assert ended(job)
    assert len(watchdog.record(job).restarts) == 2
    assert StatusReader(home).server().phase is Phase.EXITED


@pytest.mark.usefixtures("extraction")
def test_who_takes_the_port_of_a_server_that_waits_does_not_get_its_key(
    home: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLE3_HOME", str(home))
    job = server(home, release, "time.sleep(600)")
    secretfile.write(job.run_dir, secretfile.Secrets({}, {"--api-key": "the-key"}))
    url = f"http://127.0.0.1:{job.spec['message']['port']}"
    until(lambda: apikey.key_for(url) == "the-key")
    assert job.leader is not None
    os.kill(job.leader.pid, 9)
    until(lambda: watchdog.record(job).starts_at is not None)
    assert jobs.state_of(job) is JobState.RUNNING
    assert apikey.key_for(url) == ""
    assert stopping.stop(job, grace=1).stopped


@pytest.mark.usefixtures("quick", "extraction")
def test_a_cause_that_a_restart_cannot_cure_ends_it(home: Path, release: Path) -> None:
    job = server(home, release, says="launch_server.py: error: unrecognized arguments: --no-such")
    until(lambda: ended(job))
    assert not (job.run_dir / "out.1.log").exists()
    assert "cannot cure this: launch_server.py: error: unrecognized" in watchdog.record(job).given_up
    assert "It is not started again: a restart cannot cure this" in StatusReader(home).server().sentence


@pytest.mark.usefixtures("quick", "extraction")
def test_four_crashes_are_too_many(home: Path, release: Path) -> None:
    (release / "eagle3_remote" / "server" / "watchdog.py").write_text(
        (release / "eagle3_remote" / "server" / "watchdog.py")
        .read_text()
        .replace("(0.2, 0.2, 30.0)", "(0.1, 0.1, 0.1)")
    )
    job = server(home, release, CRASHES.replace("count < 3", "True"))
    until(lambda: ended(job))
    assert jobs.exit_code(job) == 1
    assert sorted(path.name for path in job.run_dir.glob("out.*")) == ["out.1.log", "out.2.log", "out.3.log", "out.log"]
    assert "restarted 3 times already" in watchdog.record(job).given_up


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("watch", [True, False])
def test_without_an_extraction_or_without_being_asked_nothing_is_restarted(
    home: Path, release: Path, watch: bool, request: pytest.FixtureRequest
) -> None:
    if not watch:
        request.getfixturevalue("extraction")
    job = server(home, release, watch=watch)
    until(lambda: ended(job))
    assert watchdog.record(job) == watchdog.Record()
    assert StatusReader(home).server().phase is Phase.FAILED


@pytest.mark.usefixtures("quick", "extraction")
def test_who_was_asked_to_end_is_not_restarted(home: Path, release: Path) -> None:
    job = server(home, release, "import time; print('up', flush=True); time.sleep(600)")
    until(lambda: "up" in job.log_path.read_text())
    assert job.leader is not None
    os.kill(job.leader.pid, 15)
    until(lambda: ended(job))
    assert watchdog.record(job).restarts == ()


@pytest.mark.usefixtures("quick", "extraction")
def test_what_the_crash_left_running_is_ended_before_the_restart(home: Path, release: Path) -> None:
    left = "if os.fork() == 0:\n    os.setsid(); time.sleep(600)\n"
    job = server(home, release, CRASHES.replace("if count < 3:", left + "if count < 3:"))
    until(lambda: (job.run_dir / "out.2.log").exists() and "incarnation 3" in job.log_path.read_text())
    until(lambda: len(stopping.members(job)) == 2)  # this incarnation and its own child
    assert stopping.stop(job, grace=0.2, term=5).stopped


@pytest.mark.usefixtures("quick", "extraction")
@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ("        number = len(record(self._job).restarts)\n", "is not started again"),
        ("        self._ledger.begin()\n", "was just being started again and was killed"),  # asked too late to be seen
    ],
    ids=["before the start", "at the start"],
)
def test_a_stop_in_the_middle_of_a_restart_ends_it_too(home: Path, release: Path, slow: str, words: str) -> None:
    path = release / "eagle3_remote" / "server" / "watchdog.py"
    text = path.read_text()
    assert slow in text
    wait = f"        open({str(home / 'asked')!r}, 'a').close()\n        time.sleep(1.0)\n"
    if "begin" in slow:  # only before the second incarnation
        wait = "        if record(self._job).restarts:\n" + wait.replace("        ", " " * 12)
    path.write_text(text.replace(slow, wait + slow))
    job = server(home, release, "\nif os.path.exists(sys.argv[1] + '/out.1.log'): time.sleep(600)\nsys.exit(3)")
    until(lambda: (home / "asked").exists())
    report = stopping.stop(job, grace=1)
    assert report.stopped, report.sentence
    assert words in report.sentence
    assert ended(job)
    assert stopping.members(job) == []
    assert watchdog.record(job).starts_at is None


BLOCKS = """
import os, sys
place = sys.argv[1] + '/pid.json'
os.unlink(place)
os.makedirs(place + '/x')
sys.exit(3)
"""


@pytest.mark.usefixtures("quick", "extraction")
def test_a_restart_that_cannot_be_written_down_is_none_and_the_end_is(home: Path, release: Path) -> None:
    job = server(home, release, BLOCKS)
    until(lambda: ended(job))
    assert jobs.exit_code(job) == 3
    assert (job.run_dir / "out.1.log").exists()
    assert stopping.members(job) == []
    kept = watchdog.record(job)
    assert (kept.restarts, kept.starts_at) == ((), None)
    assert "starting it again failed: " in kept.given_up
    seen = StatusReader(home).server()
    assert seen.phase is Phase.FAILED
    assert "It is not started again: starting it again failed" in seen.sentence


@pytest.mark.parametrize(
    ("kind", "was_ready", "never"),
    [
        ("bad_args", False, True),
        ("missing_weights", True, True),
        ("cuda_oom", False, True),
        ("cuda_oom", True, False),
        ("host_oom_kill", False, True),
        ("host_oom_kill", True, False),
        ("scheduler_exception", False, False),
        ("a_kind_of_tomorrow", False, False),
        (None, False, False),
    ],
)
def test_causes(kind: str | None, was_ready: bool, never: bool) -> None:
    assert watchdog.incurable(kind, was_ready) is never


def test_the_causes_are_those_that_the_log_gives() -> None:
    source = "".join(path.read_text() for path in Path(str(serverlog.__file__)).parent.glob("*.py"))
    for kind in watchdog.INCURABLE | watchdog.INCURABLE_AT_START:
        assert f'"{kind}"' in source, kind


def test_a_record_that_is_torn_or_forged_counts_as_none(home: Path, release: Path) -> None:
    job = server(home, release, "pass", watch=False)
    until(lambda: ended(job))
    for text in ("", "{", "[]", '{"restarts": [1]}', json.dumps({"restarts": [{"at": "x"}]}), '{"starts_at": []}'):
        (job.run_dir / watchdog.RESTARTS_FILE).write_text(text)
        assert watchdog.record(job) == watchdog.Record()


def test_the_sentence_of_a_restart() -> None:
    kept = watchdog.Record((Restart(1.0, "", "it broke"),), starts_at=112.0)
    assert with_restarts(Phase.FAILED, "x", kept, 100.0) == (
        Phase.SPAWNING,
        "The server crashed and is started again in 12 s (restart 1 of 3): it broke.",
    )
    assert with_restarts(Phase.READY, "The server is ready.", watchdog.Record(), 1.0) == (
        Phase.READY,
        "The server is ready.",
    )
