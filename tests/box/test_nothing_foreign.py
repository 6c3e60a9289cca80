"""Two servers side by side and everything that could be mistaken for them: only ours is ended, and all of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.box import identity
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import JobState, StopReport
from tests.box.client import agent, until

SERVES = """
import os, signal, socket, sys, time
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
if os.fork() == 0:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
    os.setsid()  # a scheduler that left the session and hears no TERM
print('up', flush=True)
time.sleep(600)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server(home: Path, release: Path, port: int) -> jobs.Job:
    """A stand-in for a server, with a child that ignores TERM in a session of its own."""
    line = [sys.executable, "-u", "-c", SERVES, str(port)]
    job = jobs.start(home, release, jobs.new_id("server"), line, {}, {"model": "m", "python": "p", "port": port})
    until(lambda: len(stopping.members(job)) == 2 and job.log_path.read_text().count("up") == 2)
    return job


@pytest.fixture
def quick(release: Path) -> Iterator[None]:
    """The released agent does not wait half a minute for a child that will not hear."""
    path = release / "eagle3_remote" / "server" / "control.py"
    old = path.read_text()
    assert "STOP_GRACE = 30.0" in old
    path.write_text(old.replace("STOP_GRACE = 30.0", "STOP_GRACE = 1.0"))
    yield
    path.write_text(old)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's server, on a port of its own."""
    line = [sys.executable, "-u", "-c", SERVES, str(free_port())]
    with subprocess.Popen(line, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        for pid in (child for stat in identity.living() if stat.ppid == process.pid for child in [stat.pid]):
            os.kill(pid, signal.SIGKILL)
        process.kill()


@pytest.mark.usefixtures("quick")
def test_only_ours_is_ended_and_all_of_it(
    home: Path, release: Path, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    neighbour_home = tmp_path / "neighbour"
    ours, neighbour = server(home, release, free_port()), server(neighbour_home, release, free_port())
    forged = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-c", "pass"], {}, {"port": free_port()})
    until(lambda: jobs.state_of(forged) is JobState.FINISHED)
    try:
        others = {stat.pid for stat in stopping.members(neighbour)}
        with agent(release, home) as box:
            # a pid file that names a stranger exactly, and one whose pid was used again since
            seen = identity.identify(stranger.pid)
            assert seen is not None
            for start_time in (seen.start_time, seen.start_time - 1):
                record = {"boot_id": seen.boot_id, "pid": seen.pid, "start_time": start_time, "pgid": seen.pid}
                (forged.run_dir / "pid.json").write_text(json.dumps(record))
                (forged.run_dir / "rc").unlink(missing_ok=True)
                report = box.ask(StopReport, "server.stop", job=forged.id)
                assert not report.stopped
                assert "nothing was signalled" in report.sentence

            report = box.ask(StopReport, "server.stop", job=ours.id)
            assert report.stopped, report.sentence
            assert report.leftovers == ()
            assert "was killed; none of its processes is left" in report.sentence
            assert stopping.members(ours) == []
            assert {stat.pid for stat in stopping.members(neighbour)} == others
            assert stranger.poll() is None

            # the port is somebody else's by now
            with socket.create_server(("127.0.0.1", int(ours.spec["message"]["port"]))):
                report = box.ask(StopReport, "server.stop", job=ours.id)
                assert f"is held by pid {os.getpid()} (user " in report.sentence
                assert "which is not of this job" in report.sentence
        assert stranger.poll() is None
        assert {stat.pid for stat in stopping.members(neighbour)} == others
    finally:
        stopping.stop(neighbour, grace=0.2, term=0.2)
    assert stopping.members(neighbour) == []
