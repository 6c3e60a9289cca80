"""What extractions left is found, and removed only where it was shown, is still the same, is ours to remove and nobody uses it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.disk import tree
from eagle3_remote.disk.kinds import DATASET
from eagle3_remote.job import jobs
from eagle3_remote.protocol import (
    Found,
    JobState,
    JobStatus,
    SpaceReport,
    TaskState,
    TaskStatus,
    WorkState,
    WorkStatus,
    encode,
)
from eagle3_remote.server import dumpdir
from tests.box.client import AgentProcess, Answered, agent, until
from tests.extract import made

SAVE = """
import os, sys, torch
root = sys.argv[1]
ids, mask = torch.arange(5), torch.ones(5, dtype=torch.long)
states, wide = torch.ones(5, 8, dtype=torch.bfloat16), torch.ones(1, 5, 24, dtype=torch.bfloat16)
def save(name, value, **more):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(value, path, **more)
save("v1/data_0.pt", {"input_ids": ids, "hidden_states": [states] * 4, "loss_mask": mask})
forge = {"input_ids": ids, "loss_mask": mask, "hidden_state": states[None], "aux_hidden_state": wide}
save("forge/rows_0-2000/data_0.ckpt", forge)
save("angel/data_0.ckpt", forge, _use_new_zipfile_serialization=False)
save("modelopt/conversation-7.pt", {"input_ids": ids, "hidden_states": states, "aux_hidden_states": wide[0]})
save("checkpoints/model.pt", {"weight": states, "step": 3})
for one in ("aux_0", "aux_1", "aux_2", "final"):
    save(f"hand/req_a1/{one}.pt", states)
    save(f"loose/sample-1/{one}.pt", states)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders as other programs leave them, written by torch itself."""
    root = tmp_path_factory.mktemp("saved")
    python = install.ensure(install.VERSIONS[-1]).python
    subprocess.run([str(python), "-c", SAVE, str(root)], check=True, timeout=120)
    states = root / "speculators" / "hidden_states"
    states.mkdir(parents=True)
    (states / "hs_0.safetensors").write_bytes(made.states_bytes([1, 2, 3]))
    (root / "speculators" / "data-00000-of-00001.arrow").write_bytes(b"x")
    return root


def dataset_at(root: Path, rows: int = 3) -> Path:
    """A dataset of ours that is not complete: every row lies there, the journal calls none stored."""
    data = root.parent / f"{root.name}.jsonl"
    made.write_data(data, [[1, 2, 3]] * rows)
    dataset, journal = made.journal_of(root, data)
    journal.put("identity", {"boundaries": [2, 4, 5], "final": "pre"})
    journal.close()
    for row in range(rows):
        (Path(dataset.states) / f"hs_{row}.safetensors").write_bytes(made.states_bytes([1, 2, 3]))
    Path(dataset.lock).touch()
    return root


@pytest.fixture
def box(release: Path, home: Path) -> Iterator[AgentProcess]:
    with agent(release, home) as one:
        yield one


def look(box: AgentProcess, *paths: Path, **more: object) -> SpaceReport:
    return box.ask(SpaceReport, "space", paths=[str(path) for path in paths], **more)


def one(report: SpaceReport) -> Found:
    (found,) = report.found
    return found


def reclaim(box: AgentProcess, path: Path, confirm: str | None = None) -> WorkStatus:
    job = box.ask(JobStatus, "space.reclaim", path=str(path), confirm=path.name if confirm is None else confirm)

    def ended() -> WorkStatus | None:
        work = box.ask(WorkStatus, "work", job=job.id)
        assert work.job is not None
        return work if work.job.state is JobState.FINISHED else None

    work = until(ended)
    assert work is not None
    return work


def test_every_format_is_told_apart(box: AgentProcess, saved: Path) -> None:
    found = {Path(one.path).name: (one.kind, one.ours) for one in look(box, saved).found}
    assert found == {
        "v1": ("speculators-v1", False),
        "forge": ("specforge", False),
        "angel": ("specforge", False),
        "modelopt": ("modelopt", False),
        "hand": ("dumps", False),
        "loose": ("hand-made", False),
        "speculators": ("speculators", False),
    }  # and not checkpoints, which hold no hidden states
    speculators = next(one for one in look(box, saved).found if one.kind == "speculators")
    assert "4 × 8 bfloat16 a token" in speculators.note


def test_a_dataset_is_described_and_removed_but_what_others_put_there_stays(box: AgentProcess, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden")
    (root / "notes.txt").write_text("mine")
    (root / "hidden_states" / "picture.png").write_text("mine")
    found = one(look(box, tmp_path))
    assert (found.kind, found.ours, found.complete, found.boundaries, found.final) == (
        "dataset",
        True,
        False,
        (2, 4, 5),
        "pre",
    )
    assert (found.samples, found.strangers, found.exact, found.holder) == (0, 2, True, "")
    assert "0 of 3 samples" in found.note
    assert found.bytes >= sum(path.stat().st_size for path in (root / "hidden_states").glob("hs_*"))
    work = reclaim(box, root)
    assert work.state is WorkState.FINISHED, work.sentence
    assert "2 other entries" in work.sentence
    assert work.done == work.total > 3
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert left == ["hidden_states", "hidden_states/picture.png", "notes.txt"]
    assert look(box, tmp_path).found == ()


def test_a_whole_folder_goes_while_no_console_is_there(release: Path, home: Path, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden", rows=300)
    first = agent(release, home)
    with first as box:
        look(box, tmp_path)
        box.call("space.reclaim", path=str(root), confirm="hidden")
        box.kill()
    until(lambda: not root.exists())
    with agent(release, home) as box:
        job = box.call("jobs.list", kind="reclaim")[0]["id"]
        until(lambda: jobs.exit_code(jobs.everything(home, "reclaim")[0]) == 0)
        work = box.ask(WorkStatus, "work", job=job)
        assert (work.state, work.done) == (WorkState.FINISHED, work.total)


def test_only_what_was_shown_and_only_with_its_name(box: AgentProcess, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden")
    with pytest.raises(Answered, match="was not among what 'space' showed"):
        reclaim(box, root)
    look(box, tmp_path)
    with pytest.raises(Answered, match="the name typed is 'Hidden', the folder's is 'hidden'"):
        reclaim(box, root, "Hidden")
    with pytest.raises(Answered, match="was not among"):
        reclaim(box, root / "hidden_states")
    with pytest.raises(Answered, match="was not among"):
        reclaim(box, tmp_path)
    assert len(list((root / "hidden_states").iterdir())) == 3


def test_another_folder_under_the_name_is_not_touched(box: AgentProcess, tmp_path: Path) -> None:
    root, other = dataset_at(tmp_path / "hidden"), dataset_at(tmp_path / "other")
    look(box, tmp_path)
    root.rename(tmp_path / "aside")
    other.rename(root)
    with pytest.raises(Answered, match="another folder lies at"):
        reclaim(box, root)
    root.rename(other)
    root.symlink_to(other)
    with pytest.raises(Answered, match="is a link or a file"):
        reclaim(box, root)
    assert len(list((other / "hidden_states").iterdir())) == 3


def test_links_are_removed_and_what_they_point_to_stays(box: AgentProcess, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "hs_7.safetensors").write_text("precious")
    (tmp_path / "in").mkdir()
    root = dataset_at(tmp_path / "in" / "hidden")
    (root / "hidden_states" / "hs_9.safetensors").symlink_to(victim / "hs_7.safetensors")
    (root / "vocab_mapping").symlink_to(victim)
    look(box, tmp_path / "in")
    assert reclaim(box, root).state is WorkState.FINISHED
    assert (victim / "hs_7.safetensors").read_text() == "precious"


def test_a_folder_swapped_for_a_link_in_the_middle_leads_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "hs_7.safetensors").write_text("precious")
    root = dataset_at(tmp_path / "hidden")
    (root / "state.json").write_text("{}")
    at = root.stat()

    def swap(_size: int) -> bool:
        states = root / "hidden_states"
        if not states.is_symlink():
            states.rename(tmp_path / "aside")
            states.symlink_to(victim)
        return True

    with tree.opened(str(root), at.st_dev, at.st_ino) as (_, folder, _name):
        assert tree.empty(folder, DATASET.part, swap)
    assert (victim / "hs_7.safetensors").read_text() == "precious"
    assert len(list((tmp_path / "aside").iterdir())) == 3


def test_a_half_removed_dataset_is_known_and_its_removal_goes_on(box: AgentProcess, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden", rows=5)
    (root / "state.json").write_text("{}")
    at, gone = root.stat(), []
    with tree.opened(str(root), at.st_dev, at.st_ino) as (_, folder, _name):
        assert not tree.empty(folder, DATASET.part, lambda size: not gone.append(size) and len(gone) < 3)
    assert not (root / "state.json").exists(), "no trainer takes it for a dataset"
    assert one(look(box, tmp_path)).kind == "dataset"
    assert reclaim(box, root).state is WorkState.FINISHED
    assert not root.exists()


def test_what_is_in_use_stays(box: AgentProcess, home: Path, release: Path, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden")
    with (root / ".eagle3/lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(json.dumps({"pid": 77, "host": "node9"}))
        lock.flush()
        assert "process 77 on node9" in one(look(box, tmp_path)).holder
        with pytest.raises(Answered, match="is in use: it is being written by process 77 on node9"):
            reclaim(box, root)
    opened = str(root / "hidden_states/hs_0.safetensors")
    for code in (
        "f = open(PATH, 'rb')",
        "import mmap; f = open(PATH, 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); f.close()",
    ):
        code = f"{code.replace('PATH', repr(opened))}; print('ok', flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
            assert trainer.stdout is not None
            trainer.stdout.readline()
            with pytest.raises(Answered, match=rf"is in use: process {trainer.pid} \(.*\) has files of it open"):
                reclaim(box, root)
            trainer.communicate(b"\n")
    job = jobs.start(home, release, jobs.new_id("extract"), ["/bin/sleep", "60"], {}, {"out": str(root)})
    try:
        with pytest.raises(Answered, match=f"is in use: job {job.id} writes it"):
            reclaim(box, root)
    finally:
        box.call("extract.stop", job=job.id)
    until(lambda: jobs.exit_code(job) is not None)
    assert reclaim(box, root).state is WorkState.FINISHED


def test_left_over_dumps_of_a_dead_server_and_of_a_living_one(
    box: AgentProcess, home: Path, release: Path, tmp_path: Path
) -> None:
    """By the owner's note, by the job, and by the environment of a server that was not started from here."""
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    job = jobs.start(
        home, release, jobs.new_id("server"), ["/bin/sleep", "60"], {}, {"port": 1}, facts={"dump_dir": str(alive)}
    )
    for path, owner in ((dead, "server-20250101T000000-0000"), (alive, job.id)):
        dumpdir.create(path, owner)
        made.write_dump(path / "req_e3-1", made.states_bytes([1, 2]))
    try:
        found = {Path(one.path).name: one for one in look(box, tmp_path).found}
        assert {(one.kind, one.ours, one.samples) for one in found.values()} == {("dumps", True, 1)}
        assert found["dead"].holder == ""
        assert f"job {job.id} dumps into it" in found["alive"].holder
    finally:
        box.call("server.stop", job=job.id)
    environment = {**os.environ, "SGLANG_HS_DUMP_DIR": str(dead)}
    with subprocess.Popen(["/bin/sleep", "60"], env=environment) as server:
        with pytest.raises(Answered, match=rf"process {server.pid} \(sleep\) is set to dump into it"):
            reclaim(box, dead)
        server.kill()
    assert reclaim(box, dead).state is WorkState.FINISHED
    assert not dead.exists()


def test_the_look_is_bounded_and_stays_away_from_links(box: AgentProcess, tmp_path: Path) -> None:
    tmp_path = tmp_path / "data"
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    dataset_at(deep / "hidden")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [one.path for one in look(box, tmp_path).found] == [str(deep / "hidden")]
    near = look(box, tmp_path, depth=2)
    assert (near.found, near.too_deep, near.folders) == ((), 1, 3)
    late = look(box, tmp_path, seconds=0.0)
    assert (late.found, late.not_reached) == ((), 1)
    with pytest.raises(Answered, match="There is no directory"):
        look(box, tmp_path / "nowhere")


def test_hard_links_give_nothing_back_until_the_last(box: AgentProcess, tmp_path: Path) -> None:
    root, export = dataset_at(tmp_path / "hidden"), tmp_path / "elsewhere"
    os.link(root / "hidden_states/hs_0.safetensors", export)
    found = one(look(box, tmp_path))
    assert found.shared_bytes == export.stat().st_blocks * 512
    assert reclaim(box, root).bytes_done == found.bytes


def test_where_it_looks_by_itself(box: AgentProcess, home: Path, release: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    root = dataset_at(tmp_path / "out" / "hidden")
    job = jobs.start(home, release, jobs.new_id("extract"), ["/bin/true"], {}, {"out": str(root)})
    until(lambda: jobs.exit_code(job) is not None)
    report = look(box, seconds=5.0)
    assert report.looked_in[0] == str(tmp_path / "out")
    assert "/dev/shm" in report.looked_in
    assert str(root) in [one.path for one in report.found]


def test_a_shard_that_a_task_on_another_node_works_in_stays(box: AgentProcess, tmp_path: Path) -> None:
    folder = ArrayFolder.of(str(tmp_path / "hidden"))
    folder.shards.mkdir(parents=True)
    shard = dataset_at(folder.shard(3, 8))
    folder.home(3).mkdir(parents=True)
    word = TaskStatus(3, TaskState.EXTRACTING, "", "node7", heard_at=time.time())
    folder.said(3).write_text(json.dumps(encode(word)))
    look(box, tmp_path)
    with pytest.raises(Answered, match="is in use: task 3 of an array works in it on node7"):
        reclaim(box, shard)
    folder.said(3).write_text(json.dumps(encode(dataclasses.replace(word, heard_at=time.time() - 3600))))
    assert reclaim(box, shard).state is WorkState.FINISHED


def test_a_long_removal_is_watched_again_and_stopped(box: AgentProcess, home: Path, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden", rows=5)
    states = root / "hidden_states"
    for row in range(5, 20_000):
        os.link(states / "hs_0.safetensors", states / f"hs_{row}.safetensors")
    look(box, tmp_path)
    asked = {"path": str(root), "confirm": "hidden"}
    job = box.ask(JobStatus, "space.reclaim", **asked)
    assert job.pid is not None
    until(lambda: Path(job.log_path).exists() and Path(job.log_path).read_text(), every=0.002)
    os.kill(job.pid, signal.SIGSTOP)  # at its beginning
    assert box.ask(JobStatus, "space.reclaim", **asked).id == job.id
    asked_to_stop = box.send("space.stop", path=str(root))
    until(lambda: (home / "runs" / job.id / "stop.json").exists())
    time.sleep(0.2)
    os.kill(job.pid, signal.SIGCONT)
    assert box.answer(asked_to_stop)["result"]["stopped"]
    until(lambda: jobs.exit_code(jobs.everything(home, "reclaim")[0]) is not None)
    work = box.ask(WorkStatus, "work", job=job.id)
    assert work.state is WorkState.STOPPED, work.sentence
    assert states.exists()
    with pytest.raises(Answered, match="is not being removed now"):
        box.call("space.stop", path=str(root))
    assert reclaim(box, root).state is WorkState.FINISHED
    assert not root.exists()


def test_a_trained_drafter_beside_hand_made_states_stays(box: AgentProcess, tmp_path: Path) -> None:
    """``final.pt`` and ``meta.json`` are names that others use as well: they are states only beside an aux file."""
    root = tmp_path / "run"
    for name in (
        "sample_0/aux_0.pt",
        "sample_0/final.pt",
        "sample_1/aux_0.pt",
        "drafter/final.pt",
        "drafter/meta.json",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 100)
    found = one(look(box, tmp_path))
    assert (found.kind, found.files, found.strangers) == ("hand-made", 3, 2)
    assert reclaim(box, root).state is WorkState.FINISHED
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert left == ["drafter", "drafter/final.pt", "drafter/meta.json"]
