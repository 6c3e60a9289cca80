"""The box's Python, a real server and a dataset extracted from it, shared by this folder's tests."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.extract.journal import open_readonly
from eagle3_remote.protocol import ExtractSpec
from tests.extract import jobs
from tests.patch import servers


@pytest.fixture(scope="package")
def bed() -> install.TestBed:
    return install.ensure(install.VERSIONS[-1])


@pytest.fixture(scope="package")
def python(bed: install.TestBed) -> Path:
    return bed.python


SERVER_ARGS = ("--disable-radix-cache", "--dtype", "float32", "--context-length", "1024")


@dataclasses.dataclass(frozen=True)
class Real:
    """A real, patched SGLang server on the CPU with a tiny float32 llama, and data for it."""

    server: servers.Server
    model: Path
    data: Path
    samples: int


@pytest.fixture(scope="package")
def real(bed: install.TestBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    work = tmp_path_factory.mktemp("real")
    model, data = work / "model", work / "tokenized_data.jsonl"
    makers = {
        "make_model.py": ("llama", model, "--dtype", "float32"),
        "make_data.py": (data, "--samples", "64", "--ids"),
    }
    for script, words in makers.items():
        argv = [str(bed.python), str(install.HERE / script), *map(str, words)]
        subprocess.run(argv, check=True, capture_output=True, timeout=120)
    with servers.running(bed, model, work / "server", *SERVER_ARGS) as server:
        yield Real(server, model, data, 64)


@pytest.fixture(scope="package")
def dataset(real: Real, python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole dataset of all 64 samples; its extraction was killed by SIGKILL in the middle and started again."""
    work = tmp_path_factory.mktemp("dataset")
    spec = spec_of(real, work / "out")
    first, second = (jobs.prepare(work / name, spec) for name in ("extract-1", "extract-2"))
    with jobs.start(python, first) as process:
        jobs.wait_until(first, lambda now: now.stored >= 10, process)
        process.kill()
    journal = open_readonly(str(work / "out/.eagle3/journal.sqlite3"))
    before = {entry.row: entry for entry in journal.stored()}
    journal.close()
    assert 10 <= len(before) < real.samples
    assert jobs.run(python, second) == 0, (second / "out.log").read_text()
    journal = open_readonly(str(work / "out/.eagle3/journal.sqlite3"))
    assert {entry.row: entry for entry in journal.stored() if entry.row in before} == before, "stored is stored"
    journal.close()
    return work / "out"


def spec_of(real: Real, out: Path, **more: object) -> ExtractSpec:
    """An extraction from the real server."""
    given = {"data": str(real.data), "tokens_in_flight": 1024, **more}
    return ExtractSpec(
        out=str(out), server_url=real.server.url, dump_dir=str(real.server.dump_dir), model=str(real.model), **given
    )  # type: ignore[arg-type]
