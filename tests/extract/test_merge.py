"""Shards of one input, joined: the same dataset as without shards, no state copied, whatever kills it in between."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.disk import control, look
from eagle3_remote.extract import dataset as ds
from eagle3_remote.protocol import (
    MergeSpec,
    ReclaimSpec,
    SpaceQuery,
    WorkState,
    WorkStatus,
    decode,
    encode,
)
from eagle3_remote.rpc import Refused
from tests.extract import jobs
from tests.extract.made import write_data
from tests.extract.standin import StandIn, standin

IDS = [[100 + i] * (3 + i % 5) for i in range(13)]
BAD_LINE, FAILING = 5, 108
"""Line 5 is refused, the sample of 108s never comes right."""
COUNT = 3


def act(ids: list[int], attempt: int) -> str:
    return "non-finite" if ids[0] == FAILING else "good"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with standin(tmp_path_factory.mktemp("standin"), act) as running:
        yield running


def extraction(server: StandIn, data: Path, out: Path, run_dir: Path, **more: Any) -> Path:
    return jobs.prepare(run_dir, server.spec(data, out, **more))


@pytest.fixture(scope="module", params=[None, 7], ids=["in order", "shuffled"])
def made(
    request: pytest.FixtureRequest, server: StandIn, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with the shards 0, 1, 2 and the whole, each by an extraction of its own."""
    root = tmp_path_factory.mktemp("made")
    data = root / "data.jsonl"
    write_data(data, [[] if line == BAD_LINE else ids for line, ids in enumerate(IDS, 1)])
    wishes = {"whole": "0/1", **{str(index): f"{index}/{COUNT}" for index in range(COUNT)}}
    runs = [
        extraction(server, data, root / name, root / f"run-{name}", shard=shard, shuffle=request.param)
        for name, shard in wishes.items()
    ]
    assert jobs.run(python, *runs, tuning=jobs.QUICK) == 7
    return root


@pytest.fixture
def shards(made: Path, tmp_path: Path) -> list[Path]:
    """Copies, to be joined or spoilt."""
    for index in range(COUNT):
        shutil.copytree(made / str(index), tmp_path / str(index))
    return [tmp_path / str(index) for index in range(COUNT)]


def merge(python: Path, out: Path, shards: list[Path], by: str = "hard-link") -> WorkStatus:
    run_dir = Path(tempfile.mkdtemp(dir=out.parent, prefix="merge-"))
    spec = MergeSpec(str(out), tuple(map(str, shards)), by)
    (run_dir / "spec.json").write_text(json.dumps({"message": encode(spec)}))
    code = jobs.CODE.format(module="merge") + jobs.PLAIN
    done = subprocess.run([str(python), "-c", code, str(run_dir)], capture_output=True, text=True, timeout=120)
    work = decode(WorkStatus, json.loads((run_dir / "progress.json").read_text()))
    assert done.stderr == ""
    assert (done.returncode == 0) == (work.state is WorkState.FINISHED), done.stdout
    return work


def samples(dataset: Path) -> list[Any]:
    """What the journal says of every sample, but for where its tokens lie and when it was stored."""
    with sqlite3.connect(dataset / ".eagle3/journal.sqlite3") as db:
        return db.execute(
            "SELECT line, row, state, attempts, tokens, loss_tokens, full_tokens, has_mask, fingerprint, sample_id, kind, reason,"
            " bytes, crc32, target FROM samples ORDER BY line"
        ).fetchall()


def facts(dataset: Path) -> dict[str, Any]:
    """The manifest, but for what names a run."""
    manifest = json.loads((dataset / ".eagle3/manifest.json").read_text())
    own = ("begun_at", "written_at", "merged_from", "merged_by")
    return {key: value for key, value in manifest.items() if key not in own}


def same(one: Path, other: Path) -> None:
    """Two datasets are the same, byte for byte where a trainer looks."""
    for name in (ds.ARROW_FILE, ds.INFO_FILE, ds.STATE_FILE):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    states = [{path.name: path.read_bytes() for path in (root / "hidden_states").iterdir()} for root in (one, other)]
    assert states[0] == states[1]
    assert samples(one) == samples(other)
    assert facts(one) == facts(other)


def test_the_whole_is_what_one_extraction_makes(made: Path, shards: list[Path], python: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    work = merge(python, out, [shards[2], shards[0], shards[1]])
    assert work.state is WorkState.FINISHED, work.sentence
    assert (work.done, work.total) == (11, 11)
    same(out, made / "whole")
    assert jobs.verify(python, out).ok
    inodes = {path.stat().st_ino for shard in shards for path in (shard / "hidden_states").iterdir()}
    assert {path.stat().st_ino for path in (out / "hidden_states").iterdir()} == inodes, "nothing was copied"
    for shard in shards:
        assert jobs.verify(python, shard).ok
    assert "already" in merge(python, out, shards).sentence


def test_an_extraction_of_the_whole_goes_on_with_it(
    made: Path, shards: list[Path], server: StandIn, python: Path, tmp_path: Path
) -> None:
    """What failed in a shard is tried again by the same extraction without shards; nothing else is sent."""
    out = tmp_path / "out"
    assert merge(python, out, shards).state is WorkState.FINISHED
    server.prompts.clear()
    seed = json.loads((out / ".eagle3/manifest.json").read_text())["data"]["shuffle"]
    run_dir = extraction(server, made / "data.jsonl", out, tmp_path / "run", shuffle=seed)
    server.behave = lambda ids, attempt: "good"
    try:
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 7, "the bad line stays bad"
    finally:
        server.behave = act
    assert server.prompts == [IDS[FAILING - 100]]
    assert jobs.verify(python, out).samples == 12


@pytest.mark.parametrize("by", ["rename", "symlink"])
def test_other_ways_to_share_states(by: str, made: Path, shards: list[Path], python: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert merge(python, out, shards, by).state is WorkState.FINISHED
    same(out, made / "whole")
    assert jobs.verify(python, out).ok
    if by == "rename":
        assert not [path for shard in shards for path in (shard / "hidden_states").iterdir()]
        assert not (shards[0] / ds.STATE_FILE).exists(), "no trainer takes a used up shard for a dataset"
    else:
        assert all(path.is_symlink() for path in (out / "hidden_states").iterdir())
        moved = tmp_path / "moved"
        moved.mkdir()
        for path in (out, *shards):
            path.rename(moved / path.name)
        assert jobs.verify(python, moved / "out").ok, "a tree that moves as a whole stays whole"


KILLED = """
import sys, json, shutil, pathlib
sys.path[:0] = {paths!r}
import pyarrow
from eagle3_remote.extract import merge
from tests.extract.kill_at import killed_at
root, made, by = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
names = ["0", "1", "2"]
for number in range(1, 100_000):
    work = root / str(number)
    for name in names:
        shutil.copytree(made / name, work / name)
    (work / "run").mkdir()
    spec = {{"out": str(work / "out"), "shards": [str(work / name) for name in names], "by": by}}
    (work / "run/spec.json").write_text(json.dumps({{"message": spec}}))
    def join():
        assert merge.main([str(work / "run")]) == 0, (work / "run/progress.json").read_text()
    points = killed_at(number, join)
    killed_at(0, join)
    if points is not None:
        break
    if number % 10:
        shutil.rmtree(work)
print(number)
"""


@pytest.mark.parametrize("by", ["hard-link", "rename"])
def test_killed_between_any_two_steps(by: str, made: Path, python: Path, tmp_path: Path) -> None:
    """Every point is hit once; then an undisturbed start finishes what the killed one left."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        code = KILLED.format(paths=[str(jobs.ROOT), *jobs.PATHS])
        words = [str(python), "-c", code, memory, str(made), by]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert int(done.stdout.splitlines()[-1]) > 40
        for work in Path(memory).iterdir():
            shutil.move(work / "out", tmp_path / work.name)
            same(tmp_path / work.name, made / "whole")


def edit_identity(dataset: Path, /, **change: object) -> None:
    with sqlite3.connect(dataset / ".eagle3/journal.sqlite3") as db:
        (text,) = db.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        db.execute("UPDATE meta SET value = ? WHERE key = 'identity'", (json.dumps({**json.loads(text), **change}),))


def not_complete(shard: Path) -> None:
    path = shard / ".eagle3/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "complete": False}))


def lose_file(shard: Path) -> None:
    next((shard / "hidden_states").iterdir()).unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda one: edit_identity(one, boundaries=[2, 4, 6]),
            "boundaries is [2, 4, 5] in the one, [2, 4, 6] in the other",
        ),
        (lambda one: edit_identity(one, final="post"), "final is pre in the one, post in the other"),
        (lambda one: edit_identity(one, model="f00"), "are not of one extraction: model is"),
        (lambda one: edit_identity(one, data="f00"), "are not of one extraction: data is"),
        (lambda one: edit_identity(one, shard="1/4"), "splits into different numbers: 3, 4"),
        (lambda one: edit_identity(one, shard="0/3"), "are both shard 0/3"),
        (not_complete, "is not complete: let its extraction come to its end first"),
        (lose_file, "is missing: start the extraction of that shard again"),
        (shutil.rmtree, "is no shard of ours"),
    ],
)
@pytest.mark.parametrize("made", [None], indirect=True)
def test_shards_that_do_not_belong_together(
    spoil: Callable[[Path], None], said: str, shards: list[Path], python: Path, tmp_path: Path
) -> None:
    spoil(shards[1])
    work = merge(python, tmp_path / "out", shards)
    assert work.state is WorkState.FAILED
    assert said in work.sentence, work.sentence


@pytest.mark.parametrize("shuffle", [None, 5])
def test_shards_of_a_choice_without_repeats_are_that_choice(
    shuffle: int | None, server: StandIn, python: Path, tmp_path: Path
) -> None:
    """Of twice the samples the first 20 in the order, and of the same ones only the first: whichever shard has the other."""
    data = tmp_path / "data.jsonl"
    write_data(data, [[] if line == BAD_LINE else ids for line, ids in enumerate([*IDS, *IDS], 1)])
    wishes = {"whole": "", **{str(index): f"{index}/2" for index in range(2)}}
    runs = [
        extraction(
            *(server, data, tmp_path / name, tmp_path / f"run-{name}"),
            shard=shard,
            shuffle=shuffle,
            limit=20,
            duplicates="skip",
        )
        for name, shard in wishes.items()
    ]
    assert jobs.run(python, *runs, tuning=jobs.QUICK) == 7
    out = tmp_path / "out"
    work = merge(python, out, [tmp_path / "0", tmp_path / "1"])
    assert work.state is WorkState.FINISHED, work.sentence
    same(out, tmp_path / "whole")
    assert facts(out)["counts"]["duplicates"]["input_ids"] > 0


@pytest.mark.parametrize("made", [None], indirect=True)
def test_a_shard_too_few_and_outputs_that_will_not_do(shards: list[Path], python: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "1 shards are missing: 1/3." in merge(python, out, [shards[0], shards[2]]).sentence
    assert "1 shards are missing" in merge(python, out, shards[:2]).sentence
    assert not out.exists()
    out.mkdir()
    (out / "notes").touch()
    assert "is not empty" in merge(python, out, shards).sentence
    (out / "notes").unlink()
    assert merge(python, out, shards).state is WorkState.FINISHED
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        assert os.stat(memory).st_dev != tmp_path.stat().st_dev
        for by, said in (("hard-link", "cannot have a second name in"), ("rename", "into another file system")):
            elsewhere = Path(memory) / by
            assert said in merge(python, elsewhere, shards, by).sentence
        assert merge(python, Path(memory) / "linked", shards, "symlink").state is WorkState.FINISHED
        assert jobs.verify(python, Path(memory) / "linked").ok


@pytest.mark.parametrize("made", [None], indirect=True)
def test_a_shard_that_a_whole_is_linked_to_is_not_removed_before_it(
    made: Path, shards: list[Path], python: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert merge(python, tmp_path / "out", shards, "symlink").state is WorkState.FINISHED
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (tmp_path / "out", *shards):
        path.rename(moved / path.name)
    look.look(home, SpaceQuery(paths=(str(moved),)))
    asked = ReclaimSpec(str(moved / "1"), "1")
    with pytest.raises(Refused, match=rf"{moved}/out was joined from {moved}/1 by symbolic links"):
        control.check(home, asked)
    shutil.rmtree(moved / "out")
    assert control.check(home, asked).path == asked.path
