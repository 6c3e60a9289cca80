"""The dataset through speculators' own loader, from the package index, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.extract import speculators_env
from tests.extract.conftest import Real

LOAD = """
import json, sys
from speculators.train.data import ArrowDataset
dataset = ArrowDataset(8192, sys.argv[1], on_missing="raise")
for at in range(len(dataset)):
    item = dataset[at]
    shapes = {key: [list(value.shape), str(value.dtype)] for key, value in item.items() if hasattr(value, "shape")}
    print(json.dumps({"shapes": shapes, "ids": item["input_ids"].tolist(), "mask": item["loss_mask"].tolist()}))
"""


@pytest.mark.timeout(900)  # the first run installs the environment
def test_speculators_loads_every_row(real: Real, dataset: Path) -> None:
    python = speculators_env.python()
    done = subprocess.run([python, "-c", LOAD, dataset], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    items = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    samples = [json.loads(line) for line in real.data.read_text().splitlines()]
    assert [(item["ids"], item["mask"]) for item in items] == [(s["input_ids"], s["loss_mask"]) for s in samples]
    for item, sample in zip(items, samples, strict=True):
        tokens = len(sample["input_ids"])
        shapes = {key: shape for key, (shape, _) in item["shapes"].items()}
        assert shapes["hidden_states"] == [tokens, 3 * 64], shapes
        assert shapes["verifier_last_hidden_states"] == [tokens, 64], shapes
