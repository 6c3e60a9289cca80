"""Two tensor-parallel ranks: the rows are whole on the writing one, fused all-reduce or not.

On a GPU SGLang up to 0.5.13 leaves a layer's all-reduce to the next layer's fused kernel, and what it then captures is one
rank's partial sum. That path is forced on here, with an equal all-reduce, addition and norm in the kernel's place. Batches
of more than 2048 tokens are not fused, so a large batch is right where a small one is not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch import reference
from tests.patch.conftest import MakeModel
from tests.patch.servers import launch, recorder, running

BOUNDARIES = "1,3,5,8"
ARGS = ("--tp-size", "2", "--dtype", "float32", "--disable-radix-cache")
BIND = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", layout.ENV_BOUNDARIES: BOUNDARIES}


def fused_calls(records: Path) -> list[int]:
    """How often each rank called the stand-in for the fused kernel."""
    return [int(path.read_text()) for path in records.glob("fused.*")]


@pytest.mark.parametrize(("version", "fused"), [("0.5.9", True), ("0.5.23", False)])
def test_rows_are_whole_with_two_ranks(
    version: str, fused: bool, make_model: MakeModel, hugging_face: reference.HuggingFace, tmp_path: Path
) -> None:
    lengths = (3, 40, 300, 90, 64, 256, 2100)
    samples = {f"e3-tp-{n}-0": ids for n, ids in enumerate(reference.prompts(len(lengths), 2, lengths))}
    model, bed, records = make_model("deepseek", "float32"), install.ensure(version), tmp_path / "records"
    before, env = recorder(records, **({"RECORDER_FUSE": "1"} if fused else {}))
    args = (*ARGS, "--chunked-prefill-size", "4096")
    with running(bed, model, tmp_path, *args, before=before, env=env | BIND) as server:
        reference.dump_all(server, samples)
        markers = sorted(server.markers(), key=lambda marker: marker["tp_rank"])
        checks = server.markers(layout.MARKER_CHECKED)
    assert [(m["tp_rank"], m["tp_size"], m["writes"]) for m in markers] == [(0, 2, True), (1, 2, False)]
    calls = fused_calls(records)
    assert (len(calls) == 2 and min(calls) > 0) == fused, calls
    assert [(check["ranks"], check["rank_difference"]) for check in checks] == [(2, 0.0), (2, 0.0)]
    small, large = (check["rows"] for check in checks)
    assert small <= 2048 < large
    found = hugging_face.errors(model, server, samples, "pre")
    assert all(len(values) == 5 for values in found.values())
    assert reference.worst(found) < reference.TOLERANCE, found


def test_partial_sums_are_refused_at_the_first_forward(make_model: MakeModel, tmp_path: Path) -> None:
    """The same server, with the patch kept from taking the captured layers out of the fusion."""
    records = tmp_path / "records"
    before, env = recorder(records, RECORDER_FUSE="1", RECORDER_KEEP_FUSED="1")
    model = make_model("deepseek", "float32")
    server = launch(install.ensure("0.5.9"), model, tmp_path, ARGS, env=env | BIND, before=before)
    reason = server.refused()
    assert len(fused_calls(records)) == 2
    assert "boundary 1 differ between the tensor-parallel ranks 0 and 1" in reason
    assert "fused all-reduce" in reason
    assert len(server.markers(layout.MARKER_REFUSED)) == 2
    assert server.markers(layout.MARKER_CHECKED) == []
    assert not list(server.dump_dir.glob("req_*"))
