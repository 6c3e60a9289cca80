"""load_export.py DATA_JSONL DATASET MODEL LOADER=EXPORT ...: exports through a trainer's own loaders, value by value.

Runs in that trainer's environment and knows nothing of the code under test: what must come out is taken from the jsonl that was
asked for, from the states that lie in the dataset, and from transformers' own final norm of the model. Prints one JSON line each:
{"samples", "tokens", "wrong": [...], "normed": samples whose final state is after the norm, "dtypes": [...]}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

MAX_LEN = 8192
LOOSE = 1e-6
"""Relative: float32, another order of the same sums."""
STEP = 2.0**-3
"""Largest relative step between two neighbours in float8_e4m3fn, from its three bits of mantissa."""


class Judge:
    """Compares what a loader gave with what must come out."""

    def __init__(self, data: str, dataset: str, model: str) -> None:
        self.samples = [json.loads(line) for line in Path(data).read_text().splitlines()]
        self._dataset, self._model = Path(dataset), model
        self._norm: Any = None
        self.tokens = self.count = 0
        self.wrong: list[str] = []
        self.normed = 0
        self.dtypes: set[str] = set()
        self.rows: set[int] = set()

    def states(self, row: int) -> torch.Tensor:
        return load_file(self._dataset / f"hidden_states/hs_{row}.safetensors")["hidden_states"]

    def norm(self, states: torch.Tensor) -> torch.Tensor:
        if self._norm is None:
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(self._model, dtype=torch.float32)
            self._norm = model.model.norm
        with torch.no_grad():
            return self._norm(states.float())

    def take(
        self, row: int, ids: torch.Tensor, mask: torch.Tensor, aux: torch.Tensor, last: torch.Tensor, *, post: bool,
        same: Callable[[torch.Tensor, torch.Tensor], bool] = torch.equal,
    ) -> None:  # fmt: skip
        """One sample: ids and mask ``[tokens]``, aux ``[tokens, 3 * hidden]``, last ``[tokens, hidden]``."""
        sample, states = self.samples[row], self.states(row)
        want = sample["input_ids"]
        self.count, self.tokens = self.count + 1, self.tokens + len(want)
        self.dtypes |= {str(aux.dtype), str(last.dtype)}
        self.rows.add(row)
        if ids.tolist() != want or mask.long().tolist() != sample["loss_mask"]:
            self.wrong.append(f"row {row}: ids or mask")
        if not same(aux, states[:, :-1].flatten(1).to(aux.dtype)):
            self.wrong.append(f"row {row}: aux states")
        if not post:
            if not same(last, states[:, -1].to(last.dtype)):
                self.wrong.append(f"row {row}: final state")
            return
        wanted = self.norm(states[:, -1])
        error = float(((last.float() - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max())
        self.normed += 1
        if error > LOOSE:
            self.wrong.append(f"row {row}: normed final state, relative error {error:.1e}")


def row_of(path: str | Path) -> int:
    return int(Path(path).name.split(".")[0].split("_")[-1])


def v1_old(judge: Judge, export: str) -> None:
    """speculators 0.3: the loader shifts by one, so that the first id and mask and the last aux row do not come out."""
    from speculators.train.data import Eagle3SampleFileDataset

    dataset = Eagle3SampleFileDataset(MAX_LEN, datapath=export)
    for at, path in enumerate(dataset.data):
        row, item = row_of(path), dataset[at]
        sample, states = judge.samples[row], judge.states(row)
        first = {"ids": torch.tensor(sample["input_ids"][:1]), "mask": torch.tensor(sample["loss_mask"][:1])}
        aux = torch.cat([item["hidden_states"], states[-1:, :-1].flatten(1).float()])
        last = torch.cat([states[:1, -1].float(), item["verifier_last_hidden_states"]])
        ids = torch.cat([first["ids"], item["input_ids"]])
        judge.take(row, ids, torch.cat([first["mask"], item["loss_mask"]]), aux, last, post=False)


def v1_new(judge: Judge, export: str) -> None:
    """speculators 0.5 to 0.7."""
    from speculators.train.data import SampleFileDataset

    dataset = SampleFileDataset(MAX_LEN, datapath=export, hidden_states_dtype=torch.float32)
    lengths = [len(judge.samples[row_of(path)]["input_ids"]) for path in dataset.data]
    if list(dataset.approx_lengths) != lengths:
        judge.wrong.append("the lengths in sample_lengths.json")
    for at, path in enumerate(dataset.data):
        speculators_item(judge, row_of(path), dataset[at])


def speculators_item(judge: Judge, row: int, item: Any, **more: Any) -> None:
    last = item["verifier_last_hidden_states"]
    judge.take(row, item["input_ids"], item["loss_mask"], item["hidden_states"], last, post=False, **more)


def current(judge: Judge, export: str, **more: Any) -> Any:
    """speculators 0.5 and newer: 0.5.0 wants a split below 1, and its halves are the whole."""
    from speculators.train.data import ArrowDataset

    try:
        parts = [
            ArrowDataset(MAX_LEN, export, on_missing="raise", train_ratio=0.5, split=part) for part in ("train", "val")
        ]
    except TypeError:
        parts = [ArrowDataset(MAX_LEN, export, on_missing="raise", split_ratio=ratio) for ratio in (0.5, -0.5)]
    row = 0
    for part in parts:
        for at in range(len(part)):
            speculators_item(judge, row, part[at], **more)
            row += 1


def fp8(judge: Judge, export: str) -> None:
    """speculators 0.9 with the fp8 backend that ``--hidden-states-backend fp8`` chooses."""
    from hs_connectors import HiddenStatesBackend
    from hs_connectors.fp8_utils import dequantize_fp8_tensor, quantize_tensor_to_fp8
    from speculators.data_generation.offline import check_hidden_states
    from speculators.train.data import ArrowDataset

    args = type("Args", (), {"hidden_states_path": None})
    transfer = HiddenStatesBackend.registry["fp8"].from_train_args(args, export)
    dataset = ArrowDataset(MAX_LEN, export, transfer=transfer, on_missing="raise")
    for row in range(len(dataset)):
        item, states = dataset[row], judge.states(row)
        check_hidden_states(transfer.get_cached(row), judge.samples[row]["input_ids"])
        theirs = dequantize_fp8_tensor(*quantize_tensor_to_fp8(states))
        got = torch.cat([item["hidden_states"], item["verifier_last_hidden_states"]], 1)
        if not torch.equal(got, theirs.flatten(1)):
            judge.wrong.append(f"row {row}: not what their own connector stores")
        largest = states.abs().amax(dim=(1, 2))[:, None]
        speculators_item(judge, row, item, same=lambda a, b, top=largest: bool(((a - b).abs() <= STEP * top).all()))


def specforge(judge: Judge, export: str) -> None:
    from specforge.algorithms.eagle3.data import build_offline_collator, build_offline_normalizer
    from specforge.data.preprocessing import build_offline_eagle3_dataset
    from specforge.runtime.data_plane.feature_store import load_feature_file
    from specforge.runtime.data_plane.offline_reader import OfflineManifestReader
    from specforge.training.vocab_mapping import count_effective_feature_tokens

    refs = OfflineManifestReader(export, validate_files=True).read()
    normalize, items = build_offline_normalizer(MAX_LEN), []
    legacy = build_offline_eagle3_dataset(export, max_len=MAX_LEN)
    for at, ref in enumerate(refs):
        path = ref.feature_store_uri.removeprefix("file://")
        raw = load_feature_file(path)
        row, item = row_of(path), normalize(raw)
        items.append(item)
        judge.take(row, item["input_ids"][0], raw["loss_mask"], item["hidden_state"][0], item["target"][0], post=True)
        if ref.num_tokens != len(judge.samples[row]["input_ids"]):
            judge.wrong.append(f"row {row}: {ref.num_tokens} tokens in its reference")
        if any(not torch.equal(legacy[at][key], item[key]) for key in item):
            judge.wrong.append(f"row {row}: the older loader gives something else")
    batch = build_offline_collator()(items[:4])
    longest = max(item["input_ids"].shape[1] for item in items[:4])
    if batch["hidden_state"].shape[:2] != (4, longest):
        judge.wrong.append(f"a batch of four is {list(batch['hidden_state'].shape)}")
    counted = count_effective_feature_tokens(export)
    if sum(counted.values()) != sum(sum(sample["loss_mask"]) for sample in judge.samples):
        judge.wrong.append("the tokens that it counts")


def modelopt(judge: Judge, export: str) -> None:
    from modelopt.torch.speculative.eagle.utils import EagleOfflineDataCollator, OfflineSupervisedDataset

    files = [str(path) for path in Path(export).glob("*.pt")]
    dataset = OfflineSupervisedDataset(files, answer_only_loss=True)
    pre = set()
    for at, path in enumerate(files):
        row, item = row_of(path), dataset[at]
        pre.add(item["base_hidden_prenorm"])
        last = item["base_model_hidden_states"]
        post = not item["base_hidden_prenorm"]
        judge.take(row, item["input_ids"], item["loss_mask"], item["aux_hidden_states"], last, post=post)
        name = torch.load(path, weights_only=True)["conversation_id"]
        if name != judge.samples[row]["id"]:
            judge.wrong.append(f"row {row} is called {name}")
    batch = EagleOfflineDataCollator(100)([dataset[0], dataset[1]])
    if batch["base_model_outputs"]["base_hidden_prenorm"] not in pre or len(pre) != 1:
        judge.wrong.append(f"pre-norm flags {pre}")


def plain(judge: Judge, export: str) -> None:
    """Scripts that read ``aux_<n>.pt`` and ``final.pt``: torch.load and nothing else."""
    for folder in Path(export).glob("sample_*"):
        read = {path.stem: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}
        meta = json.loads((folder / "meta.json").read_text())
        aux = torch.cat([read[f"aux_{layer}"] for layer in range(len(meta["boundaries"]))], 1)
        judge.take(
            row_of(folder), read["input_ids"], read["loss_mask"], aux, read["final"], post=meta["final"] == "post"
        )
        if not (folder / "done").exists():
            judge.wrong.append(f"{folder.name} has no done")


LOADERS = {
    "v1-old": v1_old,
    "v1-new": v1_new,
    "current": current,
    "fp8": fp8,
    "specforge": specforge,
    "modelopt": modelopt,
    "pt": plain,
}


def main(data: str, dataset: str, model: str, *asked: str) -> None:
    for one in asked:
        loader, _, export = one.partition("=")
        judge = Judge(data, dataset, model)
        LOADERS[loader](judge, export)
        if judge.rows != set(range(len(judge.samples))) or judge.count != len(judge.samples):
            judge.wrong.append(f"{judge.count} samples, rows {sorted(judge.rows)}")
        found = {"samples": judge.count, "tokens": judge.tokens, "wrong": judge.wrong[:10], "normed": judge.normed}
        print(json.dumps({**found, "dtypes": sorted(judge.dtypes)}))  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
