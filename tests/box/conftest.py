"""Fixtures of the box side."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.job import jobs, stopping
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


SMI = """#!{python}
import sys
if sys.argv[1].startswith('--query-gpu'):
    print('0, GPU-aaaa-1, 73728, 81559\\n1, GPU-bbbb-2, 512, 81559\\n2, GPU-cccc-3, 40960, 81559\\n3, GPU-dddd-4, 40960, 81559')
else:
    print('GPU-aaaa-1, {pid}, 70000, python train.py, --x\\nGPU-aaaa-1, 4194999, 3000, [Not Found]\\nGPU-bbbb-2, {pid}, 300, Xorg')
    print('GPU-dddd-4, {pid}, [N/A], python')
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nvidia-smi that prints what the real one does (0.2.x of its CSV, driver 580)."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SMI.format(python=sys.executable, pid=os.getpid()))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    return tool
