"""Real SGLang that asks for a key: it is started, watched, probed and extracted through, and nobody sees the key."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.box import identity
from eagle3_remote.protocol import (
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobState,
    JobStatus,
    ProbeReport,
    ServerSpec,
    Snapshot,
    StopReport,
    VerifyReport,
    encode,
)
from eagle3_remote.server.serverinfo import ask_info
from tests.box.client import AgentProcess, agent, until
from tests.box.test_real_server import MAKE_DATA, MAKE_MODEL, free_port, server_of, wait_ready

KEY = "a-key-that-is-nobodys-business-77"
KEPT = ("secret.json", "arguments.yaml")


@pytest.fixture(params=install.VERSIONS)
def bed(request: pytest.FixtureRequest) -> install.TestBed:
    return install.ensure(request.param)


@pytest.fixture
def box(bed: install.TestBed, release: Path, home: Path) -> Iterator[AgentProcess]:
    with agent(release, home, str(bed.python), bed.env) as one:
        yield one
        for job in one.call("jobs.list", kind="server"):
            if job["state"] == "running":
                one.call("server.stop", job=job["id"])


def test_a_server_with_a_key(bed: install.TestBed, box: AgentProcess, home: Path, tmp_path: Path) -> None:
    model, data, out = tmp_path / "llama", tmp_path / "data.jsonl", tmp_path / "out"
    subprocess.run([bed.python, str(MAKE_MODEL), "llama", str(model)], check=True, env={**os.environ, **bed.env})
    subprocess.run([sys.executable, str(MAKE_DATA), str(data), "--samples", "16", "--longest", "100"], check=True)
    port = free_port()
    args = (*bed.server_args, "--api-key", KEY)
    spec = ServerSpec(str(model), str(bed.python), port, boundaries=(0, 3, 8), extra_args=args)
    job = box.ask(JobStatus, "server.start", **encode(spec))
    wait_ready(box)
    assert "asks for an API key" in ask_info(f"http://127.0.0.1:{port}")[1]  # without one, as a stranger
    until(lambda: server_of(box).metrics is not None)
    probe = box.ask(ProbeReport, "server.probe", tokens=19)
    assert probe.ok, probe.sentence
    box.call("extract.start", **encode(ExtractSpec(data=str(data), out=str(out))))

    def extraction() -> ExtractStatus:
        seen = box.ask(Snapshot, "snapshot", paths={}).extract
        assert seen is not None
        return seen

    def ended() -> bool:
        seen = extraction().job
        return seen is not None and seen.state is JobState.FINISHED

    until(ended, 180, every=0.3)
    assert (extraction().state, extraction().stored) == (ExtractState.FINISHED, 16), extraction().sentence
    assert box.ask(VerifyReport, "verify", dataset=str(out), server="running", wait=180).ok
    for stat in identity.living():
        if stat.pid != os.getpid():
            try:
                assert KEY.encode() not in Path(f"/proc/{stat.pid}/cmdline").read_bytes(), stat.name
            except OSError:
                continue
    log = Path(job.log_path).read_text(errors="replace")
    assert KEY not in log
    assert "(left out)" in log
    answers = [
        box.call("snapshot", paths={}),
        box.call("jobs.show", job=job.id, lines=1000),
        box.call("report", job=None),
    ]
    assert KEY not in str(answers)
    assert box.ask(StopReport, "server.stop", job=None).stopped
    written = [path for root in (home, out, model) for path in root.rglob("*") if path.is_file()]
    assert {path.name for path in written if KEY.encode() in path.read_bytes()} == set(KEPT)
