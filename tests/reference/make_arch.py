"""Write tiny random checkpoints of transformers' own models. Runs in an SGLang environment; downloads nothing.

    python make_arch.py TESTBED OUT ARCH ...

TESTBED is the folder with make_model.py, whose tokenizer it takes. transformers names and shapes the weights, so that SGLang
loads what it would load of a real checkpoint. float32, because a router on a tie sends a token elsewhere for less.
"""

import importlib
import json
import sys
from pathlib import Path

import torch
import transformers

LAYERS, HIDDEN, VOCAB, CONTEXT = 8, 64, 1024, 8192

COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# a CPU pads each rank's share of an expert to 32
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
ARCHS = {
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen2_moe": ("Qwen2Moe", EXPERTS | {"shared_expert_intermediate_size": 64}),
    "qwen3_moe": ("Qwen3Moe", EXPERTS | {"head_dim": 16}),
    "glm4_moe": (
        "Glm4Moe",
        {
            "head_dim": 16,
            "use_qk_norm": True,
            "attention_bias": True,
            "partial_rotary_factor": 0.5,
            "moe_intermediate_size": 64,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
        },
    ),
    "gpt_oss": (
        "GptOss",
        {
            "head_dim": 16,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": 64,
            "swiglu_limit": 7.0,
        },
    ),
}


def write(arch, folder):
    """Write one checkpoint."""
    torch.manual_seed(0)
    name, own = ARCHS[arch]
    config = getattr(transformers, f"{name}Config")(**COMMON | own, torch_dtype="float32")
    model = getattr(transformers, f"{name}ForCausalLM")(config).float()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            # large enough for every layer to change the residual stream visibly, so that a swapped layer cannot hide
            if "norm" in key:
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
            else:
                weight.normal_(std=1.0 if "embed_tokens" in key else 0.2)
    model.save_pretrained(folder)
    importlib.import_module("make_model").save_tokenizer(folder)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation))


if __name__ == "__main__":
    testbed, out, *archs = sys.argv[1:]
    sys.path.insert(0, testbed)
    for arch in archs:
        write(arch, Path(out) / arch)
