"""checkpoint.py FOLDER: random bf16 weights for the DeepSeek-V2 config.json in FOLDER. Runs where torch is.

``--load-format dummy`` draws each rank's share anew, so that one rank and two would have different models.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def shapes_of(config: dict, layer: int) -> dict[str, tuple[int, ...]]:
    """The tensors of one layer, as the checkpoints of DeepSeek-V2-Lite name them."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    prefix = f"model.layers.{layer}."
    found: dict[str, tuple[int, ...]] = {
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "post_attention_layernorm.weight": (hidden,),
        prefix + "self_attn.q_proj.weight": (heads * (nope + rope), hidden),
        prefix + "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        prefix + "self_attn.kv_a_layernorm.weight": (rank,),
        prefix + "self_attn.kv_b_proj.weight": (heads * (nope + value), rank),
        prefix + "self_attn.o_proj.weight": (hidden, heads * value),
    }
    mlps = {"mlp.": config["intermediate_size"]}
    if layer >= config["first_k_dense_replace"]:
        found[prefix + "mlp.gate.weight"] = (config["n_routed_experts"], hidden)
        mlps = {f"mlp.experts.{n}.": config["moe_intermediate_size"] for n in range(config["n_routed_experts"])}
        mlps["mlp.shared_experts."] = config["moe_intermediate_size"] * config["n_shared_experts"]
    for name, width in mlps.items():
        found |= {prefix + name + f"{part}_proj.weight": (width, hidden) for part in ("gate", "up")}
        found[prefix + name + "down_proj.weight"] = (hidden, width)
    return found


def main(folder: Path) -> None:
    """Write one file a layer, one for the rest, and the index."""
    config = json.loads((folder / "config.json").read_text())
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    rest: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }
    draw = torch.Generator().manual_seed(0)
    index = {}
    for number, shapes in enumerate([rest, *(shapes_of(config, layer) for layer in range(layers))]):
        name = f"model-{number + 1:05d}-of-{layers + 1:05d}.safetensors"
        tensors = {}
        for key, shape in shapes.items():
            if len(shape) == 1:
                tensors[key] = torch.ones(shape, dtype=torch.bfloat16)
            else:
                # every layer changes the stream visibly: a matrix keeps the size of what it is given
                std = 1.0 if "embed" in key else shape[1] ** -0.5
                tensors[key] = (torch.randn(shape, generator=draw) * std).to(torch.bfloat16)
        save_file(tensors, str(folder / name), metadata={"format": "pt"})
        index |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
