"""One extraction through two real servers, one started from here and one by hand; that one is killed and started again in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.job import jobs
from eagle3_remote.protocol import (
    ControlReport,
    ExtractServer,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobStatus,
    Phase,
    ServerSpec,
    Snapshot,
    StopReport,
    VerifyReport,
    encode,
)
from tests.box.client import AgentProcess, agent, make_release, until
from tests.patch import servers

SAMPLES = 300
REFERENCE = Path(__file__).resolve().parents[1] / "reference" / "compare_dataset.py"


@pytest.fixture
def box(bed: install.TestBed, tmp_path: Path) -> Iterator[AgentProcess]:
    with agent(make_release(tmp_path / "release"), tmp_path / "home", str(bed.python), bed.env) as one:
        yield one
        for kind in ("extract", "server"):
            for job in one.call("jobs.list", kind=kind):
                if job["state"] in ("running", "starting"):
                    one.ask(StopReport, f"{kind}.stop", wait=180, job=job["id"])


def made(bed: install.TestBed, script: str, *words: str) -> None:
    argv = [str(bed.python), str(install.HERE / script), *words]
    subprocess.run(argv, check=True, capture_output=True, timeout=120, env={**os.environ, **bed.env})


def extraction(box: AgentProcess) -> ExtractStatus:
    found = box.ask(Snapshot, "snapshot", paths={}).extract
    assert found is not None
    assert found.state is not ExtractState.FAILED, found.sentence
    return found


def prefilled(server: servers.Server) -> int:
    """Tokens that the server says it computed."""
    return sum(map(int, re.findall(r"Prefill batch.*?#new-token: (\d+)", server.log.read_text(errors="replace"))))


def test_one_extraction_through_two_servers(bed: install.TestBed, box: AgentProcess, tmp_path: Path) -> None:
    model, data, out = tmp_path / "model", tmp_path / "data.jsonl", tmp_path / "out"
    made(bed, "make_model.py", "llama", str(model), "--dtype", "float32")
    made(bed, "make_data.py", str(data), "--samples", str(SAMPLES), "--longest", "300")
    args = ("--disable-radix-cache", "--dtype", "float32")
    own = ServerSpec(
        model=str(model),
        python=str(bed.python),
        port=servers.free_port(),
        boundaries=(2, 4, 5),
        extra_args=(*bed.server_args, "--dtype", "float32"),
    )
    box.call("server.start", **encode(own))
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(servers.running(bed, model, tmp_path / "theirs", *args))
        until(lambda: box.ask(Snapshot, "snapshot", paths={}).server.phase in (Phase.READY, Phase.BUSY), 240, every=0.3)
        asked = ExtractSpec(
            data=str(data),
            out=str(out),
            servers=(ExtractServer(theirs.url, str(theirs.dump_dir)),),
            tokens_in_flight=600,
        )
        job = box.ask(JobStatus, "extract.start", wait=180, **encode(asked))
        run = jobs.find(tmp_path / "home", job.id)
        assert run is not None
        log = run.run_dir / "out.log"
        until(lambda: extraction(box).stored >= 30, 180)
        before = prefilled(theirs)
        assert before > 0
        os.killpg(theirs.process.pid, signal.SIGKILL)
        box.ask(ControlReport, "extract.control", action="pause")  # the other one would be done before this one is back
        until(lambda: f"The server at {theirs.url} is away" in log.read_text(), 60)
        theirs.process.wait(30)
        port = int(theirs.url.rpartition(":")[2])
        back = stack.enter_context(servers.running(bed, model, tmp_path / "theirs", *args, port=port))
        until(lambda: f"The server at {theirs.url} is back." in log.read_text(), 60)
        paused = extraction(box)
        assert 30 <= paused.stored < SAMPLES
        box.ask(ControlReport, "extract.control", action="resume")
        ended = until(lambda: (now := extraction(box)).state is ExtractState.FINISHED and now, 240, every=0.3)
        assert (ended.stored, ended.failed, ended.rejected) == (SAMPLES, 0, 0)
        assert prefilled(back) > 600, "the one that came back did its part"
        own_dumps = Path(box.ask(Snapshot, "snapshot", paths={}).server.dump_dir)
        for place in (back.dump_dir, own_dumps):
            assert [name for name in os.listdir(place) if name.startswith("req_")] == []
        for server in ("", "running", back.url):
            words = {
                "dataset": str(out),
                "server": server,
                "dump_dir": str(back.dump_dir) if server == back.url else "",
            }
            report = box.ask(VerifyReport, "verify", wait=240, **words)
            assert (report.ok, report.complete, report.samples) == (True, True, SAMPLES), report
            assert {probe.result for probe in report.probes} == ({"passed"} if server else set())
    words = [str(model), str(data), str(out), "2,4,5"]
    done = subprocess.run(
        [str(bed.python), str(REFERENCE), *words],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **bed.env},
    )
    assert done.returncode == 0, done.stderr
    judged = json.loads(done.stdout)
    assert (judged["samples"], judged["wrong"]) == (SAMPLES, []), "each row once, in the order of the input"
