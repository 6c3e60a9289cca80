"""Where a dataset may lie: in a folder of its own, outside of every other dataset, of the model and of the data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import place
from eagle3_remote.extract.__main__ import main as extraction
from eagle3_remote.extract.errors import EXIT_NOT_FIT, ExtractionError
from tests.extract import jobs
from tests.extract.made import write_data
from tests.extract.standin import standin
from tests.extract.test_planning import plan, spec_of

INSIDE = (".eagle3", ".eagle3/new", "hidden_states", "hidden_states/new", "new", "a/b/c/d")
LISTED = [[1, 2, 3], [4, 5, 6]]


def dataset(root: Path, known_by: str = place.JOURNAL) -> Path:
    (root / known_by).parent.mkdir(parents=True)
    (root / known_by).touch()
    return root


@pytest.mark.parametrize("known_by", [place.JOURNAL, place.MANIFEST])
@pytest.mark.parametrize("inside", INSIDE)
def test_inside_a_dataset_however_deep_and_by_whatever_it_is_known(tmp_path: Path, known_by: str, inside: str) -> None:
    root = dataset(tmp_path / "made", known_by)
    why = place.misplaced(str(root / inside))
    assert why is not None
    assert f"lies inside the dataset {root} " in why
    (root / inside).parent.mkdir(parents=True, exist_ok=True)
    before = sorted(root.rglob("*"))
    with pytest.raises(ExtractionError, match="lies inside the dataset") as refused:
        ds.prepare(str(root / inside))
    assert refused.value.exit_code == EXIT_NOT_FIT
    assert sorted(root.rglob("*")) == before


def test_through_a_link_it_lies_where_the_link_points(tmp_path: Path) -> None:
    root = dataset(tmp_path / "made")
    (tmp_path / "link").symlink_to(root)
    assert place.dataset_above(str(tmp_path / "link" / "new")) == str(root)
    assert place.misplaced(str(tmp_path / "link")) is None, "the dataset itself goes on, by whatever name"


def test_the_dataset_itself_its_neighbours_and_the_shards_of_an_array_are_right(tmp_path: Path) -> None:
    root = dataset(tmp_path / "made")
    shard = ArrayFolder.of(str(root)).shard(0, 8)
    for right in (root, tmp_path / "made-2", tmp_path, shard, dataset(shard), shard.with_name("1-of-8")):
        assert place.misplaced(str(right)) is None, right
    assert place.misplaced(str(shard / "hidden_states")) is not None


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("model", "is where the model itself lies"),
        ("model/out", "lies inside the model's folder"),
        ("model/a/b", "lies inside the model's folder"),
        ("data", "is where the data itself lies"),
        ("data/out", "lies inside the data's folder"),
        (".", "holds the model"),
        ("in/file.jsonl/..", "holds the data"),
        ("models", ""),
        ("data-out", ""),
    ],
)
def test_neither_model_nor_data_share_a_folder_with_a_dataset(tmp_path: Path, out: str, words: str) -> None:
    for name in ("model", "data", "in"):
        (tmp_path / name).mkdir()
    write_data(tmp_path / "in" / "file.jsonl", LISTED)
    data = tmp_path / ("in/file.jsonl" if out.startswith("in") else "data")
    why = place.misplaced(os.path.normpath(tmp_path / out), str(tmp_path / "model"), str(data))
    assert (why is None) if not words else (words in str(why))


@pytest.mark.parametrize("where", ["other/hidden_states/new", "other/new", "model/new", "."])
def test_an_extraction_is_refused_however_it_is_started(
    tmp_path: Path, python: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the agent's run directory, by hand, and when it is planned: exit code 5, a sentence, and nothing was made or sent."""
    dataset(tmp_path / "other")
    (tmp_path / "other" / "hidden_states").mkdir()
    with standin(tmp_path) as server:
        out = os.path.normpath(tmp_path / where)
        spec = spec_of(server, tmp_path, out=out)
        run_dir = jobs.prepare(tmp_path / "run", spec)
        before = sorted(path for path in tmp_path.rglob("*") if "run" not in path.parts)
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == EXIT_NOT_FIT
        code, made, planned = plan(python, spec)
        assert (code, made) == (EXIT_NOT_FIT, None)
        words = ["--server-url", server.url, "--hs-dump-dir", str(server.dump_dir), "--output-dir", out]
        words += ["--prepared-data", spec.data, "--boundaries", "2,4,5", "--final", "pre"]
        for named in ([], ["--model", spec.model]):
            assert extraction([*words, *named]) == EXIT_NOT_FIT
        for said in (jobs.status(run_dir).sentence, planned, capsys.readouterr().out):
            assert f"The output {out} " in said
            assert "choose " in said
        assert sorted(path for path in tmp_path.rglob("*") if "run" not in path.parts) == before
        assert server.prompts == []
