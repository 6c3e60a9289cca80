"""The extraction against real SGLang: every row right, killed and stopped anywhere, and everything wrong found again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
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


def normalised(dataset: Path) -> None:
    """The final states become those after the norm, checksums and all; everything still declares them pre-norm."""
    python = json.loads((dataset / "python.json").read_text())
    done = subprocess.run([python, "-c", NORMALISE, str(dataset)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (dataset / "python.json").unlink()


NORMALISE = f"""
import json, os, sqlite3, sys, zlib
sys.path[:0] = {jobs.PATHS!r}
import numpy
from eagle3_remote.extract import live, weights
root = sys.argv[1]
manifest = json.load(open(root + "/.eagle3/manifest.json"))
ends = weights.read_ends(manifest["model"]["path"])
journal = sqlite3.connect(root + "/.eagle3/journal.sqlite3")
for name in os.listdir(root + "/hidden_states"):
    path = root + "/hidden_states/" + name
    header, words = live.stored_rows(path)
    final = words[:, -1].view("<f4").copy()
    final = final / numpy.sqrt((final**2).mean(-1, keepdims=True) + ends.epsilon) * ends.norm
    raw = bytearray(open(path, "rb").read())
    whole = numpy.frombuffer(raw, "<f4", offset=header.hidden[0], count=words.size).reshape(header.shape)
    whole[:, -1] = final
    open(path, "wb").write(raw)
    journal.execute("UPDATE samples SET crc32 = ? WHERE row = ?", (zlib.crc32(raw), int(name[3:-12])))
journal.commit()
"""


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
        (normalised, "manifest.json", "norm"),
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
    if damage is normalised:
        (copy / "python.json").write_text(json.dumps(str(python)))
    damage(copy)
    report = jobs.verify(python, copy)
    assert not report.ok
    assert (where, kind) in [(problem.where, problem.kind) for problem in report.problems]


def test_verify_asks_a_live_server(real: Real, dataset: Path, python: Path, tmp_path: Path) -> None:
    """The rows again, and the probes; a boundary that is wrong in manifest and journal alike is found as well."""
    report = jobs.verify(python, dataset, real.server.url, real.server.dump_dir)
    assert report.ok, report
    assert [(probe.name, probe.result) for probe in report.probes] == [
        ("next token", "passed"),
        ("same prompt twice", "passed"),
        ("alone and in a batch", "passed"),
        ("small and large batch", "passed"),
        ("lengths around the chunk", "passed"),
    ]
    assert report.probes[0].sentence.startswith("8 of 8 prompts")
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    wrong_boundary(copy)
    with contextlib.closing(sqlite3.connect(copy / ".eagle3/journal.sqlite3")) as journal, journal:
        (kept,) = journal.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        changed = json.dumps({**json.loads(kept), "boundaries": [2, 4, 6]})
        journal.execute("UPDATE meta SET value = ? WHERE key = 'identity'", (changed,))
    assert jobs.verify(python, copy).ok, "nothing but a server can know"
    report = jobs.verify(python, copy, real.server.url, real.server.dump_dir)
    assert not report.ok
    assert report.problems[0].kind == "server: layers"
    assert os.listdir(real.server.dump_dir) == []


def test_by_hand(real: Real, dataset: Path, python: Path, tmp_path: Path) -> None:
    """No console, no run directory: the options of the hand-made script, and the same dataset."""
    words = ["--server-url", real.server.url, "--prepared-data", str(real.data), "--output-dir", str(tmp_path / "out")]
    words += ["--hs-dump-dir", str(real.server.dump_dir), "--max-seq-len", "1024"]
    argv = [str(python), "-m", "eagle3_remote.extract", *words]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(jobs.PATHS)}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Boundaries 2, 4, 5, final pre-norm" in done.stdout, "as the server dumps"
    assert "64/64 samples" in done.stdout
    for row in range(64):
        name = f"hidden_states/hs_{row}.safetensors"
        assert (tmp_path / "out" / name).stat().st_size == (dataset / name).stat().st_size
    assert jobs.verify(python, tmp_path / "out").ok
    again = subprocess.run([*argv, "--hs-dump-dir", "/x"], capture_output=True, text=True, env=env, timeout=120)
    assert again.returncode == 5
    assert "1 servers and 2 dump directories are named" in again.stdout


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
    """By the probes, and without them by the samples."""
    first, second = (
        jobs.prepare(tmp_path / name, spec_of(real, tmp_path / "out", boundaries=(1, 2, 3), probe=name == "probed"))
        for name in ("probed", "sent")
    )
    assert jobs.run(python, first) == 6
    now = jobs.status(first)
    assert (now.state, now.total, now.stored) == (ExtractState.FAILED, 64, 0)
    assert "failed the probe" in now.sentence
    assert "the dump has boundaries [2, 4, 5], asked were [1, 2, 3]" in now.sentence
    assert jobs.run(python, second) == 7
    now = jobs.status(second)
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
