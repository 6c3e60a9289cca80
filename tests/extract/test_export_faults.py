"""Exports that are killed at any step, run out of disk, or cannot link; and the same through the agent and the console."""

from __future__ import annotations

import concurrent.futures
import errno
import json
import os
import signal
import subprocess
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.export import run as export_run
from eagle3_remote.export.source import Row
from eagle3_remote.protocol import (
    ExportSpec,
    JobState,
    JobStatus,
    StopReport,
    VocabMapReport,
    WorkState,
    WorkStatus,
    encode,
)
from tests.box.client import AgentProcess, Answered, agent, make_release, until
from tests.e2e.conftest import console
from tests.extract import exports, filling
from tests.extract.conftest import Real
from tests.extract.filling import fill
from tests.extract.jobs import PATHS, ROOT


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where fsync costs nothing, for there are many."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


@pytest.mark.parametrize("form", ["speculators", "speculators-v1", "pt"])
def test_killed_at_any_step_it_goes_on_and_nothing_is_half(
    form: str, dataset: Path, python: Path, memory: Path
) -> None:
    script = ROOT / "tests/extract/export_killed.py"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, str(ROOT)])}
    argv = [str(python), str(script), str(dataset), str(memory), form]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["points"] > 20
    assert found["files"] == {"speculators": 5, "speculators-v1": 4, "pt": 16}[form]


def test_where_no_link_is_possible_it_is_a_checked_copy(
    dataset: Path, python: Path, memory: Path, tmp_path: Path
) -> None:
    assert memory.stat().st_dev != dataset.stat().st_dev
    done = exports.run(
        python, exports.prepare(tmp_path / "run", ExportSpec(str(dataset), "speculators", str(memory / "out")))
    )
    assert done.returncode == 0, done.stdout
    assert "hard links" not in exports.status(tmp_path / "run").sentence
    for path in (dataset / "hidden_states").iterdir():
        copy = memory / "out/hidden_states" / path.name
        assert copy.read_bytes() == path.read_bytes()
        assert not copy.samefile(path)


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[bool, str], None]) -> Iterator[Path]:
    with filling.small_disk_at(tmp_path / "small", "64m", needs) as path:
        yield path


@pytest.mark.parametrize("form", ["speculators-v1", "speculators"])
def test_a_disk_that_fills_up_pauses_and_goes_on_by_itself(
    form: str, dataset: Path, python: Path, tmp_path: Path, small_disk: Path
) -> None:
    """Somebody takes the target's space between the check and the first file; later it is given back."""
    run_dir = exports.prepare(tmp_path / "run", ExportSpec(str(dataset), form, str(small_disk / "out")))
    filler = small_disk / "filler"
    code = (
        f"import sys; sys.path[:0] = {[*PATHS, str(ROOT)]!r}\nfrom pathlib import Path\n"
        "from eagle3_remote.export import run\nfrom tests.extract.filling import fill\n"
        "checked = run.Export._check_space\n"
        "def check_and_lose(self, *words):\n"
        f"    checked(self, *words); fill(Path({str(filler)!r}), 3_000_000)\n"
        "run.Export._check_space = check_and_lose\n"
        "from eagle3_remote.export.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    with subprocess.Popen([str(python), "-c", code, str(run_dir)], stdout=subprocess.DEVNULL) as process:
        until(lambda: (run_dir / "progress.json").exists() and "is full" in exports.status(run_dir).sentence)
        assert "It goes on by itself when there is space" in exports.status(run_dir).sentence
        filler.unlink()
        assert process.wait(120) == 0
    now = exports.status(run_dir)
    assert (now.state, now.done, now.total) == (WorkState.FINISHED, 64, 64)
    assert json.loads((small_disk / "out/.eagle3-export/manifest.json").read_text())["complete"] is True
    assert not [name for name in os.listdir(small_disk / "out/.eagle3-export") if name.startswith("tmp-")]


def test_too_little_space_is_refused_before_anything_is_written(
    dataset: Path, python: Path, tmp_path: Path, small_disk: Path
) -> None:
    fill(small_disk / "filler", 5_000_000)
    spec = ExportSpec(str(dataset), "specforge", str(small_disk / "out"))
    assert "the rest of the export takes" in exports.refused(python, tmp_path / "run", spec)
    assert os.listdir(small_disk / "out") == [".eagle3-export"]


@pytest.fixture
def box(bed: install.TestBed, tmp_path: Path) -> Iterator[AgentProcess]:
    release = tmp_path / "release"
    release.mkdir()
    with agent(make_release(release), tmp_path / "home", str(bed.python)) as one:
        yield one


def work_of(box: AgentProcess, job: JobStatus) -> WorkStatus:
    return box.ask(WorkStatus, "work", job=job.id)


def ended(box: AgentProcess, job: JobStatus) -> bool:
    now = work_of(box, job).job
    return now is not None and now.state is JobState.FINISHED


def test_an_export_as_a_detached_job(
    dataset: Path, python: Path, box: AgentProcess, tmp_path: Path, real: Real
) -> None:
    """Killed by SIGKILL and started again, a second console joins it, another request is refused, then it is whole."""
    asked = encode(ExportSpec(str(dataset), "specforge", str(tmp_path / "out"), python=str(python)))
    with pytest.raises(Answered, match="No Python with torch is known here"):
        box.call("export", **{**asked, "python": ""})
    job = box.ask(JobStatus, "export", **asked)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGSTOP)  # it is tiny: hold it, so that what is asked meanwhile meets it running
    assert box.ask(JobStatus, "export", **asked).id == job.id
    with pytest.raises(Answered, match=r"exports into .* already, as specforge"):
        box.call("export", **{**asked, "format": "pt"})
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: work_of(box, job).state is WorkState.FAILED)
    assert "it was killed" in work_of(box, job).sentence or "exit code" in work_of(box, job).sentence
    again = box.ask(JobStatus, "export", **{**asked, "python": ""})  # learnt from the first
    until(lambda: ended(box, again))
    now = work_of(box, again)
    assert (now.state, now.done, now.total) == (WorkState.FINISHED, 64, 64), now.sentence
    assert "Its aux_hidden_state_layer_ids: 1, 3, 4; final state post-norm" in now.sentence
    assert len(list((tmp_path / "out").glob("rows_0-2000/data_*.ckpt"))) == real.samples
    with pytest.raises(Answered, match="there is nothing to stop"):
        box.call("export.stop", **asked)


def test_an_export_is_stopped_and_goes_on(dataset: Path, python: Path, box: AgentProcess, tmp_path: Path) -> None:
    asked = encode(ExportSpec(str(dataset), "modelopt", str(tmp_path / "out"), python=str(python)))
    job = box.ask(JobStatus, "export", **asked)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGSTOP)
    number = box.send("export.stop", **asked)
    time.sleep(0.3)
    os.kill(job.pid, signal.SIGCONT)
    stopped = box.answer(number)["result"]
    assert StopReport(**stopped).stopped, stopped
    now = work_of(box, job)
    assert now.job is not None
    # asked before it had begun to listen, the signal ends it at once
    assert now.state in (WorkState.STOPPED, WorkState.FAILED)
    again = box.ask(JobStatus, "export", **asked)
    until(lambda: work_of(box, again).state is WorkState.FINISHED)
    assert len(list((tmp_path / "out").glob("*.pt"))) == 64


def test_export_and_vocab_map_on_the_command_line(dataset: Path, python: Path, tmp_path: Path, real: Real) -> None:
    words = ("local", "--box-dir", tmp_path / "home", "--python", python, "--out", dataset, "--json")
    ran = console("export", *words, "--format", "speculators", "--dtype", "float8_e4m3fn", "--to", tmp_path / "fp8")
    assert ran.code == 0, ran.err
    assert (ran.json["state"], ran.json["job"]["state"]) == ("finished", JobState.FINISHED.value)
    assert (ran.json["done"], ran.json["total"]) == (64, 64)
    ran = console("export", *words, "--format", "specforge", "--final", "pre", "--to", tmp_path / "no")
    assert (ran.code, ran.out) == (5, "")
    assert "specforge needs the final state post-norm, pre-norm is asked for" in ran.err
    ran = console("vocab-map", *words, "--draft-vocab", "256", "--to", tmp_path / "map")
    assert ran.code == 0, ran.err
    assert ran.json["samples"] == 64
    assert {Path(path).name for path in ran.json["files"]} == {path.name for path in (tmp_path / "map").iterdir()}
    ran = console("vocab-map", *words, "--draft-vocab", "2000", "--to", tmp_path / "map2")
    assert ran.code == 5
    assert "The model has 1024 tokens, a draft vocabulary of 2000 is asked for" in ran.err


def test_a_report_of_counts(dataset: Path, python: Path, box: AgentProcess, tmp_path: Path, real: Real) -> None:
    spec = {"dataset": str(dataset), "to": str(tmp_path / "token_freq.pt"), "python": str(python)}
    report = box.ask(VocabMapReport, "vocab-map", **spec)
    samples = [json.loads(line) for line in real.data.read_text().splitlines()]
    counted = [i for s in samples for i, m in zip(s["input_ids"], s["loss_mask"], strict=True) if m]
    assert (report.samples, report.tokens, report.distinct) == (64, len(counted), len(set(counted)))
    assert (report.vocab_size, report.covered, report.files) == (1024, 1.0, (str(tmp_path / "token_freq.pt"),))


def test_the_last_sample_asks_for_no_more_space_than_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but one are written: space for one and a half is enough to go on."""
    looks: list[str] = []
    said: list[str] = []
    form = types.SimpleNamespace(name="pt")
    export = export_run.Export.__new__(export_run.Export)
    export.form, export.facts, export.samples, export.done = form, None, 5, 4  # type: ignore[assignment]
    export.target = types.SimpleNamespace(root=str(tmp_path))  # type: ignore[assignment]
    export._progress = types.SimpleNamespace(stop_asked=False, say=said.append)  # type: ignore[assignment]

    def room(path: str) -> types.SimpleNamespace:
        looks.append(path)
        export._progress.stop_asked = len(looks) > 3  # type: ignore[misc]
        return types.SimpleNamespace(free=150)

    monkeypatch.setattr(export_run, "_POLL", 0.0)
    monkeypatch.setattr(export_run.formats, "size", lambda *_: 100)
    monkeypatch.setattr(export_run.space, "room", room)
    monkeypatch.setattr(export, "_write", lambda _row: 77)
    full: concurrent.futures.Future[int] = concurrent.futures.Future()
    full.set_exception(OSError(errno.ENOSPC, "No space left on device"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert export._wait(pool, Row(4, 1, 0, 0, "", ""), full) == 77
    assert said[-1] == "Writing the rest as pt."
