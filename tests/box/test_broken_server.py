"""A real SGLang server that is halted, and one whose scheduler dies: what the box says of it, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.box import identity, shm
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import (
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobStatus,
    Phase,
    ServerSpec,
    ServerStatus,
    Snapshot,
    StackReport,
    StopReport,
    encode,
)
from eagle3_remote.server import ledger, processes, watchdog
from tests.box.client import AgentProcess, agent, until
from tests.box.test_real_server import MAKE_DATA, MAKE_MODEL, free_port, server_of, wait_ready

SAMPLES = 1000
"""So many that the server is killed in the middle."""


@pytest.fixture(scope="module", params=install.VERSIONS)
def bed(request: pytest.FixtureRequest) -> install.TestBed:
    return install.ensure(request.param)


@pytest.fixture(scope="module")
def model(bed: install.TestBed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "llama"
    subprocess.run([bed.python, str(MAKE_MODEL), "llama", str(path)], check=True, env={**os.environ, **bed.env})
    return path


@pytest.fixture
def box(bed: install.TestBed, release: Path, home: Path) -> Iterator[AgentProcess]:
    path = os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent)))  # py-spy is beside this Python
    with agent(release, home, str(bed.python), {**bed.env, "PATH": path}) as one:
        yield one
    for job in jobs.everything(home):
        stopping.stop(job, grace=5)


def the_job(home: Path, status: JobStatus) -> jobs.Job:
    job = jobs.find(home, status.id)
    assert job is not None
    return job


def scheduler_of(job: jobs.Job) -> processes.Process:
    (one,) = processes.look(job).role("scheduler")
    return one


def becomes(box: AgentProcess, phase: Phase, wait: float = 120.0) -> ServerStatus:
    until(lambda: server_of(box).phase is phase, wait, every=0.3)
    return server_of(box)


@pytest.mark.parametrize("bed", install.VERSIONS[:1], indirect=True)  # its HTTP side outlives its schedulers
def test_a_server_that_answers_over_a_hung_and_then_a_dead_scheduler(
    bed: install.TestBed, model: Path, box: AgentProcess, home: Path, tmp_path: Path
) -> None:
    spec = ServerSpec(model=str(model), python=str(bed.python), port=free_port(), extra_args=bed.server_args)
    job = the_job(home, box.ask(JobStatus, "server.start", **encode(spec)))
    until(lambda: processes.look(job).role("scheduler"), 240, every=0.1)
    os.kill(scheduler_of(job).pid, signal.SIGSTOP)  # before the weights
    stuck = becomes(box, Phase.STUCK)
    pid = scheduler_of(job).pid
    assert f"Halted by a signal: scheduler (pid {pid}); `kill -CONT {pid}`" in stuck.sentence
    assert "stuck in " in stuck.sentence
    os.kill(pid, signal.SIGCONT)
    wait_ready(box)
    start_extraction(box, tmp_path, 20)  # the first request of its life
    until(lambda: extraction_of(box).state is ExtractState.FINISHED, 240, every=0.3)

    os.kill(pid, signal.SIGSTOP)
    stuck = becomes(box, Phase.STUCK)
    assert stuck.health_ms is not None  # /health alone would have said that all is well
    assert f"scheduler (pid {pid})" in stuck.sentence
    stack = box.ask(StackReport, "server.stack", job=None)
    by_name = {one.name: one for one in stack.processes}
    assert {"main", "scheduler", "detokenizer"} <= set(by_name)
    assert by_name["scheduler"].pid == pid
    assert by_name["scheduler"].state == "is halted by a signal (SIGSTOP)"
    assert by_name["scheduler"].how == "py-spy", by_name["scheduler"].lines
    assert "event_loop" in "\n".join(by_name["scheduler"].lines)  # where SGLang's scheduler is
    os.kill(pid, signal.SIGCONT)
    becomes(box, Phase.READY)

    os.kill(pid, signal.SIGKILL)
    failed = becomes(box, Phase.FAILED)
    assert failed.health_ms is not None
    assert f"scheduler (pid {pid}) was killed (signal 9)" in failed.sentence
    assert failed.log.failure == "scheduler_died"
    assert_nothing_is_left_by(box.ask(StopReport, "server.stop", wait=120, job=None), job, spec)
    assert server_of(box).phase is Phase.EXITED


def assert_nothing_is_left_by(report: StopReport, job: jobs.Job, spec: ServerSpec) -> None:
    assert report.stopped, report.sentence
    assert report.leftovers == (), report.sentence
    assert f"Port {spec.port} is free." in report.sentence
    assert not [stat for stat in identity.living() if identity.carries_job(stat.pid, job.id)]
    assert ledger.segments(job)  # it had some
    assert not ledger.segments(job) & shm.present()
    assert not Path(str(job.spec["dump_dir"])).exists()


@pytest.mark.parametrize("bed", install.VERSIONS[1:], indirect=True)  # it ends itself when a scheduler dies
def test_a_server_that_is_killed_under_an_extraction_comes_back_and_the_extraction_ends_well(
    bed: install.TestBed, model: Path, box: AgentProcess, home: Path, release: Path, tmp_path: Path
) -> None:
    spec = ServerSpec(model=str(model), python=str(bed.python), port=free_port(), extra_args=bed.server_args)
    job = the_job(home, box.ask(JobStatus, "server.start", **encode(spec)))
    assert "up to 3 times" in box.call("server.watch", job=None, on=True)
    wait_ready(box)
    start_extraction(box, tmp_path, SAMPLES)
    until(lambda: extraction_of(box).stored > 20, 240)
    before = job.leader
    os.kill(scheduler_of(job).pid, signal.SIGKILL)
    box.kill()  # nobody watches from outside
    until(lambda: len(watchdog.record(job).restarts) == 1, 240)
    until(lambda: job.leader != before, 120)
    with agent(release, home, str(bed.python), bed.env) as later:
        wait_ready(later)
        (restart,) = server_of(later).restarts
        assert "-9" in restart.reason
        assert "Restarted 1 of 3 because: " in server_of(later).sentence
        until(lambda: extraction_of(later).state is not ExtractState.RUNNING, 240, every=0.5)
        until(lambda: extraction_of(later).state in (ExtractState.FINISHED, ExtractState.FAILED), 240, every=0.5)
        done = extraction_of(later)
        assert (done.state, done.stored, done.failed) == (ExtractState.FINISHED, SAMPLES, 0), done.sentence
        assert_nothing_is_left_by(later.ask(StopReport, "server.stop", wait=120, job=None), job, spec)


def start_extraction(box: AgentProcess, tmp_path: Path, samples: int) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    make = [sys.executable, str(MAKE_DATA), str(data), "--samples", str(samples), "--longest", "300"]
    subprocess.run(make, check=True)
    box.call("extract.start", wait=120, **encode(ExtractSpec(data=str(data), out=str(out))))


def extraction_of(box: AgentProcess) -> ExtractStatus:
    seen = box.ask(Snapshot, "snapshot", paths={}).extract
    assert seen is not None
    return seen
