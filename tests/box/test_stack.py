"""What each process does right now: by py-spy where that can look, by /proc in any case; nothing is disturbed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.commands.stack import text
from eagle3_remote.job import jobs, stopping
from eagle3_remote.rpc import Refused
from eagle3_remote.server import processes, stack
from tests.box.client import until

CODE = """
import threading, time
def waits_for_the_others():
    time.sleep(600)
def spins():
    while True: pass
threading.Thread(target=spins, daemon=True).start()
print('up', flush=True)
waits_for_the_others()
"""


@pytest.fixture
def job(home: Path, release: Path) -> Iterator[jobs.Job]:
    line = [sys.executable, "-u", "-c", CODE]
    one = jobs.start(home, release, jobs.new_id("server"), line, {}, {"model": "m", "python": "/no/such/python"})
    until(lambda: "up" in one.log_path.read_text())
    yield one
    stopping.stop(one, grace=5)


def test_by_proc_where_there_is_no_py_spy(job: jobs.Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = stack.report(job)
    (main,) = report.processes
    assert (main.name, main.how, main.threads) == ("main", "/proc", 2)
    assert main.state == "computes"
    assert main.cpu_percent > 20
    spinning, waiting = main.lines
    assert ": R, " in spinning
    assert "nanosleep" in waiting
    assert f"thread {main.pid} " in waiting
    assert "py-spy is not there" in report.sentence
    assert f"main (pid {main.pid}) computes: " in "\n".join(text(report))


def test_by_py_spy_with_the_lines_of_python(job: jobs.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    (main,) = stack.report(job).processes
    said = "\n".join(main.lines)
    assert main.how == "py-spy", said
    assert "waits_for_the_others" in said
    assert "spins" in said


def test_a_py_spy_that_may_not_look_says_why_and_proc_answers(
    job: jobs.Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(
        f"#!{sys.executable}\nimport sys; sys.exit('Permission Denied: Try running again with elevated rights')"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    report = stack.report(job)
    (main,) = report.processes
    assert main.how == "/proc"
    assert main.lines[0].startswith("py-spy could not look: Permission Denied")
    assert "thread" in main.lines[1]
    assert "py-spy may not look into all of them" in report.sentence


def test_a_server_that_is_gone_has_nothing_to_look_at(job: jobs.Job) -> None:
    assert job.leader is not None
    os.kill(job.leader.pid, signal.SIGKILL)
    until(lambda: not processes.look(job).alive)
    with pytest.raises(Refused, match="no living process"):
        stack.report(job)
