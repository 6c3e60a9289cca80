"""500 samples through real SGLang while everything is killed, fills up or lies: each valid sample is there once and right."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.box import identity
from eagle3_remote.job import jobs
from eagle3_remote.protocol import (
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobState,
    JobStatus,
    Phase,
    ServerSpec,
    ServerStatus,
    Snapshot,
    StopReport,
    VerifyReport,
    encode,
)
from tests.box.client import AgentProcess, Answered, make_release, until
from tests.extract.filling import fill_to_the_last, small_disk_at
from tests.extract.meddler import ACTS, meddler
from tests.patch.servers import free_port

REFERENCE = Path(__file__).resolve().parents[1] / "reference" / "compare_dataset.py"
SAMPLES, VOCAB = 500, 1024
BAD = {40: [], 170: [5, VOCAB], 333: [-1]}
"""Lines that may never reach the server."""
CURSED = 77
"""A row whose ids the proxy spoils every time."""
TUNING = "min_timeout=4,dump_timeout=4,poll=0.1,sweep_every=1,server_wait=150"


@pytest.fixture
def disks(tmp_path: Path, needs: Callable[[bool, str], None]) -> Iterator[tuple[Path, Path]]:
    """Two real file systems: 64 MB for dumps, as a container's /dev/shm has them, and 150 MB for the output."""
    with (
        small_disk_at(tmp_path / "dumps", "64m", needs) as dumps,
        small_disk_at(tmp_path / "output", "150m", needs) as out,
    ):
        yield dumps, out


class Box:
    """A box seen through agents that are killed again and again."""

    def __init__(self, bed: install.TestBed, release: Path, home: Path) -> None:
        self._bed, self._release, self.home = bed, release, home
        os.environ["EAGLE3_EXTRACT_TUNING"] = TUNING
        self.agent = self._dial()

    def _dial(self) -> AgentProcess:
        return AgentProcess(self._release, self.home, str(self._bed.python), self._bed.env)

    def kill_agent(self) -> None:
        self.agent.kill()
        self.agent = self._dial()

    def server(self) -> ServerStatus:
        return self.agent.ask(Snapshot, "snapshot", paths={}).server

    def extraction(self) -> ExtractStatus:
        found = self.agent.ask(Snapshot, "snapshot", paths={}).extract
        assert found is not None
        return found

    def close(self) -> None:
        os.environ.pop("EAGLE3_EXTRACT_TUNING")
        for kind in ("extract", "server"):
            for job in self.agent.call("jobs.list", kind=kind):
                if job["state"] in ("running", "starting"):
                    with contextlib.suppress(Answered):
                        self.agent.ask(StopReport, f"{kind}.stop", wait=180, job=job["id"])
        self.agent.close()


@pytest.fixture
def box(bed: install.TestBed, tmp_path: Path) -> Iterator[Box]:
    one = Box(bed, make_release(tmp_path / "release"), tmp_path / "home")
    try:
        yield one
    finally:
        one.close()


def make_data(path: Path) -> list[list[int]]:
    draw = random.Random(11)
    lines = [[draw.randrange(3, VOCAB) for _ in range(draw.randint(16, 240))] for _ in range(SAMPLES + len(BAD))]
    for line, ids in BAD.items():
        lines[line - 1] = ids
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in lines))
    return lines


def spoils(seed: int) -> Callable[[str], str]:
    """Every twentieth row is meddled with the first time it comes, one every time."""
    draw, lock = random.Random(seed), threading.Lock()
    acts = [act for act in ACTS if act != "good"]
    planned = dict(zip(draw.sample(range(SAMPLES), 25), acts * 3, strict=False))

    def meddle(rid: str) -> str:
        parts = rid.rsplit("-", 2)
        if "probe" in rid or len(parts) != 3 or not parts[1].isdigit():
            return "good"
        with lock:
            row = int(parts[1])
            return "other ids" if row == CURSED else planned.pop(row, "good")

    return meddle


def test_five_hundred_samples_survive_everything(
    bed: install.TestBed, box: Box, disks: tuple[Path, Path], tmp_path: Path
) -> None:
    dumps, output = disks[0] / "run", disks[1]
    model, data, out = tmp_path / "model", tmp_path / "data.jsonl", disks[1] / "out"
    maker = [str(bed.python), str(install.HERE / "make_model.py"), "llama", str(model), "--dtype", "float32"]
    subprocess.run(maker, check=True, capture_output=True, timeout=120, env={**os.environ, **bed.env})
    lines = make_data(data)
    server = ServerSpec(
        model=str(model),
        python=str(bed.python),
        port=free_port(),
        boundaries=(2, 4, 5),
        dump_dir=str(dumps),
        extra_args=(*bed.server_args, "--dtype", "float32"),
    )
    box.agent.call("server.start", **encode(server))
    until(lambda: box.server().phase in (Phase.READY, Phase.BUSY), 240, every=0.3)
    box.agent.call("server.watch", job=None, on=True)
    with meddler(server.port, spoils(5)) as proxy:
        spec = ExtractSpec(
            data=str(data),
            out=str(out),
            server_url=proxy.url,
            dump_dir=str(dumps),
            python=str(bed.python),
            model=str(model),
            tokens_in_flight=1500,
        )
        start(box, spec)
        suffer(box, spec, output / "filler")
        ended = until(lambda: finished(box), 240, every=0.3)
        assert set(proxy.acts) == set(ACTS) - {"good"}, "every kind of meddling happened"
    judge(box, ended, lines, out, dumps)
    same_as_the_reference(bed, model, out, lines, tmp_path)


def start(box: Box, spec: ExtractSpec) -> None:
    """As a person does, again and again until the box lets it: the server may be on its way back."""

    def started() -> bool:
        try:
            box.agent.ask(JobStatus, "extract.start", wait=120, **encode(spec))
        except Answered:
            return False
        return True

    until(started, 240, every=1)


def suffer(box: Box, spec: ExtractSpec, filler: Path) -> None:
    """Kill -9 of client, agent, server and writer, and a full disk, each at some point of the way."""
    kill_extraction(box, 50)
    start(box, spec)
    after(box, 100)
    box.kill_agent()
    after(box, 150)
    kill_one(box, leader=True)
    after(box, 250)
    fill_to_the_last(filler)
    until(lambda: "goes on by itself when there is space" in box.extraction().sentence, 60)
    assert box.extraction().state is ExtractState.PAUSED
    kill_extraction(box, 0)
    filler.unlink()
    start(box, spec)
    after(box, 320)
    kill_one(box, leader=False)
    after(box, 430)
    kill_extraction(box, 0)
    box.kill_agent()
    start(box, spec)


def after(box: Box, stored: int) -> None:
    """Wait until so many samples are stored."""

    def there() -> bool:
        now = box.extraction()
        assert now.state is not ExtractState.FAILED, now.sentence
        return now.stored >= stored

    until(there, 180)


def kill_extraction(box: Box, stored: int) -> None:
    after(box, stored)
    job = jobs.newest(box.home, "extract")
    assert job is not None
    assert job.leader is not None
    os.kill(job.leader.pid, signal.SIGKILL)
    until(lambda: jobs.state_of(job) not in (JobState.RUNNING, JobState.STARTING))


def kill_one(box: Box, *, leader: bool) -> None:
    """The server's first process, or its scheduler, whose threads write the dumps."""
    job = jobs.newest(box.home, "server")
    assert job is not None
    assert job.leader is not None
    ours = [stat for stat in identity.living() if identity.carries_job(stat.pid, job.id)]
    schedulers = [stat.pid for stat in ours if "sched" in stat.name]
    os.kill(job.leader.pid if leader else schedulers[0], signal.SIGKILL)


def finished(box: Box) -> ExtractStatus | None:
    now = box.extraction()
    over = now.job is not None and now.job.state not in (JobState.RUNNING, JobState.STARTING)
    return now if over else None


def judge(box: Box, ended: ExtractStatus, lines: list[list[int]], out: Path, dumps: Path) -> None:
    assert ended.state is ExtractState.FINISHED, ended.sentence
    assert (ended.stored, ended.rejected, ended.failed) == (SAMPLES - 1, len(BAD), 1)
    report = box.agent.call("report", wait=120, job=None)
    bad = {problem["where"]: problem["kind"] for problem in report["problems"]}
    assert {int(where.split()[1]) for where in bad} - set(BAD) == {line_of_row(lines, CURSED)}
    assert bad[f"line {line_of_row(lines, CURSED)}"] == "failed: token-ids"
    assert len(bad) == len(BAD) + 1
    verified = box.agent.ask(VerifyReport, "verify", wait=240, dataset=str(out))
    assert (verified.ok, verified.complete, verified.samples) == (True, True, SAMPLES - 1), verified.problems
    assert [name for name in os.listdir(dumps) if name.startswith("req_")] == []


def line_of_row(lines: list[list[int]], row: int) -> int:
    """Rows count the valid lines, in order, as long as nothing was left out."""
    return [line for line in range(1, len(lines) + 1) if line not in BAD][row]


def same_as_the_reference(bed: install.TestBed, model: Path, out: Path, lines: list[list[int]], tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(out / ".eagle3/journal.sqlite3")) as journal:
        found = journal.execute("SELECT line FROM samples WHERE state = 'stored' ORDER BY row").fetchall()
    stored = [line for (line,) in found]
    wanted = set(range(1, len(lines) + 1)) - set(BAD) - {line_of_row(lines, CURSED)}
    assert sorted(stored) == sorted(wanted), "each once"
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"input_ids": lines[line - 1]}) + "\n" for line in stored))
    argv = [str(bed.python), str(REFERENCE), str(model), str(rows), str(out), "2,4,5"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env={**os.environ, **bed.env})
    assert done.returncode == 0, done.stderr
    judged = json.loads(done.stdout)
    assert (judged["samples"], judged["wrong"]) == (SAMPLES - 1, [])
    assert max(judged["worst"]) < 1e-4
