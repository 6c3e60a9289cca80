"""compare_vocab.py TRAINER DATASET MAP DRAFT VOCAB: a vocabulary mapping against a trainer's own making and reading of one.

Runs in that trainer's environment. Prints one JSON line: {"wrong": [...], "ties": whether the choice met equal counts}.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch


def speculators(dataset: str, made: Path, draft: int, vocab: int) -> tuple[list[str], bool]:
    import numpy
    from datasets import load_from_disk
    from speculators.train.cli import _load_mappings
    from speculators.train.vocab_mapping import (
        build_vocab_mappings_from_distribution,
        save_token_frequency_distribution,
    )

    wrong = []
    with tempfile.TemporaryDirectory() as work:
        save_token_frequency_distribution(load_from_disk(dataset), Path(work, "token_freq.pt"))
        theirs = torch.load(Path(work, "token_freq.pt"), weights_only=True)
    ours = torch.load(made / "token_freq.pt", weights_only=True)
    if ours != theirs:
        wrong.append("token_freq.pt")
    d2t, t2d = build_vocab_mappings_from_distribution(theirs, draft, vocab)
    read = _load_mappings(made / f"d2t-{draft}.npy", made / f"t2d-{draft}.npy", draft)
    if not (
        torch.equal(read[0], d2t) and torch.equal(read[1], t2d) and read[0].dtype == d2t.dtype and read[2] == draft
    ):
        wrong.append("d2t or t2d")
    if numpy.load(made / f"t2d-{draft}.npy").dtype != bool:
        wrong.append("dtype of t2d")
    counts = sorted(theirs.values(), reverse=True)
    return wrong, draft < len(counts) and counts[draft - 1] == counts[draft]


def specforge(dataset: str, made: Path, draft: int, vocab: int) -> tuple[list[str], bool]:
    from specforge.core.compact_teacher import validate_vocab_mapping_consistency
    from specforge.data.preprocessing import process_token_dict_to_mappings

    read = torch.load(made / "vocab_mapping.pt")
    d2t, t2d = process_token_dict_to_mappings(Counter(torch.load(made / "token_freq.pt")), draft, vocab)
    wrong = []
    if (read["d2t"].shape, read["d2t"].dtype) != (d2t.shape, d2t.dtype):
        wrong.append("d2t")
    if (read["t2d"].shape, read["t2d"].dtype) != (t2d.shape, t2d.dtype):
        wrong.append("t2d")
    # it breaks ties otherwise: how much is covered must be the same, which tokens need not
    freq = torch.zeros(vocab, dtype=torch.long)
    for token, count in torch.load(made / "token_freq.pt").items():
        freq[token] = count
    if freq[read["t2d"]].sum() != freq[t2d].sum():
        wrong.append("covers less")
    validate_vocab_mapping_consistency(read["t2d"], read["d2t"])
    return wrong, False


def modelopt(dataset: str, made: Path, draft: int, vocab: int) -> tuple[list[str], bool]:
    from modelopt.torch.speculative.plugins.hf_eagle import HFEagleModel

    module = type("Module", (), {"d2t": torch.zeros(draft, dtype=torch.int64)})
    config = type("Config", (), {"draft_vocab_size": draft, "vocab_size": vocab})
    model = type("Model", (), {"eagle_config": config, "eagle_module": module})
    HFEagleModel.load_draft_vocab_cache(model, str(made / "d2t.pt"))
    want = torch.load(made / "vocab_mapping.pt")["d2t"]
    return ([] if torch.equal(module.d2t, want) else ["d2t.pt"]), False


if __name__ == "__main__":
    trainer, dataset, made, draft, vocab = sys.argv[1:]
    wrong, ties = globals()[trainer](dataset, Path(made), int(draft), int(vocab))
    print(json.dumps({"wrong": wrong, "ties": ties}))  # noqa: T201
