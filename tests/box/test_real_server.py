"""Real SGLang on the CPU through the agent: plan, start, phases, markers, ready, probe, crash, stop, nothing left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.box import identity
from eagle3_remote.protocol import (
    E_REFUSED,
    ExtractReport,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobState,
    JobStatus,
    LaunchPlan,
    Phase,
    ProbeReport,
    ServerSpec,
    ServerStatus,
    Snapshot,
    StopReport,
    VerifyReport,
    encode,
)
from tests.box.client import AgentProcess, Answered, agent, until

MAKE_MODEL = Path(install.__file__).parent / "make_model.py"
MAKE_DATA = MAKE_MODEL.with_name("make_data.py")


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
    with agent(release, home, str(bed.python), bed.env) as one:
        yield one
    with agent(release, home, str(bed.python), bed.env) as one:
        for kind in ("extract", "server"):  # what a test that failed left running
            for job in one.call("jobs.list", kind=kind):
                if job["state"] == "running":
                    one.call(f"{kind}.stop", job=job["id"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_of(box: AgentProcess) -> ServerStatus:
    return box.ask(Snapshot, "snapshot", paths={}).server


def wait_ready(box: AgentProcess) -> list[Phase]:
    """The phases seen on the way."""
    seen: list[Phase] = []

    def ready() -> bool:
        status = server_of(box)
        if not seen or seen[-1] is not status.phase:
            seen.append(status.phase)
        assert status.phase is not Phase.FAILED, status.sentence
        return status.phase in (Phase.READY, Phase.BUSY)

    until(ready, 240, every=0.3)
    return seen


def test_a_server_from_start_to_stop(
    bed: install.TestBed, model: Path, box: AgentProcess, home: Path, release: Path, tmp_path: Path
) -> None:
    spec = ServerSpec(
        model=str(model), python=str(bed.python), port=free_port(), boundaries=(0, 3, 8), extra_args=bed.server_args
    )
    asked = encode(spec)
    plan = box.ask(LaunchPlan, "server.plan", **asked)
    assert plan.sglang_version == bed.version
    assert "--disable-radix-cache" in plan.argv
    assert plan.env["PYTHONPATH"] == f"{release}/eagle3_patch/entry:{bed.stubs}"
    assert box.call("jobs.list", kind=None) == []  # a plan starts and leaves nothing

    job = box.ask(JobStatus, "server.start", **asked)
    with pytest.raises(Answered, match="runs already") as twice:
        box.call("server.start", **asked)
    assert twice.value.code == E_REFUSED
    box.kill()  # the console is gone; the server does not notice

    with agent(release, home, str(bed.python), bed.env) as later:
        seen = wait_ready(later)
        assert set(seen) <= set(Phase) - {Phase.NOT_RUNNING, Phase.EXITED, Phase.FAILED, Phase.UNRESPONSIVE}
        status = server_of(later)
        assert status.job is not None
        assert status.job.id == job.id
        spans = [span.phase for span in status.log.spans]
        for phase in (Phase.INITIALISING, Phase.LOADING_WEIGHTS, Phase.ALLOCATING_KV_CACHE):
            assert phase in spans
        # it may answer before it has said so
        until(lambda: Phase.READY in [span.phase for span in server_of(later).log.spans])
        times = [span.at for span in status.log.spans if span.at is not None]
        assert times == sorted(times)
        assert status.log.shards_done == status.log.shards_total == 4
        assert status.log.model_class == "LlamaForCausalLM"
        assert status.log.max_total_tokens == 16384
        assert status.log.chunked_prefill_size == 256
        assert status.log.context_len == 8192
        (marker,) = status.log.markers
        assert (marker.boundaries, marker.final, marker.tp_size, marker.writes) == ((0, 3, 8), "pre", 1, True)
        assert (marker.num_layers, marker.hidden_size, marker.sglang) == (8, 64, bed.version)
        assert status.log.cached_tokens == 0
        assert status.uptime is not None
        assert 1 < status.uptime < 600
        until(lambda: server_of(later).health_ms is not None)

        assert not status.log.checked  # nothing has passed the layers: looking at its health makes no rows
        assert "not checked yet" in server_of(later).sentence
        for _ in range(2):  # the same prompt again: nothing may come from a cache
            probe = later.ask(ProbeReport, "server.probe", tokens=19)
            assert probe.ok, probe.sentence
            assert (probe.sent, probe.prompt_tokens, probe.dumped, probe.cached, probe.layers) == (19, 19, 19, 0, 4)
        checked = server_of(later)
        assert checked.log.checked
        assert "not checked" not in checked.sentence
        long = later.ask(ProbeReport, "server.probe", tokens=700)  # three prefill chunks
        assert long.ok, long.sentence
        assert [path.name for path in Path(status.dump_dir).iterdir() if path.name.startswith("req_")] == []

        extract(later, tmp_path)
        # setproctitle has renamed them, and still each says whose it is
        names = {stat.name for stat in identity.living() if identity.carries_job(stat.pid, job.id)}
        assert len(names) >= 3, names
        report = later.ask(StopReport, "server.stop", job=None)
        assert report.stopped, report.sentence
        assert report.leftovers == ()
        assert not Path(status.dump_dir).exists()
        assert not [stat for stat in identity.living() if identity.carries_job(stat.pid, job.id)]
        ended = server_of(later)
        assert ended.phase is Phase.EXITED, ended.sentence
        assert ended.log.failure is None
        assert later.call("doctor", port=spec.port)["port"]["free"]
        with pytest.raises(Answered, match="nothing to stop"):
            later.call("server.stop", job=None)


SAMPLES = 1000
"""So many that stopping in the middle is in the middle, on a quick machine too."""


def extract(box: AgentProcess, tmp_path: Path) -> None:
    """An extraction through the running server: stopped in the middle, resumed, checked and reported."""
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    make = [sys.executable, str(MAKE_DATA), str(data), "--samples", str(SAMPLES), "--longest", "300"]
    subprocess.run(make, check=True)
    spec = encode(ExtractSpec(data=str(data), out=str(out)))

    def status() -> ExtractStatus:
        seen = box.ask(Snapshot, "snapshot", paths={}).extract
        assert seen is not None
        assert seen.state is not ExtractState.FAILED, seen.sentence
        return seen

    def ended() -> bool:
        job = status().job
        return job is not None and job.state is JobState.FINISHED

    box.call("extract.start", **spec)
    with pytest.raises(Answered, match="already extracts into"):
        box.call("extract.start", **spec)
    until(lambda: status().stored > 0, 120)
    stopped = box.ask(StopReport, "extract.stop", wait=180, job=None)
    assert stopped.stopped, stopped.sentence
    before = status()
    assert before.state is ExtractState.STOPPED
    assert 0 < before.stored < before.total == SAMPLES
    assert box.ask(VerifyReport, "verify", dataset=str(out)).samples == before.stored

    box.call("extract.start", **spec)
    until(ended, 120, every=0.3)
    after = status()
    assert (after.state, after.stored, after.failed) == (ExtractState.FINISHED, SAMPLES, 0)
    verified = box.ask(VerifyReport, "verify", dataset=str(out))
    assert (verified.ok, verified.samples, verified.problem_count) == (True, SAMPLES, 0)
    report = box.ask(ExtractReport, "report", job=None)
    assert report.status.stored == SAMPLES
    assert report.dataset == str(out)
    with pytest.raises(Answered, match="nothing to stop"):
        box.call("extract.stop", job=None)


def test_a_restart_under_an_extraction_kills_nothing_and_the_extraction_goes_on(
    bed: install.TestBed, model: Path, box: AgentProcess, tmp_path: Path
) -> None:
    """SGLang drains after TERM for as long as requests come: it is ended by force unless the extraction holds them."""
    server = encode(ServerSpec(model=str(model), python=str(bed.python), port=free_port(), extra_args=bed.server_args))
    box.call("server.start", **server)
    wait_ready(box)
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    make = [sys.executable, str(MAKE_DATA), str(data), "--samples", "20000", "--longest", "300"]
    subprocess.run(make, check=True)
    box.call("extract.start", **encode(ExtractSpec(data=str(data), out=str(out))))

    def status() -> ExtractStatus:
        seen = box.ask(Snapshot, "snapshot", paths={}).extract
        assert seen is not None
        assert seen.state is not ExtractState.FAILED, seen.sentence
        return seen

    until(lambda: status().stored > 0, 120)
    report = box.ask(StopReport, "server.stop", job=None)
    assert report.stopped, report.sentence
    assert "ended by itself after TERM" in report.sentence
    held = status()
    assert (held.state, held.in_flight, held.failed) == (ExtractState.PAUSED, 0, 0), held.sentence
    assert held.stored < held.total

    box.call("server.start", **server)
    wait_ready(box)
    until(lambda: status().stored > held.stored, 120)
    stopped = box.ask(StopReport, "extract.stop", wait=180, job=None)
    assert stopped.stopped, stopped.sentence
    after = status()
    assert after.failed == 0
    verified = box.ask(VerifyReport, "verify", dataset=str(out))
    assert (verified.ok, verified.samples) == (True, after.stored)


@pytest.mark.parametrize("bed", install.VERSIONS[:1], indirect=True)  # 0.5.23 waits 60 s for core dumps
def test_a_server_that_a_bad_request_killed_says_why(bed: install.TestBed, model: Path, box: AgentProcess) -> None:
    spec = ServerSpec(model=str(model), python=str(bed.python), port=free_port(), extra_args=bed.server_args)
    box.call("server.start", **encode(spec))
    wait_ready(box)
    body: dict[str, Any] = {"input_ids": [5, 1_000_000], "sampling_params": {"max_new_tokens": 1}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{spec.port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with pytest.raises(OSError):  # noqa: PT011 - refused, reset or 500: it dies at once
        urllib.request.urlopen(request, timeout=60)

    def ended() -> bool:
        job = server_of(box).job
        return job is not None and job.state is JobState.FINISHED

    until(ended, every=0.3)
    status = server_of(box)
    assert status.phase is Phase.FAILED
    assert status.log.failure == "scheduler_exception", status.sentence
    assert status.log.root_cause is not None
    assert "index out of range" in status.log.root_cause
    assert "vocab_size" in status.sentence
    assert status.job is not None
    box.call("server.stop", job=status.job.id)  # nothing to stop, but its dumps are not left in memory
    assert not Path(status.dump_dir).exists()
