"""An extraction as a job array on a real Slurm: two shards on two real servers, one task killed and requeued, merged into one dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.box import identity
from eagle3_remote.extract import dataset as ds
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import ExtractSpec, decode
from tests.box.client import until
from tests.e2e.conftest import console, free_port, make
from tests.extract import jobs as extractions
from tests.slurm.conftest import Login

SAMPLES = 400


@pytest.fixture(scope="module")
def model(login: Login) -> Path:
    path = login.box.root / "model"
    make(login.box.bed, "make_model.py", "llama", path, "--dtype", "float32")
    return path


@pytest.fixture(scope="module")
def data(login: Login) -> Path:
    path = login.box.root / "data.jsonl"
    make(login.box.bed, "make_data.py", path, "--samples", str(SAMPLES), "--longest", "300")
    return path


def slurm(login: Login, *argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **login.env}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(login: Login) -> Any:
    ran = console("extract", "status", *login.box.login, "--json", "--quiet")
    assert ran.out, ran.err
    return json.loads(ran.out)


def words(login: Login, model: Path, data: Path, out: Path) -> list[str]:
    given = {"model": model, "data": data, "out": out, "port": free_port(), "boundaries": "2,4,5"}
    return [*login.box.login, *login.box.server_words(), *(f"--{name}={value}" for name, value in given.items())]


def test_two_shards_one_killed_and_requeued(login: Login, model: Path, data: Path) -> None:
    out, whole = login.box.root / "hidden", login.box.root / "whole"
    folder = ArrayFolder.of(str(out))
    asked = [*words(login, model, data, out), "--slurm", "--array=2", "--server-arg=--dtype", "--server-arg=float32"]
    submitted = console("extract", "submit", *asked, "--sbatch-arg=--time=60", "--json")
    assert submitted.code == 0, submitted.err
    job = submitted.json["job"]
    again = console("extract", "submit", *asked)
    assert again.code == 5
    assert "2 tasks of array" in again.err

    until(lambda: stored(folder, 0) >= 10, 400, every=0.02)
    kill_task(folder, 0)
    until(lambda: "_0" not in slurm(login, "squeue", "-h", "-r", "-o", "%i"), 60, every=0.2)
    before = stored_at(folder.shard(0, 2))
    assert 10 <= len(before) < SAMPLES // 2, "killed in the middle"
    assert status(login)["tasks"][0]["state"] == "lost"
    slurm(login, "scontrol", "requeue", f"{job}_0")

    until(lambda: (word := said(folder, 0))["state"] == "extracting" and word["attempt"] == 1, 400, every=0.05)
    with held(folder, 0):
        extract_whole(login, folder, whole)
    watched = console("extract", "status", *login.box.login, "--watch", "--json", timeout=300)
    assert watched.code == 0, watched.err + "".join(folder.log(index).read_text() for index in range(2))
    now = watched.json
    assert (now["finished"], now["total"]["stored"], now["total"]["failed"]) == (2, SAMPLES, 0)
    assert "task 0: finished on" in watched.err
    assert "Left by an earlier start: Job server-" in folder.log(0).read_text()
    after = stored_at(folder.shard(0, 2))
    assert {line: after[line] for line in before} == before, "stored is stored"
    assert nothing_runs(folder)

    until(lambda: not slurm(login, "squeue", "-h"), every=0.2)
    again = console("extract", "submit", *asked)
    assert again.code == 0, again.err
    # A shard that is finished counts so before its new task has spoken.
    until(lambda: not slurm(login, "squeue", "-h"), every=0.2)
    watched = console("extract", "status", *login.box.login, "--watch", "--json")
    sentences = [task["sentence"] for task in watched.json["tasks"]]
    assert sentences == ["Its shard was finished by an earlier start."] * 2

    merged = console("merge", *login.box.login, f"--out={out}")
    assert merged.code == 0, merged.err
    checked = console("verify", *login.box.login, f"--out={out}", "--json")
    assert checked.code == 0, checked.out
    assert (checked.json["ok"], checked.json["samples"]) == (True, SAMPLES)
    same(login, out, whole)


def test_an_array_that_waits_is_told_and_taken_out_of_the_queue(login: Login, model: Path, data: Path) -> None:
    asked = [*words(login, model, data, login.box.root / "later"), "--slurm", "--array=3", "--at-once=2"]
    submitted = console("extract", "submit", *asked, "--sbatch-arg=--begin=now+1hour")
    assert submitted.code == 0, submitted.err
    assert "of 3 tasks was submitted" in submitted.out
    now = status(login)
    assert (now["queued"], now["over"]) == (3, False)
    assert {task["sentence"] for task in now["tasks"]} == {"It waits in Slurm's queue (BeginTime)."}
    stopped = console("extract", "stop", *login.box.login)
    assert stopped.code == 0, stopped.err
    until(lambda: not slurm(login, "squeue", "-h"), every=0.2)
    now = status(login)
    assert (now["over"], now["failed"]) == (True, 3)
    assert "Slurm calls it CANCELLED" in now["tasks"][0]["sentence"]


def said(folder: ArrayFolder, index: int) -> Any:
    """The last word of a task."""
    word = json.loads(folder.said(index).read_text())
    assert word["state"] not in ("failed", "stopped"), (word["sentence"], folder.log(index).read_text())
    return word


@contextlib.contextmanager
def held(folder: ArrayFolder, index: int) -> Iterator[None]:
    """The task itself does nothing meanwhile, so that its server stays when the shard is finished."""
    (task,) = task_pids(folder, index)
    os.kill(task, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(task, signal.SIGCONT)


def extract_whole(login: Login, folder: ArrayFolder, out: Path) -> None:
    """The unsharded dataset, by the same extraction program through the server of task 0."""
    job = jobs.newest(folder.home(0), "extract")
    assert job is not None
    spec = dataclasses.replace(decode(ExtractSpec, job.spec["message"]), out=str(out), shard="0/1")
    run_dir = extractions.prepare(login.box.root / "whole-run", spec)
    with extractions.start(login.box.bed.python, run_dir) as process:
        assert process.wait(200) == 0, (run_dir / "out.log").read_text()


def stored(folder: ArrayFolder, index: int) -> int:
    """How many samples the extraction of a task says are stored."""
    if folder.said(index).exists():
        said(folder, index)
    for path in folder.home(index).glob("runs/extract-*/progress.json"):
        return int(json.loads(path.read_text())["stored"])
    return 0


def kill_task(folder: ArrayFolder, index: int) -> None:
    """Without time for any word, and so that its server is left behind for the next start to find."""
    (task,) = task_pids(folder, index)
    job = jobs.newest(folder.home(index), "extract")
    assert job is not None
    assert job.leader is not None
    os.kill(job.leader.pid, signal.SIGKILL)
    os.kill(task, signal.SIGKILL)


def stored_at(shard: Path) -> dict[int, float]:
    """When each stored sample was stored."""
    with sqlite3.connect(shard / ".eagle3/journal.sqlite3") as db:
        return dict(db.execute("SELECT line, stored_at FROM samples WHERE state = 'stored'"))


def nothing_runs(folder: ArrayFolder) -> bool:
    """No process of any job of the tasks is left on this node."""
    return not [job.id for index in range(2) for job in jobs.everything(folder.home(index)) if stopping.members(job)]


COMPARE = """
import json, pathlib, sys
from safetensors.torch import load_file
one, other = (pathlib.Path(path) / "hidden_states" for path in sys.argv[1:])
names = sorted(path.name for path in one.iterdir())
assert names == sorted(path.name for path in other.iterdir())
worst = 0.0
for name in names:
    a, b = load_file(one / name), load_file(other / name)
    assert (a["token_ids"] == b["token_ids"]).all(), name
    assert a["hidden_states"].shape == b["hidden_states"].shape, name
    scale = b["hidden_states"].abs().amax()
    worst = max(worst, ((a["hidden_states"] - b["hidden_states"]).abs().amax() / scale).item())
print(json.dumps({"files": len(names), "worst": worst}))
"""


def same(login: Login, one: Path, other: Path) -> None:
    """The same rows in the same order. In float32 a batch of other samples beside it changes the last bits of a sum."""
    for name in (ds.ARROW_FILE, ds.INFO_FILE, ds.STATE_FILE):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    argv = [str(login.box.bed.python), "-c", COMPARE, str(one), str(other)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["files"] == SAMPLES
    assert found["worst"] < 1e-5


def task_pids(folder: ArrayFolder, index: int) -> list[int]:
    mark = f"main(sys.argv[1:]))\0{folder.root}\0"
    pids = [stat.pid for stat in identity.living() if mark in cmdline(stat.pid)]
    return [pid for pid in pids if f"SLURM_ARRAY_TASK_ID={index}" in environment(pid)]


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []
