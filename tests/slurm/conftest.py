"""A real Slurm of one node, and a login host of it that is reached over SSH."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from tests.e2e.conftest import Box, Hosted
from tests.slurm import cluster


@dataclasses.dataclass(frozen=True)
class Login:
    """The login host, and the environment in which Slurm's programs find the cluster."""

    box: Box
    env: dict[str, str]


@pytest.fixture(scope="module")
def login(needs: Callable[[bool, str], None]) -> Iterator[Login]:
    lacking = cluster.missing()
    needs(not lacking, f"Slurm cannot be started here without {', '.join(lacking)}")
    bed = install.ensure(install.VERSIONS[-1])
    # Slurm's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="eagle3-slurm-") as folder:
        root = Path(folder)
        with cluster.running(root) as env:
            hosted = Hosted(root, bed.env | env)
            try:
                yield Login(Box(hosted.box, bed, root), env)
            finally:
                hosted.close()
