"""Work on datasets whose start was asked for, and asked for again because the answer was lost with the link: it is done once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.job import jobs
from eagle3_remote.protocol import ExportSpec, MergeSpec, ReclaimSpec, WorkState, WorkStatus, encode
from tests.box.client import AgentProcess, Answered, agent, make_release, until
from tests.box.test_steering import ask
from tests.extract import jobs as extract_jobs
from tests.extract.made import write_data
from tests.extract.standin import standin


@pytest.fixture(scope="module")
def made(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shards 0 and 1 and the whole, each by an extraction of its own."""
    root = tmp_path_factory.mktemp("made")
    write_data(root / "data.jsonl", [[i + 1] * 5 for i in range(6)])
    with standin(root) as server:
        runs = [
            extract_jobs.prepare(
                root / f"run-{name}",
                server.spec(root / "data.jsonl", root / name, shard=shard),
            )
            for name, shard in (("whole", "0/1"), ("0", "0/2"), ("1", "1/2"))
        ]
        assert extract_jobs.run(python, *runs, tuning=extract_jobs.QUICK) == 0
    return root


def wish(kind: str, root: Path, python: Path) -> dict[str, Any]:
    match kind:
        case "merge":
            return dict(encode(MergeSpec(str(root / "joined"), (str(root / "0"), str(root / "1")), python=str(python))))
        case "export":
            spec = ExportSpec(str(root / "whole"), "speculators-v1", str(root / "v1"), final="pre", python=str(python))
            return dict(encode(spec))
        case _:
            return dict(encode(ReclaimSpec(str(root / "whole"), "whole")))


@pytest.mark.parametrize(("method", "kind"), [("merge", "merge"), ("export", "export"), ("space.reclaim", "reclaim")])
@pytest.mark.parametrize("when", ["while it works", "when it has ended"])
def test_a_start_whose_answer_was_lost_is_answered_again_as_it_was(
    method: str, kind: str, when: str, made: Path, python: Path, tmp_path: Path
) -> None:
    home, release, root = tmp_path / "home", make_release(tmp_path / "release"), tmp_path / "data"
    shutil.copytree(made, root)
    asked = wish(kind, root, python)
    with agent(release, home) as one, agent(release, home) as other:
        if kind == "reclaim":
            other.call("space", paths=[str(root)])  # only what was shown is removed
        ask(one, 501, method, **asked)
        job = until(lambda: next(iter(jobs.everything(home, kind)), None))
        assert one.process.stdin is not None
        one.process.stdin.close()  # the link is lost; the start goes on, its answer reaches nobody
        if when == "when it has ended":
            until(lambda: jobs.exit_code(job) is not None)
        ask(other, 502, method, **asked)
        assert other.answer(502)["result"]["id"] == job.id
        until(lambda: jobs.exit_code(job) is not None)
        assert jobs.exit_code(job) == 0, job.log_path.read_text()
        assert [found.id for found in jobs.everything(home, kind)] == [job.id]
        assert other.ask(WorkStatus, "work", job=job.id).state is WorkState.FINISHED
        assert another(other, method, asked) != job.id
        one.process.wait(60)
        one._end()
    until(lambda: all(jobs.exit_code(found) is not None for found in jobs.everything(home, kind)))


def another(box: AgentProcess, method: str, asked: dict[str, Any]) -> str:
    """The job of a wish that is no repetition; what is gone is not removed again."""
    try:
        return str(box.call(method, **asked)["id"])
    except Answered as refused:
        return str(refused)
