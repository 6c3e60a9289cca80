"""What is submitted, what is refused before, and how a task's own word and Slurm's are weighed. The real Slurm is in tests/slurm."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import types
from pathlib import Path

import pytest

from eagle3_remote.array import slurm, task
from eagle3_remote.array.control import ArrayControl
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.array.status import SILENT_AFTER, judge, summary
from eagle3_remote.array.submit import LATEST_FILE, script_of, submit
from eagle3_remote.protocol import (
    MAX_LINE_BYTES,
    ArraySpec,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    ServerSpec,
    TaskState,
    TaskStatus,
    encode,
)
from eagle3_remote.rpc import Refused

DONE = ExtractStatus(
    ExtractState.RUNNING, "", total=10, stored=4, in_flight=2, samples_per_s=3.0, bytes_stored=7, eta=9.0
)


def said(state: TaskState, heard_at: float | None = 1000.0, index: int = 0) -> TaskStatus:
    return TaskStatus(index, state, "its own word", "node1", heard_at=heard_at, extract=DONE, log="slurm-0.out")


def word(state: str, reason: str = "") -> slurm.Word:
    return slurm.Word(state, "node1", reason)


@pytest.mark.parametrize(
    ("own", "queued", "ended", "state", "sentence"),
    [
        (said(TaskState.EXTRACTING), word("RUNNING"), None, TaskState.EXTRACTING, "its own word"),
        (
            said(TaskState.EXTRACTING, 1000 - SILENT_AFTER - 1),
            word("RUNNING"),
            None,
            TaskState.EXTRACTING,
            "it said nothing for 121 s",
        ),
        (
            said(TaskState.EXTRACTING),
            word("PENDING", "Priority"),
            None,
            TaskState.QUEUED,
            "(Priority). 4 samples of its shard",
        ),
        (said(TaskState.FAILED), word("PENDING"), None, TaskState.QUEUED, "It waits in Slurm's queue."),
        (said(TaskState.STOPPED), word("RUNNING"), None, TaskState.STARTING, "Slurm starts it on node1"),
        (said(TaskState.QUEUED, None), word("RUNNING"), None, TaskState.STARTING, "Slurm starts it on node1"),
        (
            said(TaskState.EXTRACTING),
            None,
            word("NODE_FAIL", "exit code 0:0"),
            TaskState.LOST,
            "Slurm calls it NODE_FAIL (exit code 0:0)",
        ),
        (said(TaskState.EXTRACTING), None, word("OUT_OF_MEMORY"), TaskState.LOST, "Slurm calls it OUT_OF_MEMORY"),
        (said(TaskState.EXTRACTING), None, None, TaskState.LOST, "not in Slurm's queue any more"),
        (said(TaskState.QUEUED, None), None, None, TaskState.LOST, "Submit the array again"),
        (said(TaskState.FAILED), None, word("FAILED"), TaskState.FAILED, "its own word"),
        (said(TaskState.FINISHED), None, None, TaskState.FINISHED, "its own word"),
        (said(TaskState.FINISHED), word("COMPLETING"), None, TaskState.FINISHED, "its own word"),
    ],
)
def test_a_task_is_what_it_says_unless_slurm_knows_better(
    own: TaskStatus, queued: slurm.Word | None, ended: slurm.Word | None, state: TaskState, sentence: str
) -> None:
    now = judge(own, queued, ended, False, 1000.0)
    assert now.state is state
    assert sentence in now.sentence
    assert now.extract is not None
    idle = state not in (TaskState.EXTRACTING, TaskState.FINISHED)
    assert (now.extract.stored, now.extract.in_flight) == (4, 0 if idle else 2)


def test_a_silent_controller_changes_nothing() -> None:
    assert judge(said(TaskState.EXTRACTING), None, None, True, 1000.0).state is TaskState.EXTRACTING


def test_the_sum_over_the_tasks(tmp_path: Path) -> None:
    spec, folder = wish(tmp_path), ArrayFolder.of(str(tmp_path / "out"))
    tasks = [said(TaskState.EXTRACTING), said(TaskState.EXTRACTING, index=1), said(TaskState.QUEUED, index=2)]
    now = summary("7", folder, spec, tasks, "")
    assert (now.running, now.queued, now.over, now.total.state) == (2, 1, False, ExtractState.RUNNING)
    assert (now.total.stored, now.total.total, now.total.samples_per_s, now.total.bytes_stored) == (12, 30, 9.0, 21)
    assert now.total.eta is None, "a task that waits cannot be forecast"
    assert now.sentence == "Array 7 of 3 tasks: 2 run, 1 wait."
    over = summary("7", folder, spec, [said(TaskState.FINISHED), said(TaskState.LOST, index=1)], "")
    assert (over.over, over.failed, over.total.state) == (True, 1, ExtractState.STOPPED)
    whole = summary("7", folder, spec, [said(TaskState.FINISHED)] * 2, "")
    assert (whole.over, whole.total.state) == (True, ExtractState.FINISHED)
    assert f"merge --out {tmp_path / 'out'}" in whole.sentence


def wish(root: Path, **more: object) -> ArraySpec:
    (root / "model").mkdir(exist_ok=True)
    (root / "data.jsonl").touch()
    server = ServerSpec(model=str(root / "model"), python=sys.executable)
    spec = ArraySpec(server, ExtractSpec(str(root / "data.jsonl"), str(root / "out")), 3)
    return dataclasses.replace(spec, **more)  # type: ignore[arg-type]


def test_the_script(tmp_path: Path) -> None:
    root = tmp_path / "my 100% data"
    root.mkdir()
    spec = wish(root, at_once=2, sbatch_args=("--gres=gpu:8", "--comment=it's mine"))
    lines = script_of(spec, ArrayFolder.of(spec.extract.out)).splitlines()
    assert lines[0] == "#!/bin/sh"
    assert "#SBATCH --job-name=eagle3-out" in lines
    assert "#SBATCH --array=0-2%2" in lines
    assert f"#SBATCH --output='{tmp_path}/my 100%% data/out.array/slurm-%a.out'" in lines
    assert "#SBATCH --requeue" in lines
    assert "#SBATCH --gres=gpu:8" in lines
    assert lines[-1].startswith(f"exec {sys.executable} -u -c ")


@pytest.fixture
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_slurm")
def test_what_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    home, good = tmp_path / "home", wish(tmp_path)
    cases = {
        "There is no model directory": {"server": dataclasses.replace(good.server, model="/nowhere")},
        "The data /nowhere does not exist": {"extract": dataclasses.replace(good.extract, data="/nowhere")},
        "cannot be started on this host": {"server": dataclasses.replace(good.server, python="/nowhere")},
        "The parent of the output directory, /nowhere": {
            "extract": dataclasses.replace(good.extract, out="/nowhere/out")
        },
        "exists already": {"extract": dataclasses.replace(good.extract, out=str(tmp_path / "model" / ".."))},
        "at least one task": {"tasks": 0},
        "cannot be handed to sbatch": {"sbatch_args": ("--array=0-9",)},
        "each is one word": {"sbatch_args": ("gpu:8",)},
    }
    for text, change in cases.items():
        with pytest.raises(Refused, match=text):
            submit(home, tmp_path, dataclasses.replace(good, **change))  # type: ignore[arg-type]
    assert not (tmp_path / "out.array").exists()
    assert submit(home, tmp_path, good, dry_run=True).script.startswith("#!/bin/sh")
    assert not (tmp_path / "out.array").exists()


@pytest.mark.usefixtures("no_slurm")
def test_a_host_without_slurm_says_so(tmp_path: Path, release: Path) -> None:
    with pytest.raises(Refused, match="sbatch is not in the PATH of this host"):
        submit(tmp_path / "home", release, wish(tmp_path))
    other = wish(tmp_path, tasks=4)
    with pytest.raises(Refused, match="was begun with 3 tasks, 4 are asked for"):
        submit(tmp_path / "home", release, other)


def test_what_accounting_remembers_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for sacct, which needs a database: its lines are as the manual of Slurm 22.05 shows them."""
    program = tmp_path / "sacct"
    program.write_text(
        "#!/bin/sh\nprintf '7_0|COMPLETED|n1|0:0\\n7_1|CANCELLED by 1000|n2|0:15\\n7_[2,4-5%%2]|CANCELLED by 0|None assigned|0:0\\n'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert slurm.accounting("7") == {
        0: slurm.Word("COMPLETED", "n1", "exit code 0:0"),
        1: slurm.Word("CANCELLED", "n2", "exit code 0:15"),
        **dict.fromkeys((2, 4, 5), slurm.Word("CANCELLED", "None assigned", "exit code 0:0")),
    }


def test_a_snapshot_of_many_tasks_stays_small(tmp_path: Path) -> None:
    """A screen asks twice a second: those that ended early come first, the rest only as far as there is room."""
    spec, folder = wish(tmp_path, tasks=3000), ArrayFolder.of(str(tmp_path / "out"))
    folder.root.mkdir()
    folder.write(spec, [])
    home = tmp_path / "home"
    home.mkdir()
    (home / LATEST_FILE).write_text(str(folder.root))
    lost = dataclasses.replace(said(TaskState.FAILED, index=2999), extract=dataclasses.replace(DONE, spec=spec.extract))
    folder.home(2999).mkdir(parents=True)
    folder.said(2999).write_text(json.dumps(encode(lost)))
    control = ArrayControl(home, tmp_path)
    now = control.brief()
    assert now is not None
    assert (len(now.tasks), now.tasks[0].index, now.queued, now.failed) == (64, 2999, 2999, 1)
    assert len(json.dumps(encode(now))) < 64_000
    whole = control.status(None)
    assert whole is not None
    assert len(json.dumps(encode(whole))) < MAX_LINE_BYTES


@pytest.mark.usefixtures("no_slurm")
def test_killed_while_it_is_copied_it_can_be_submitted_again(
    tmp_path: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_from: Path, _to: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("eagle3_remote.array.submit._copy_release", killed)
        with pytest.raises(KeyboardInterrupt):
            submit(tmp_path / "home", release, wish(tmp_path))
    with pytest.raises(Refused, match="sbatch is not in the PATH"):
        submit(tmp_path / "home", release, wish(tmp_path))


@pytest.mark.parametrize(("code", "requeued"), [(task.EXIT_STOPPED, 1), (0, 0), (6, 0)])
def test_a_task_that_came_to_its_end_is_not_put_back_into_the_queue(
    code: int, requeued: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit was near, and it made it. A stand-in for the task itself; the real one is in tests/slurm."""
    folder, put_back = ArrayFolder.of(str(tmp_path / "out")), []
    folder.root.mkdir()
    folder.write(wish(tmp_path), [])
    warned = types.SimpleNamespace(ask=None, run=lambda: code, requeue=True)
    monkeypatch.setattr(task, "Task", lambda *_: warned)
    monkeypatch.setattr(task, "_adopt_orphans", lambda: None)
    monkeypatch.setattr(task.signal, "signal", lambda *_: None)
    monkeypatch.setattr(slurm, "requeue", lambda *job: put_back.append(job))
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("EAGLE3_HOME", "")  # the task sets it in its own process, which is ours here
    assert task.main([str(folder.root), "1"]) == code
    assert put_back == [("7", 1)] * requeued


def test_a_port_that_every_sglang_can_take() -> None:
    """0.5.13 adds 10,000 to it for a second server, and ends where that is no port."""
    assert max(task.free_port() for _ in range(2000)) + 10_000 <= 65_535
