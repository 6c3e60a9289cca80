"""A model's final norm, applied to states that were stored before it.

Only what is known is applied: a wrong norm gives no error, and a drafter that nobody accepts tokens of.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from eagle3_remote.export.errors import ExportError

_PLAIN = (
    *("llama", "mistral", "ministral3", "mixtral", "phi3", "seed_oss", "olmo2", "olmo3"),
    *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"),
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm4", "glm4_moe", "glm_moe_dsa"),
    *("llama4_text", "gpt_oss", "minimax_m2", "ernie4_5", "ernie4_5_moe", "hunyuan_v1_moe"),
)
_PLUS_ONE = (
    *("gemma", "gemma2", "gemma3_text"),
    *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
)
OFFSETS = dict.fromkeys(_PLAIN, 0.0) | dict.fromkeys(_PLUS_ONE, 1.0)
"""What is added to the stored weight, by ``model_type`` of the text model. Held against transformers' own classes in the tests;
kimi_k2 and kimi_k25 have DeepSeek-V3's norm (their remote code takes over its class)."""
WEIGHT_NAMES = (
    "model.norm.weight",
    "language_model.model.norm.weight",
    "model.language_model.norm.weight",
    "language_model.norm.weight",
)
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclasses.dataclass(frozen=True)
class FinalNorm:
    """Root mean square norm: ``x / sqrt(mean(x^2) + epsilon) * (weight + offset)``."""

    weight: Any
    """float32 ``[hidden]``, the offset added."""
    epsilon: float
    name: str
    """The weight's name in the checkpoint."""

    def __call__(self, states: Any) -> Any:
        """float32 ``[tokens, hidden]`` of states ``[tokens, hidden]`` of any float type, rounded nowhere on the way.

        SGLang's kernels do likewise and round once at the end (layernorm.py, 0.5.9 and 0.5.23).
        """
        import torch

        wide = states.to(torch.float32)
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


def read_norm(model: str) -> FinalNorm:
    """The final norm of the model in a directory, from its ``config.json`` and its safetensors.

    Raises:
        ExportError: the model is gone, its norm is of no known kind, or the weight is not where it is looked for.
    """
    config = _config(model)
    kind, text = _text_model(config)
    offset = 1.0 if text.get("use_gemma_norm") is True else OFFSETS.get(kind)
    if offset is None:
        raise ExportError(
            f"How the final norm of {model} works (model_type {kind!r}) is not known here, so states stored before it cannot be "
            "turned into states after it. Choose a format or --final that takes them as they are (pre)."
        )
    epsilon = text.get("rms_norm_eps")
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        raise ExportError(f"{model}/config.json does not say rms_norm_eps, so the final norm cannot be applied.")
    name, file = _find(model)
    weight = _load(os.path.join(model, file), name)
    if tuple(weight.shape) != (text.get("hidden_size"),):
        raise ExportError(
            f"{name} in {model}/{file} has the shape {list(weight.shape)}, the model's hidden size is {text.get('hidden_size')}."
        )
    return FinalNorm(weight + offset, epsilon, name)


def _config(model: str) -> dict[str, Any]:
    try:
        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise ExportError(
            f"The model's {model}/config.json cannot be read ({error}), and its final norm is needed. "
            "Name where the model lies now with --model."
        ) from None
    return config if isinstance(config, dict) else {}


def _text_model(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(model_type, settings) of the language model, which may be nested in a multimodal one."""
    nested = config.get("text_config")
    if not isinstance(nested, dict):
        return str(config.get("model_type")), config
    return str(nested.get("model_type") or config.get("model_type")), {**config, **nested}


def _find(model: str) -> tuple[str, str]:
    """(name, file) of the final norm's weight."""
    from safetensors import safe_open

    try:
        if os.path.exists(os.path.join(model, _INDEX)):
            with open(os.path.join(model, _INDEX), encoding="utf-8") as file:
                names = dict(json.load(file)["weight_map"])
        else:
            with safe_open(os.path.join(model, _SINGLE), framework="pt") as weights:
                names = dict.fromkeys(weights.keys(), _SINGLE)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(
            f"The weights of {model} cannot be read ({error}), and its final norm is needed: {_SINGLE} or {_INDEX} must lie there."
        ) from None
    found = [name for name in WEIGHT_NAMES if name in names]
    if len(found) != 1:
        raise ExportError(
            f"The weight of the final norm was not found in {model}: looked for {', '.join(WEIGHT_NAMES)}, "
            f"there are {len(found)} of them."
        )
    return found[0], str(names[found[0]])


def _load(path: str, name: str) -> Any:
    import torch
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as weights:
            return weights.get_tensor(name).to(torch.float32)
    except Exception as error:  # safetensors has an exception of its own, by version
        raise ExportError(f"{name} cannot be read from {path}: {error}.") from None
