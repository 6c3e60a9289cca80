"""Fixtures of the box side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote import jobs, stopping
from tests.box.client import make_release


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release folder as it lies on a box."""
    return make_release(tmp_path_factory.mktemp("release"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A box folder. No process of its jobs may be left when the test ends."""
    folder = tmp_path / "home"
    yield folder
    left = []
    for job in jobs.everything(folder):
        if stopping.members(job):
            left.append(f"{job.id}: {[(stat.pid, stat.name) for stat in stopping.members(job)]}")
            stopping.stop(job, grace=0.5, term=0.5)  # a failed test shall not burden the next one
    assert not left, f"processes of jobs are left: {left}"
