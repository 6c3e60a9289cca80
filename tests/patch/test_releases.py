"""Every SGLang release from the oldest to the newest: every row of every boundary against Hugging Face, in float32.

Collected only where EAGLE3_ALL_SGLANG is set (`make test-all-sglang`); prints one line a server.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle3_patch import layout
from tests.patch import reference, releases
from tests.patch.conftest import MakeModel
from tests.patch.servers import running

CLASSES = {"llama": "LlamaForCausalLM", "deepseek": "DeepseekV3ForCausalLM"}


@pytest.mark.parametrize("arch", CLASSES)
@pytest.mark.parametrize("release", releases.RELEASES)
def test_every_row_of_every_boundary_equals_hugging_face(
    release: str,
    arch: str,
    make_model: MakeModel,
    hugging_face: reference.HuggingFace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bed, model = releases.ensure(release), make_model(arch, "float32")
    samples = {f"e3-release-{n}-0": ids for n, ids in enumerate(reference.prompts(24, seed=4))}
    env = {layout.ENV_BOUNDARIES: reference.EVERY_BOUNDARY, layout.ENV_FINAL: "post"}
    with running(bed, model, tmp_path, *reference.FLOAT32, env=env) as server:
        reference.dump_all(server, samples)
        (marker,), (checked,) = server.markers(), server.markers(layout.MARKER_CHECKED)
        metas = [json.loads((server.folder(rid) / layout.META_FILE).read_text()) for rid in samples]
    found = hugging_face.errors(model, server, samples, "post")
    assert (marker["sglang"], marker["model_class"]) == (release, CLASSES[arch])
    assert {meta["sglang_version"] for meta in metas} == {release}
    assert checked["rows"] > 0
    assert all(len(values) == reference.LAYERS + 2 for values in found.values())
    cut = sum(len(meta["chunks"]) > 1 for meta in metas)
    rows = sum(map(len, samples.values()))
    with capsys.disabled():
        print(  # noqa: T201
            f"\nSGLang {release} {marker['model_class']}: {len(samples)} requests ({cut} in chunks), {rows} rows x "
            f"{reference.LAYERS + 2} states, worst relative error {reference.worst(found):.1e}"
        )
    assert reference.worst(found) < reference.TOLERANCE
