"""Our own exports are told as such among what lies on a box, held while they are written, and removed name by name."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.export.formats import FORMATS
from eagle3_remote.export.target import Target
from eagle3_remote.job import jobs
from eagle3_remote.protocol import ExportSpec, WorkState
from tests.box.client import AgentProcess, Answered, agent, until
from tests.box.test_space import dataset_at, look, reclaim
from tests.extract import exports, made
from tests.extract import jobs as extract_jobs
from tests.extract.standin import standin


@pytest.fixture
def box(release: Path, home: Path) -> Iterator[AgentProcess]:
    with agent(release, home) as one:
        yield one


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with an export in each format beside it, by the programs that make them; that as SpecForge is not complete."""
    root, work = tmp_path_factory.mktemp("exported"), tmp_path_factory.mktemp("work")
    python = install.ensure(install.VERSIONS[-1]).python
    made.write_data(work / "data.jsonl", [[1, 2, 3], [4, 5]])
    with standin(work) as server:
        spec = server.spec(work / "data.jsonl", root / "hidden")
        assert extract_jobs.run(python, extract_jobs.prepare(work / "run", spec), tuning=extract_jobs.QUICK) == 0
    wanted = [name for name in FORMATS if name != "specforge"]
    specs = [ExportSpec(str(root / "hidden"), name, str(root / f"as-{name}"), final="pre") for name in wanted]
    runs = [exports.prepare(work / name, spec) for name, spec in zip(wanted, specs, strict=True)]
    done = exports.run(python, *runs)
    assert done.returncode == 0, done.stdout + done.stderr
    target = Target(str(root / "as-specforge"), str(root / "hidden"), {"format": "specforge", "final": "post"})
    for path in (target.path(FORMATS["specforge"].place(2001)), target.tmp(2002)):
        Path(path).write_bytes(b"x" * 5000)
    os.close(target._lock)
    return root


def test_exports_of_ours_are_told_as_such(box: AgentProcess, exported: Path, tmp_path: Path) -> None:
    """By format, source and whether they are complete; every name in them is one of theirs, and they are removed like a dataset."""
    found = {one.kind: one for one in look(box, exported).found}
    assert set(found) == {"dataset", *(f"export-{name}" for name in FORMATS)}
    for name in FORMATS:
        one = found[f"export-{name}"]
        assert (one.ours, one.strangers, one.path) == (True, 0, str(exported / f"as-{name}"))
        assert one.note == f"an export of ours as {name}, of {exported}/hidden"
        whole = name != "specforge"
        assert (one.complete, one.samples, one.final) == (whole, 2 if whole else None, "pre" if whole else "post")
        assert one.boundaries == ((2, 4, 5) if whole else ())
    copies = tmp_path / "copies"
    shutil.copytree(exported, copies)
    (copies / "as-modelopt/drafter.pt").write_bytes(b"mine")
    look(box, copies)
    for name in FORMATS:
        with (copies / f"as-{name}/.eagle3-export/lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(Answered, match="it is being written by process"):
                reclaim(box, copies / f"as-{name}")
        assert reclaim(box, copies / f"as-{name}").state is WorkState.FINISHED
        assert (copies / f"as-{name}").exists() == (name == "modelopt"), "and what is not of it stays"
    assert [path.name for path in (copies / "as-modelopt").iterdir()] == ["drafter.pt"]


def test_an_export_holds_both_of_its_folders(box: AgentProcess, home: Path, release: Path, tmp_path: Path) -> None:
    root = dataset_at(tmp_path / "hidden")
    look(box, tmp_path)
    job = jobs.start(home, release, jobs.new_id("export"), ["/bin/sleep", "60"], {}, {"dataset": str(root), "to": "/x"})
    try:
        with pytest.raises(Answered, match=f"is in use: job {job.id} works on it"):
            reclaim(box, root)
    finally:
        os.kill(job.leader.pid if job.leader else 0, signal.SIGTERM)
    until(lambda: jobs.exit_code(job) is not None)
