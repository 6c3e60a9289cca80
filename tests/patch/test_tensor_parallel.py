"""Two tensor-parallel ranks: the rows are whole on the writing one, fused all-reduce or not.

On a GPU SGLang up to 0.5.13 leaves a layer's all-reduce to the next layer's fused kernel, and what it then captures is one
rank's partial sum. That path is forced on here, with an equal all-reduce, addition and norm in the kernel's place.
"""

from __future__ import annotations

import json
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch.conftest import MakeModel
from tests.patch.servers import ROOT, recorder, running

BOUNDARIES = "1,3,5,8"


@pytest.mark.parametrize(("version", "fused"), [("0.5.9", True), ("0.5.23", False)])
def test_rows_are_whole_with_two_ranks(version: str, fused: bool, make_model: MakeModel, tmp_path: Path) -> None:
    draw = random.Random(2)
    samples = {
        f"e3-tp-{n}-0": [draw.randrange(3, 1024) for _ in range(k)] for n, k in enumerate((3, 40, 300, 90, 64, 256))
    }
    model, bed = make_model("deepseek", "float32"), install.ensure(version)
    before, env = recorder(tmp_path / "records", **({"RECORDER_FUSE": "1"} if fused else {}))
    env |= {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", layout.ENV_BOUNDARIES: BOUNDARIES}
    args = ("--tp-size", "2", "--dtype", "float32", "--disable-radix-cache")
    with running(bed, model, tmp_path, *args, before=before, env=env) as server:
        with ThreadPoolExecutor(len(samples)) as pool:
            list(pool.map(lambda item: server.generate(*item), samples.items()))
        for rid in samples:
            assert (server.folder(rid) / layout.DONE_FILE).exists()
        markers = sorted(server.markers(), key=lambda marker: marker["tp_rank"])
    assert [(m["tp_rank"], m["tp_size"], m["writes"]) for m in markers] == [(0, 2, True), (1, 2, False)]
    calls = [int(path.read_text()) for path in (tmp_path / "records").glob("fused.*")]
    assert (len(calls) == 2 and min(calls) > 0) == fused, calls
    listed, out = tmp_path / "samples.json", tmp_path / "errors.json"
    listed.write_text(json.dumps(samples))
    script = ROOT / "tests" / "reference" / "hf_forward.py"
    command = [str(bed.python), str(script), str(model), str(listed), str(server.dump_dir), "pre", str(out)]
    done = subprocess.run(command, env=bed.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    worst = json.loads(out.read_text())
    assert all(len(errors) == 5 for errors in worst.values())
    assert max(max(errors) for errors in worst.values()) < 1e-4, worst
