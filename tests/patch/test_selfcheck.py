"""What the start-up check lets through and what it refuses, rank by rank; that it works on real servers is shown by the
tests that start some."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.testbed import install
from tests.patch.servers import ENTRY


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    python = install.ensure(install.VERSIONS[0]).python
    script = Path(__file__).with_name("selfcheck_cases.py")
    done = subprocess.run([str(python), str(script), str(ENTRY.parents[1])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("case", "ranks", "worst"),
    [
        ("one good rank", 1, 0.0),
        ("two equal ranks", 2, 0.0),
        ("two ranks equal up to the last place of bfloat16", 2, 2.0**-7),
    ],
)
def test_right_rows_pass(cases: dict[str, Any], case: str, ranks: int, worst: float) -> None:
    assert len(cases[case]) == ranks
    for report in cases[case]:
        assert (report["rows"], report["ranks"]) == (100, ranks)
        assert report["rank_difference"] <= worst
        assert report["norm_difference"] < 1e-2


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("the last place of float32 differs", "boundary 2 differ between the tensor-parallel ranks 0 and 1"),
        ("a partial sum on one rank", "boundary 4 differ between the tensor-parallel ranks 0 and 1 by 0.5"),
        ("a partial sum in bfloat16", "boundary 4 differ between the tensor-parallel ranks 0 and 1 by 0.5"),
        ("not finite", "the states of boundary 2 are not finite on rank 1 of 2"),
        ("another norm", "the final norm of the state before it is not the state that the logits are made of"),
        ("a layer missing", "2 states were captured where 3 were asked for"),
        ("a failure on one rank", "no such hook on rank 1 of 2"),
        ("fewer rows than computed", "101 rows were computed and"),
        ("rows of different batches", "25"),
    ],
)
def test_wrong_rows_are_refused_by_all_ranks_alike(cases: dict[str, Any], case: str, says: str) -> None:
    (first, *others) = cases[case]
    assert says in first
    assert all(other == first for other in others)


def test_the_first_and_the_last_row_of_a_batch_are_looked_at(cases: dict[str, Any]) -> None:
    one, many = cases["picked"]
    assert one == [0]
    assert (many[0], many[-1], len(many), len(set(many))) == (0, 4999, 64, 64)
