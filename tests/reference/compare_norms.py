"""compare_norms.py REMOTE PATCH WORK: the final norms we know against transformers' own classes.

Runs in an SGLang environment. For every model_type that we know and transformers has: a tiny random model of it is saved as
transformers saves it, our reader finds the norm in that checkpoint, and both are applied to the same random states in float32.
Prints one JSON line: {"errors": {model_type: relative L2 error}, "unknown": [what transformers has not]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModel, AutoModelForCausalLM
from transformers.utils import logging

TINY = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "pad_token_id": 0,
    "max_position_embeddings": 128,
}


def saved(model_type: str, folder: Path) -> torch.nn.Module:
    """A tiny random model of one type in `folder`; its final norm, whose weight is far from what it starts as."""
    whole = CONFIG_MAPPING[model_type]()
    config = getattr(whole, "text_config", whole)
    for name in ("layer_types", "mlp_layer_types"):
        if getattr(config, name, None):
            setattr(config, name, getattr(config, name)[-TINY["num_hidden_layers"] :])
    for name, value in TINY.items():
        if hasattr(config, name):
            setattr(config, name, value)
    if config is whole and type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        model = AutoModelForCausalLM.from_config(config).float()
        norm = model.model.norm
        torch.nn.init.normal_(norm.weight, mean=0.7, std=0.5)
        model.save_pretrained(folder)
        return norm
    # the text part of a model that also sees: transformers saves it only as a part of the whole
    norm = AutoModel.from_config(config).float().norm
    told = config.to_dict()
    if config is not whole:  # as in a checkpoint whose text part does not name itself
        del told["model_type"]
    torch.nn.init.normal_(norm.weight, mean=0.7, std=0.5)
    folder.mkdir(parents=True)
    save_file({"model.language_model.norm.weight": norm.weight.detach()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "text_config": told}))
    return norm


def main(remote: str, patch: str, work: str) -> None:
    sys.path[:0] = [remote, patch]
    from eagle3_remote.export.norm import OFFSETS, read_norm

    torch.manual_seed(0)
    states = torch.randn(50, TINY["hidden_size"]) * 3
    errors, unknown = {}, []
    for model_type in OFFSETS:
        if model_type not in CONFIG_MAPPING:
            unknown.append(model_type)
            continue
        folder = Path(work) / model_type
        norm = saved(model_type, folder)
        with torch.no_grad():
            want = norm(states)
        got = read_norm(str(folder))(states)
        errors[model_type] = float((got - want).norm() / want.norm())
    print(json.dumps({"errors": errors, "unknown": unknown}))  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    main(*sys.argv[1:])
