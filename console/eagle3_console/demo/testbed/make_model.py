"""Write a tiny, randomly initialised checkpoint with its tokenizer. Runs in an SGLang environment; downloads nothing.

    python make_model.py llama|deepseek OUT [--layers 8] [--shards 4] [--dtype bfloat16] [--seed 0]

``deepseek`` is DeepSeek-V3's shape: MLA, one dense layer, then mixture-of-experts layers. The standard deviations are
large enough for every layer to change the residual stream visibly, so that a swapped layer cannot hide.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, VOCAB, CONTEXT = 64, 1024, 8192


class Weights:
    """Random tensors by name, drawn from one seeded generator in the order of the calls."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def matrix(self, name: str, rows: int, columns: int, std: float = 0.2) -> None:
        self.tensors[name] = (torch.randn(rows, columns, generator=self._generator) * std).to(self._dtype)

    def norm(self, name: str, size: int) -> None:
        self.tensors[name] = (1 + 0.1 * torch.randn(size, generator=self._generator)).to(self._dtype)

    def mlp(self, prefix: str, intermediate: int) -> None:
        self.matrix(prefix + "gate_proj.weight", intermediate, HIDDEN)
        self.matrix(prefix + "up_proj.weight", intermediate, HIDDEN)
        self.matrix(prefix + "down_proj.weight", HIDDEN, intermediate)


def _common(arch: str, model_type: str, layers: int, dtype: str, intermediate: int, epsilon: float) -> dict[str, Any]:
    return {
        "architectures": [arch],
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": epsilon,
        "rope_theta": 10000.0,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": dtype,
        "use_cache": True,
        "initializer_range": 0.02,
    }


def llama(weights: Weights, layers: int, dtype: str) -> dict[str, Any]:
    """Fill `weights` with a Llama and return its config.json."""
    heads, kv_heads, head, intermediate = 4, 2, 16, 128
    for index in range(layers):
        layer = f"model.layers.{index}."
        weights.norm(layer + "input_layernorm.weight", HIDDEN)
        weights.matrix(layer + "self_attn.q_proj.weight", heads * head, HIDDEN)
        weights.matrix(layer + "self_attn.k_proj.weight", kv_heads * head, HIDDEN)
        weights.matrix(layer + "self_attn.v_proj.weight", kv_heads * head, HIDDEN)
        weights.matrix(layer + "self_attn.o_proj.weight", HIDDEN, heads * head)
        weights.norm(layer + "post_attention_layernorm.weight", HIDDEN)
        weights.mlp(layer + "mlp.", intermediate)
    return _common("LlamaForCausalLM", "llama", layers, dtype, intermediate, 1e-5) | {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "rope_scaling": None,
        "mlp_bias": False,
        "pretraining_tp": 1,
    }


def deepseek(weights: Weights, layers: int, dtype: str) -> dict[str, Any]:
    """Fill `weights` with a DeepSeek-V3 and return its config.json."""
    heads, nope, rope, value, kv_rank, q_rank = 4, 16, 8, 16, 32, 32
    # a CPU pads each rank's share of an expert to 32: with less than 64 the second of two ranks would have only zeros
    intermediate, moe_intermediate, experts, dense_layers = 128, 64, 8, 1
    for index in range(layers):
        layer = f"model.layers.{index}."
        weights.norm(layer + "input_layernorm.weight", HIDDEN)
        weights.norm(layer + "post_attention_layernorm.weight", HIDDEN)
        attention = layer + "self_attn."
        weights.matrix(attention + "q_a_proj.weight", q_rank, HIDDEN)
        weights.norm(attention + "q_a_layernorm.weight", q_rank)
        weights.matrix(attention + "q_b_proj.weight", heads * (nope + rope), q_rank)
        weights.matrix(attention + "kv_a_proj_with_mqa.weight", kv_rank + rope, HIDDEN)
        weights.norm(attention + "kv_a_layernorm.weight", kv_rank)
        weights.matrix(attention + "kv_b_proj.weight", heads * (nope + value), kv_rank)
        weights.matrix(attention + "o_proj.weight", HIDDEN, heads * value)
        mlp = layer + "mlp."
        if index < dense_layers:
            weights.mlp(mlp, intermediate)
            continue
        weights.matrix(mlp + "gate.weight", experts, HIDDEN)
        weights.tensors[mlp + "gate.e_score_correction_bias"] = torch.zeros(experts, dtype=torch.float32)
        for expert in range(experts):
            weights.mlp(mlp + f"experts.{expert}.", moe_intermediate)
        weights.mlp(mlp + "shared_experts.", moe_intermediate)
    return _common("DeepseekV3ForCausalLM", "deepseek_v3", layers, dtype, intermediate, 1e-6) | {
        "moe_intermediate_size": moe_intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "n_shared_experts": 1,
        "n_routed_experts": experts,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "routed_scaling_factor": 1.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "first_k_dense_replace": dense_layers,
        "moe_layer_freq": 1,
        "ep_size": 1,
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
        "attention_dropout": 0.0,
        "num_nextn_predict_layers": 0,
        "aux_loss_alpha": 0.001,
        "seq_aux": True,
        # SGLang's DeepSeek on a CPU asserts a yarn scaling (get_rope_cpu, 0.5.9), as the real DeepSeek-V3 has
        "rope_scaling": {
            "type": "yarn",
            "factor": 2,
            "original_max_position_embeddings": CONTEXT // 2,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }


def save_weights(tensors: dict[str, torch.Tensor], shards: int, out: Path) -> None:
    """Write the tensors as `shards` safetensors files and their index."""
    names, files, total = list(tensors), {}, 0
    size = -(-len(names) // shards)
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in names[shard * size : (shard + 1) * size]}
        save_file(part, str(out / name), metadata={"format": "pt"})
        files.update(dict.fromkeys(part, name))
        total += sum(tensor.numel() * tensor.element_size() for tensor in part.values())
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def save_tokenizer(out: Path) -> None:
    """Train a byte-level BPE tokenizer on one line of text and write it as transformers reads it."""
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog. hello world. " * 3], trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    config = special | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    (out / "special_tokens_map.json").write_text(json.dumps(special))


def main() -> None:
    """Read the command line and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", choices=["llama", "deepseek"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.layers < 1 or args.shards < 1:
        parser.error("--layers and --shards must be at least 1")
    args.out.mkdir(parents=True, exist_ok=True)
    weights = Weights(args.seed, getattr(torch, args.dtype))
    weights.matrix("model.embed_tokens.weight", VOCAB, HIDDEN, std=1.0)
    config = {"llama": llama, "deepseek": deepseek}[args.arch](weights, args.layers, args.dtype)
    weights.norm("model.norm.weight", HIDDEN)
    weights.matrix("lm_head.weight", VOCAB, HIDDEN)
    save_weights(weights.tensors, args.shards, args.out)
    save_tokenizer(args.out)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False}
    (args.out / "generation_config.json").write_text(json.dumps(generation))
    (args.out / "config.json").write_text(json.dumps(config, indent=1))
    parameters = sum(tensor.numel() for tensor in weights.tensors.values())
    print(f"{args.out}: {args.arch}, {args.layers} layers, {parameters} parameters, {args.dtype}")  # noqa: T201


if __name__ == "__main__":
    main()
