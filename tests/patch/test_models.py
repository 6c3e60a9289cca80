"""Model classes beside Llama and DeepSeek: every row of every boundary against Hugging Face, in float32.

Two servers are started at a time. By default each class runs on one version; with EAGLE3_ALL_SGLANG set, on both.
"""

from __future__ import annotations

import json
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
from tests.patch.servers import ROOT, START_LIMIT, TESTBED, launch, recorder, running, stop, wait_for

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
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny checkpoints in the form that transformers saves them, by arch."""
    root = tmp_path_factory.mktemp("archs")
    bed, script = install.ensure(install.VERSIONS[0]), ROOT / "tests" / "reference" / "make_arch.py"
    archs = [*CLASSES, "gpt_oss"]
    command = [str(bed.python), str(script), str(TESTBED), str(root), *archs]
    done = subprocess.run(command, env=os.environ | bed.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return {arch: root / arch for arch in archs}


@pytest.fixture(scope="module")
def outcome(
    models: dict[str, Path], hugging_face: reference.HuggingFace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcome]:
    """``outcome(version, arch)``: the marker, and the errors of each request."""
    root = tmp_path_factory.mktemp("models")

    def run(version: str, arch: str) -> tuple[dict[str, Any], dict[str, list[float]]]:
        bed, model = install.ensure(version), models[arch]
        samples = {f"e3-{arch}-{n}-0": ids for n, ids in enumerate(reference.prompts(12, seed=3))}
        env = {layout.ENV_BOUNDARIES: reference.EVERY_BOUNDARY, layout.ENV_FINAL: "pre"}
        with running(bed, model, root / f"{arch}-{version}", *reference.FLOAT32, env=env) as server:
            reference.dump_all(server, samples)
            (marker,) = server.markers()
            assert len(server.markers(layout.MARKER_CHECKED)) == 1
        return marker, hugging_face.errors(model, server, samples, "pre")

    with ThreadPoolExecutor(2) as pool:
        jobs: dict[tuple[str, str], Future[Any]] = {case: pool.submit(run, *case) for case in CASES}
        yield lambda version, arch: jobs[version, arch].result()


@pytest.mark.parametrize(("version", "arch"), CASES)
def test_every_row_of_every_boundary_equals_hugging_face(version: str, arch: str, outcome: Outcome) -> None:
    marker, errors = outcome(version, arch)
    assert (marker["model_class"], marker["sglang"]) == (CLASSES[arch], version)
    assert all(len(values) == reference.LAYERS + 2 for values in errors.values())
    assert reference.worst(errors) < reference.TOLERANCE, errors


@pytest.mark.parametrize(("version", "not_fused"), [("0.5.9", [1, 3, 4]), ("0.5.23", [])])
def test_gpt_oss_is_configured(version: str, not_fused: list[int], models: dict[str, Path], tmp_path: Path) -> None:
    """SGLang cannot run gpt_oss on a CPU: its attention sinks and clamped experts exist as GPU kernels alone (ServerArgs
    refuses torch_native for it). It gets as far as the loaded model, and that is what is looked at."""
    before, env = recorder(tmp_path / "records", RECORDER_MODEL="GptOssModel")
    args = ("--dtype", "bfloat16", "--attention-backend", "triton", "--load-format", "dummy")
    server = launch(install.ensure(version), models["gpt_oss"], tmp_path, args, env=env, before=before)
    try:
        wait_for(lambda: server.markers() or server.process.poll() is not None, "the patch's line", START_LIMIT)
        assert [marker["model_class"] for marker in server.markers()] == ["GptOssForCausalLM"], server.log.read_text()[
            -3000:
        ]
    finally:
        stop(server)
    (path,) = (tmp_path / "records").glob("model.*.json")
    found = json.loads(path.read_text())
    assert found["layers_to_capture"] == [2, 4, 5]
    assert found["not_fused"] == not_fused
    assert found["communicators"] == (reference.LAYERS if not_fused else 0)
