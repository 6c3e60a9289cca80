"""Model classes beside Llama and DeepSeek: every row of every boundary against Hugging Face, in float32.

Two servers are started at a time. By default each class runs on one version; with EAGLE3_ALL_SGLANG set, on both.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch import reference
from tests.patch.servers import ROOT, TESTBED, running

CLASSES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
}
CASES = [
    ("0.5.23", "qwen2"),
    ("0.5.9", "qwen3"),
    ("0.5.9", "qwen2_moe"),
    ("0.5.23", "qwen3_moe"),
    ("0.5.9", "glm4_moe"),
]
if os.environ.get("EAGLE3_ALL_SGLANG"):
    CASES = [(version, arch) for version in install.VERSIONS for arch in CLASSES]
Outcome = Callable[[str, str], tuple[dict[str, Any], dict[str, list[float]]]]


@pytest.fixture(scope="module")
def make_arch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``make_arch(arch)``: a tiny checkpoint in the form that transformers saves it."""
    root = tmp_path_factory.mktemp("archs")

    def make(arch: str) -> Path:
        bed, script = install.ensure(install.VERSIONS[0]), ROOT / "tests" / "reference" / "make_arch.py"
        command = [str(bed.python), str(script), str(TESTBED), arch, str(root / arch)]
        done = subprocess.run(command, env=os.environ | bed.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return root / arch

    return make


@pytest.fixture(scope="module")
def outcome(make_arch: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """``outcome(version, arch)``: the marker, and the errors of each request."""
    root = tmp_path_factory.mktemp("models")
    models = {arch: make_arch(arch) for arch in dict.fromkeys(arch for _, arch in CASES)}

    def run(version: str, arch: str) -> tuple[dict[str, Any], dict[str, list[float]]]:
        bed, model = install.ensure(version), models[arch]
        samples = {f"e3-{arch}-{n}-0": ids for n, ids in enumerate(reference.prompts(12, seed=3))}
        env = {layout.ENV_BOUNDARIES: reference.EVERY_BOUNDARY, layout.ENV_FINAL: "pre"}
        with running(bed, model, root / f"{arch}-{version}", *reference.FLOAT32, env=env) as server:
            reference.dump_all(server, samples)
            (marker,) = server.markers()
            assert len(server.markers(layout.MARKER_CHECKED)) == 1
        return marker, reference.errors(bed, model, server, samples, "pre")

    with ThreadPoolExecutor(2) as pool:
        jobs: dict[tuple[str, str], Future[Any]] = {case: pool.submit(run, *case) for case in CASES}
        yield lambda version, arch: jobs[version, arch].result()


@pytest.mark.parametrize(("version", "arch"), CASES)
def test_every_row_of_every_boundary_equals_hugging_face(version: str, arch: str, outcome: Outcome) -> None:
    marker, errors = outcome(version, arch)
    assert (marker["model_class"], marker["sglang"]) == (CLASSES[arch], version)
    assert all(len(values) == reference.LAYERS + 2 for values in errors.values())
    assert reference.worst(errors) < reference.TOLERANCE, errors
