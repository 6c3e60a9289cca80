"""The extraction against real SGLang: every row right, killed and stopped anywhere, and everything wrong found again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.protocol import ExtractState
from tests.extract import jobs
from tests.extract.conftest import Real, spec_of

REFERENCE = Path(__file__).resolve().parents[1] / "reference" / "compare_dataset.py"


def test_every_row_of_every_layer_equals_hugging_face(real: Real, dataset: Path, bed: install.TestBed) -> None:
    """Extracted in two runs, the first of them killed: all 64 rows are right and none is there twice."""
    manifest = json.loads((dataset / ".eagle3/manifest.json").read_text())
    assert (manifest["complete"], manifest["boundaries"], manifest["final"]) == (True, [2, 4, 5], "pre")
    assert (manifest["dtype"], manifest["hidden_size"], manifest["counts"]["stored"]) == ("float32", 64, 64)
    assert manifest["server"]["sglang_version"] == "0.5.23"
    words = [str(bed.python), str(REFERENCE), str(real.model), str(real.data), str(dataset), "2,4,5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env={**os.environ, **bed.env})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tokens = sum(len(json.loads(line)["input_ids"]) for line in real.data.read_text().splitlines())
    assert (found["samples"], found["rows"], found["wrong"]) == (64, tokens, [])
    assert max(found["worst"]) < 1e-4


def test_a_whole_dataset_verifies(real: Real, dataset: Path, python: Path) -> None:
    report = jobs.verify(python, dataset)
    assert (report.ok, report.complete, report.samples, report.problems) == (True, True, 64, ())
    files = list((dataset / "hidden_states").iterdir())
    assert len(files) == 64
    assert report.bytes == sum(path.stat().st_size for path in files)


def test_the_arrow_rows_are_those_of_the_input(real: Real, dataset: Path, python: Path) -> None:
    code = f"import sys, json; sys.path[:0] = {jobs.PATHS!r}\nfrom eagle3_remote.extract import arrow, dataset\n"
    code += "print(json.dumps(list(arrow.rows(dataset.Dataset(sys.argv[1])))))"
    done = subprocess.run(
        [str(python), "-c", code, str(dataset)], capture_output=True, text=True, check=True, timeout=60
    )
    samples = [json.loads(line) for line in real.data.read_text().splitlines()]
    assert json.loads(done.stdout) == [[s["input_ids"], s["loss_mask"], len(s["input_ids"])] for s in samples]


def flip_bit(dataset: Path) -> None:
    path = dataset / "hidden_states/hs_5.safetensors"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def truncate(dataset: Path) -> None:
    path = dataset / "hidden_states/hs_6.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def swap(dataset: Path) -> None:
    one, two = dataset / "hidden_states/hs_1.safetensors", dataset / "hidden_states/hs_2.safetensors"
    one.rename(dataset / "x")
    two.rename(one)
    (dataset / "x").rename(two)


def lose_row(dataset: Path) -> None:
    (dataset / "hidden_states/hs_63.safetensors").unlink()


def wrong_boundary(dataset: Path) -> None:
    edit_manifest(dataset, boundaries=[2, 4, 6])


def wrong_norm(dataset: Path) -> None:
    edit_manifest(dataset, final="post")


def edit_manifest(dataset: Path, **change: object) -> None:
    path = dataset / ".eagle3/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def stray(dataset: Path) -> None:
    shutil.copy(dataset / "hidden_states/hs_1.safetensors", dataset / "hidden_states/hs_64.safetensors")


def lose_arrow(dataset: Path) -> None:
    (dataset / "data-00000-of-00001.arrow").unlink()


@pytest.mark.parametrize(
    ("damage", "where", "kind"),
    [
        (flip_bit, "hs_5.safetensors", "crc32"),
        (truncate, "hs_6.safetensors", "size"),
        (swap, "hs_1.safetensors", "size"),
        (lose_row, "hs_63.safetensors", "missing"),
        (wrong_boundary, "manifest.json", "manifest"),
        (wrong_norm, "manifest.json", "manifest"),
        (stray, "hs_64.safetensors", "stray"),
        (lose_arrow, "data-00000-of-00001.arrow", "arrow"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_verify_finds(
    damage: Callable[[Path], None], where: str, kind: str, dataset: Path, python: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    damage(copy)
    report = jobs.verify(python, copy)
    assert not report.ok
    assert (where, kind) in [(problem.where, problem.kind) for problem in report.problems]


def test_stopped_and_continued(real: Real, python: Path, tmp_path: Path) -> None:
    """SIGTERM finishes what is in flight; the incomplete dataset verifies; a second extraction of it is refused meanwhile."""
    first, second, third = (jobs.prepare(tmp_path / f"extract-{i}", spec_of(real, tmp_path / "out")) for i in range(3))
    with jobs.start(python, first) as process:
        jobs.wait_until(first, lambda now: now.stored >= 5, process)
        assert jobs.run(python, second) == 5
        assert f'is being written by another extraction ({{"pid": {process.pid}' in jobs.status(second).sentence
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    now = jobs.status(first)
    assert (now.state, now.in_flight) == (ExtractState.STOPPED, 0)
    assert 5 <= now.stored < 64
    assert os.listdir(real.server.dump_dir) == []
    report = jobs.verify(python, tmp_path / "out")
    assert (report.ok, report.complete, report.samples) == (True, False, now.stored)
    assert jobs.run(python, third) == 0
    assert jobs.status(third).stored == 64
    assert jobs.verify(python, tmp_path / "out").ok


def test_bad_samples_never_reach_the_server(real: Real, python: Path, tmp_path: Path) -> None:
    """An id outside the vocabulary would kill it: 6 good samples are stored, 2 bad ones named, and the server is still up."""
    good = [[i + 3] * (20 + i) for i in range(6)]
    data = tmp_path / "data.jsonl"
    lines = [*good[:3], [1, 2, 1024], [-1], *good[3:]]
    data.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in lines))
    run_dir = jobs.prepare(tmp_path / "extract-1", spec_of(real, tmp_path / "out", data=str(data)))
    assert jobs.run(python, run_dir) == 7
    report = jobs.report(python, run_dir)
    assert (report.status.stored, report.status.rejected, report.status.failed) == (6, 2, 0)
    assert [(problem.where, problem.kind) for problem in report.problems] == [
        ("line 4", "rejected: vocab"),
        ("line 5", "rejected: vocab"),
    ]
    assert "input_ids[2] = 1024 is outside the vocabulary 0..1023" in report.problems[0].reason
    assert real.server.get("/health") == 200
    assert jobs.verify(python, tmp_path / "out").ok


def test_lengths_around_what_the_server_takes(real: Real, python: Path, tmp_path: Path) -> None:
    """The limit asked from the server is the true one: the longest that is let through is extracted, one more is refused here."""
    info = json.loads(_get(real.server.url + "/server_info"))
    limit = info["max_req_input_len"] - 1
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"input_ids": [7] * n}) + "\n" for n in (limit - 1, limit, limit + 1)))
    run_dir = jobs.prepare(tmp_path / "extract-1", spec_of(real, tmp_path / "out", data=str(data)))
    assert jobs.run(python, run_dir) == 7
    report = jobs.report(python, run_dir)
    assert (report.status.stored, report.status.rejected, report.status.failed) == (2, 1, 0)
    assert report.problems[0].reason.startswith(f"{limit + 1} tokens; this server takes at most {limit} (")


def _get(url: str) -> bytes:
    import urllib.request

    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
        return body


def test_other_boundaries_than_the_servers_are_told(real: Real, python: Path, tmp_path: Path) -> None:
    run_dir = jobs.prepare(tmp_path / "extract-1", spec_of(real, tmp_path / "out", boundaries=(1, 2, 3)))
    assert jobs.run(python, run_dir) == 7
    now = jobs.status(run_dir)
    assert (now.state, now.stored) == (ExtractState.FAILED, 0)
    assert "3 samples in a row failed in one way (layers)" in now.sentence
    assert "the dump has boundaries [2, 4, 5], asked were [1, 2, 3]" in now.sentence
    end = time.monotonic() + 10
    while os.listdir(real.server.dump_dir) and time.monotonic() < end:
        time.sleep(0.1)
    assert os.listdir(real.server.dump_dir) == []


def test_a_missing_package_is_said_at_once(tmp_path: Path) -> None:
    import sys

    run_dir = jobs.prepare(tmp_path / "extract-1", spec_of_nothing(tmp_path))
    assert jobs.run(Path(sys.executable), run_dir) == 5
    assert "lacks numpy, pyarrow: install with" in jobs.status(run_dir).sentence


def spec_of_nothing(tmp_path: Path):  # type: ignore[no-untyped-def]
    from eagle3_remote.protocol import ExtractSpec

    return ExtractSpec(data=str(tmp_path / "d"), out=str(tmp_path / "o"))
