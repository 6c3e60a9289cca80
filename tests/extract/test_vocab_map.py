"""The vocabulary mapping against the trainers' own, and where it is not written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.protocol import VocabMapReport, VocabMapSpec, decode, encode
from tests.extract import trainers
from tests.extract.jobs import PATHS

COMPARE = (Path(__file__).resolve().parents[1] / "reference/compare_vocab.py").read_text()
CODE = (
    f"import sys; sys.path[:0] = {PATHS!r}; from eagle3_remote.export.vocab import main; sys.exit(main(sys.argv[1:]))"
)


def run(python: Path, dataset: Path, to: Path, draft: int = 0) -> Any:
    spec = json.dumps(encode(VocabMapSpec(str(dataset), str(to), draft)))
    done = subprocess.run([python, "-c", CODE, spec], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return json.loads(done.stdout)


def made(python: Path, dataset: Path, to: Path, draft: int = 0) -> VocabMapReport:
    return decode(VocabMapReport, run(python, dataset, to, draft))


@pytest.mark.timeout(900)  # the first run installs the trainers
def test_the_mapping_is_that_of_speculators_with_ties_and_read_by_all(
    dataset: Path, python: Path, tmp_path: Path
) -> None:
    """1000 of 1024 tokens, where many are as frequent as the next one, and more than occur."""
    to = tmp_path / "map"
    report = made(python, dataset, to, 1000)
    assert 0.9 < report.covered <= 1.0
    asked = [("speculators-0.9.0", "speculators"), ("specforge-0.2.0", "specforge"), ("modelopt-0.47.0", "modelopt")]
    found = {}
    for name, kind in asked:
        out = trainers.trainer(name).run(COMPARE, kind, dataset, to, "1000", "1024")
        found[kind] = json.loads(out.splitlines()[-1])
        assert found[kind]["wrong"] == [], kind
    assert report.distinct < 1000 or found["speculators"]["ties"]


def test_a_second_count_is_the_same_and_another_is_not_written_over(
    dataset: Path, python: Path, tmp_path: Path
) -> None:
    to = tmp_path / "map"
    first = made(python, dataset, to, 64)
    before = {path.name: path.read_bytes() for path in to.iterdir()}
    assert made(python, dataset, to, 64) == first
    assert {path.name: path.read_bytes() for path in to.iterdir()} == before
    (to / "token_freq.pt").write_bytes(b"of another dataset")
    assert "token_freq.pt is there already and holds something else" in run(python, dataset, to, 64)["refused"]
    assert (to / "token_freq.pt").read_bytes() == b"of another dataset"


def test_nothing_is_put_where_a_loader_takes_it_for_a_sample(dataset: Path, python: Path, tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1/data_0.pt").touch()
    said = run(python, dataset, tmp_path / "v1")["refused"]
    assert "whose loader takes every file that ends in 'pt' for a sample" in said
    assert [path.name for path in (tmp_path / "v1").iterdir()] == ["data_0.pt"]
