"""The test beds and tiny models that the tests of the patch share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from tests.patch.reference import HuggingFace
from tests.patch.servers import TESTBED

collect_ignore = [] if os.environ.get("EAGLE3_ALL_SGLANG") else ["test_releases.py"]
"""Nine releases take long: `make test-all-sglang` sets the variable."""

MakeModel = Callable[[str, str], Path]


@pytest.fixture(scope="package")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """``make_model(arch, dtype)``: a tiny checkpoint of 8 layers, made once."""
    root = tmp_path_factory.mktemp("models")

    def make(arch: str, dtype: str) -> Path:
        out = root / f"{arch}-{dtype}"
        if not out.exists():
            python = install.ensure(install.VERSIONS[0]).python
            command = [str(python), str(TESTBED / "make_model.py"), arch, str(out), "--dtype", dtype]
            subprocess.run(command, check=True, capture_output=True)
        return out

    return make


@pytest.fixture(scope="package")
def hugging_face() -> Iterator[HuggingFace]:
    """What dumps are held against; it takes a while to start, so it starts when the first server does."""
    reference = HuggingFace(install.ensure(install.VERSIONS[0]))
    yield reference
    reference.close()
