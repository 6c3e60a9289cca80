"""compare_dataset.py MODEL DATA_JSONL DATASET BOUNDARIES: every row of every layer against a Hugging Face forward in float32.

Runs in an environment with torch and transformers and knows nothing of the code under test: it reads the jsonl that was
asked for and the files that lie in the dataset. Prints one JSON line; the caller judges.

Boundary b is ``hidden_states[b]`` of transformers for b < N; the last layer of the file is the input of the final norm.
Where a router is on a tie, rounding alone may send a token to another expert: such a row is compared again with the
reference under noise of 1e-6 in the embeddings, and counts as equal where that reference moves to it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4
NOISE = 1e-6
TRIES = 8


def reference(model: torch.nn.Module, ids: torch.Tensor, boundaries: list[int], noisy: int = 0) -> torch.Tensor:
    """float32 ``[1 or noisy, tokens, len(boundaries) + 1, hidden]``: the boundaries, then the state before the final norm."""
    embeds = model.get_input_embeddings()(ids[None])
    if noisy:
        noise = torch.randn((noisy, *embeds.shape[1:]), generator=torch.Generator().manual_seed(0))
        embeds = embeds * (1 + NOISE * noise)
    seen: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    try:
        out = model.model(inputs_embeds=embeds, output_hidden_states=True, use_cache=False)
    finally:
        hook.remove()
    (last,) = seen
    return torch.stack([*(out.hidden_states[b] for b in boundaries), last], dim=2)


def row_errors(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Relative L2 ``[..., tokens, layers]``."""
    return (got - want).norm(dim=-1) / want.norm(dim=-1)


def main(model_dir: str, data: str, dataset: str, boundary_list: str) -> None:
    boundaries = [int(part) for part in boundary_list.split(",")]
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()
    samples = [json.loads(line)["input_ids"] for line in Path(data).read_text().splitlines()]
    files = sorted(Path(dataset, "hidden_states").glob("hs_*.safetensors"), key=lambda path: int(path.stem[3:]))
    worst, ties, wrong, rows = [0.0] * (len(boundaries) + 1), 0, [], 0
    for path in files:
        index = int(path.stem[3:])
        stored = load_file(path)
        ids = torch.tensor(samples[index])
        if not torch.equal(stored["token_ids"], ids):
            wrong.append(f"{path.name}: token_ids differ from line {index + 1}")
            continue
        got = stored["hidden_states"].float()
        with torch.no_grad():
            want = reference(model, ids, boundaries)[0]
            if got.shape != want.shape:
                wrong.append(f"{path.name}: shape {tuple(got.shape)}, reference {tuple(want.shape)}")
                continue
            errors = row_errors(got, want)
            bad = errors.amax(dim=1) >= TOLERANCE
            if bad.any():
                errors = torch.minimum(errors, row_errors(got, reference(model, ids, boundaries, TRIES)).amin(dim=0))
                ties += int(bad.sum())
        rows += len(ids)
        worst = [max(a, float(b)) for a, b in zip(worst, errors.amax(dim=0), strict=True)]
        if bool((errors.amax(dim=1) >= TOLERANCE).any()):
            wrong.append(f"{path.name}: rows {torch.nonzero(errors.amax(dim=1) >= TOLERANCE).flatten().tolist()[:5]}")
    print(json.dumps({"samples": len(files), "rows": rows, "worst": worst, "ties": ties, "wrong": wrong}))  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)  # two threads wait for each other where a server keeps a core busy
    main(*sys.argv[1:])
