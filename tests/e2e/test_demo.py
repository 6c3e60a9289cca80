"""The demo, from one command to a dataset that equals a Hugging Face forward of the same model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from tests.conftest import ROOT

SAMPLES = 64
BOUNDARIES = "2,4,5"
"""What 8 layers give by default: 2, N//2, N-3."""


def run_demo(scratch: Path, *words: str) -> subprocess.CompletedProcess[str]:
    scratch.mkdir()
    argv = ["make", "--no-print-directory", "demo", f"ARGS=--headless --samples {SAMPLES} --json {' '.join(words)}"]
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL")}
    env["TMPDIR"] = str(scratch)
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=800, check=False)


@pytest.fixture(
    scope="module",
    params=[(version, arch) for version in install.VERSIONS for arch in ("llama", "deepseek")],
    ids=lambda param: f"{param[1]}-{param[0]}",
)
def demo(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, dict[str, object]]:
    """A finished demo in float32: its kept directory, its SGLang version, its report."""
    version, arch = request.param
    keep = tmp_path_factory.mktemp("demo") / "kept"
    done = run_demo(
        keep.with_name("scratch"), "--dtype", "float32", "--arch", arch, "--sglang", version, "--keep", str(keep)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return keep, version, json.loads(done.stdout)


def test_report_tells_what_was_made(demo: tuple[Path, str, dict[str, object]]) -> None:
    keep, version, report = demo
    assert report == json.loads((keep / "report.json").read_text())
    assert report["ok"] is True
    extract, probe, verify = report["extract"], report["probe"], report["verify"]
    assert isinstance(extract, dict)
    assert isinstance(probe, dict)
    assert isinstance(verify, dict)
    assert (extract["stored"], extract["rejected"], extract["failed"]) == (SAMPLES, 0, 0)
    assert (probe["sent"], probe["dumped"], probe["cached"]) == (19, 19, 0)
    assert (verify["ok"], verify["samples"]) == (True, SAMPLES)
    manifest = json.loads((keep / "dataset" / ".eagle3" / "manifest.json").read_text())
    assert manifest["boundaries"] == [2, 4, 5]
    assert manifest["final"] == "pre"
    assert manifest["server"]["sglang_version"] == version


def test_every_row_equals_hugging_face(demo: tuple[Path, str, dict[str, object]]) -> None:
    keep, version, _ = demo
    script = ROOT / "tests" / "reference" / "compare_dataset.py"
    bed = install.ensure(version)
    env = {**os.environ, "PYTHONPATH": str(bed.stubs)}
    argv = [bed.python, script, keep / "model", keep / "tokenized_data.jsonl", keep / "dataset", BOUNDARIES]
    compared = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert compared.returncode == 0, compared.stderr[-3000:]
    verdict = json.loads(compared.stdout.splitlines()[-1])
    assert verdict["wrong"] == []
    assert verdict["samples"] == SAMPLES
    assert verdict["rows"] == sum(
        len(json.loads(line)["input_ids"]) for line in (keep / "tokenized_data.jsonl").read_text().splitlines()
    )
    assert max(verdict["worst"]) < 1e-4
    assert verdict["ties"] <= verdict["rows"] // 20


def test_nothing_is_left_running(demo: tuple[Path, str, dict[str, object]]) -> None:
    keep, _, _ = demo
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not [command for command in commands if str(keep.parent).encode() in command]
    assert not list(keep.with_name("scratch").glob("eagle3-demo-*"))


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
