"""Configure SGLang's own capture of layers on a loaded model. The facts are those of SGLang 0.5.4 to 0.5.23."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from eagle3_patch import layout


class UnknownModel(Exception):
    """The server or its model is none of which the patch knows that the rows are right."""


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Where this process stands. `attn_tp_rank` is 0 once for every data-parallel rank."""

    tp_rank: int
    tp_size: int
    attn_tp_rank: int


@dataclasses.dataclass(frozen=True)
class Decoder:
    """The part of the model that has the decoder layers and the final norm."""

    model: Any
    """The module with ``set_eagle3_layers_to_capture``."""
    inner: Any
    num_layers: int
    hidden_size: int


def find_decoder(root: Any) -> Decoder:
    """Find the layers, the final norm and the setter of SGLang's capture.

    The setter is the root's; a multimodal wrapper without one (Kimi-K2.5 on 0.5.9) has it on its ``language_model``.

    Raises:
        UnknownModel: one of them is missing.
    """
    name = type(root).__name__
    model = next((m for m in (root, getattr(root, "language_model", None)) if _has_setter(m)), None)
    if model is None:
        raise UnknownModel(f"{name} has no set_eagle3_layers_to_capture in this SGLang: its layers cannot be captured")
    language = getattr(root, "language_model", None)
    candidates = (getattr(root, "model", None), getattr(language, "model", None), language, root)
    inner = next((m for m in candidates if hasattr(m, "layers") and hasattr(m, "norm")), None)
    if inner is None:
        raise UnknownModel(f"{name} has no inner model with layers and norm")
    hidden_size = getattr(_text_config(model.config), "hidden_size", None)
    if not isinstance(hidden_size, int):
        raise UnknownModel(f"{name} has no hidden_size in its config")
    return Decoder(model, inner, len(inner.layers), hidden_size)


def _has_setter(model: Any) -> bool:
    return callable(getattr(model, "set_eagle3_layers_to_capture", None))


def _text_config(config: Any) -> Any:
    return getattr(config, "text_config", None) or config


def capture_layers(decoder: Decoder, boundaries: tuple[int, ...]) -> tuple[int, ...]:
    """Have SGLang capture the inner boundaries among `boundaries`, ascending; returns those it will give.

    0 and N are left out: handing them to SGLang kills some versions at the first forward and is silently ignored by others.

    Raises:
        UnknownModel: the setter's own default is not the known one, so its numbers may mean something else.
    """
    native = tuple(b for b in boundaries if 0 < b < decoder.num_layers)
    if not native:
        return ()
    inner, name = decoder.inner, type(decoder.model).__name__
    decoder.model.set_eagle3_layers_to_capture(None)
    count = decoder.num_layers
    chosen = getattr(inner, "layers_to_capture", None)
    if chosen is None or set(chosen) != {2, count // 2, count - 3}:
        raise UnknownModel(f"{name} captures {chosen} by default, not 2, N//2, N-3: what its numbers mean is unknown")
    per_layer = getattr(inner, "set_eagle3_layers_to_capture", None)
    if per_layer is not None:  # the qwen mixture-of-experts models carry a flag on each layer
        for layer in inner.layers:
            if hasattr(layer, "_is_layer_to_capture"):
                layer._is_layer_to_capture = False
        per_layer(list(native))
    else:
        inner.layers_to_capture = list(native)
    return native


def unfuse(decoder: Decoder, native: tuple[int, ...]) -> None:
    """Have each layer before a captured boundary reduce its own output.

    Left to the next layer's fused all-reduce and norm, what is captured is one rank's partial sum (deepseek_v2 up to
    0.5.13, glm4_moe and gpt_oss up to 0.5.20). All other layers stay fused. Where there is no communicator nothing is fused.
    """
    for boundary in native:
        communicator: Any = getattr(decoder.inner.layers[boundary - 1], "layer_communicator", None)
        if hasattr(communicator, "should_fuse_mlp_allreduce_with_next_layer"):
            communicator.should_fuse_mlp_allreduce_with_next_layer = lambda *args, **kwargs: False


def boundaries_for(asked: tuple[int, ...] | None, num_layers: int) -> tuple[int, ...]:
    """The boundaries of this model.

    Raises:
        ValueError: one is above N, or none was asked for and the model is too small for the default.
    """
    if asked is None:
        return layout.default_boundaries(num_layers)
    return layout.parse_boundaries(",".join(map(str, asked)), num_layers)


def ranks() -> Ranks:
    """The ranks of this process, from whichever place this SGLang keeps them in.

    Raises:
        UnknownModel: no known place has them.
    """
    try:  # 0.5.23
        parallel = importlib.import_module("sglang.srt.runtime_context").get_parallel()
        return Ranks(parallel.tp_rank, parallel.tp_size, parallel.attn_tp_rank)
    except (ImportError, AttributeError):
        pass
    try:
        state = importlib.import_module("sglang.srt.distributed")
        attention = importlib.import_module("sglang.srt.layers.dp_attention")
        return Ranks(
            state.get_tensor_model_parallel_rank(),
            state.get_tensor_model_parallel_world_size(),
            attention.get_attention_tp_rank(),
        )
    except (ImportError, AttributeError) as error:
        raise UnknownModel(f"this SGLang does not say which tensor-parallel rank this is ({error})") from error


def gather_over_ranks(share: Any) -> list[Any]:
    """Exchange one object over the CPU group of the attention tensor-parallel ranks, the ranks with the same batches.

    Raises:
        UnknownModel: this SGLang does not say which group that is.
    """
    group: Any = None
    # the first from 0.5.9 on, the second up to 0.5.13
    for module, name in (
        ("distributed.parallel_state", "get_attn_tp_group"),
        ("layers.dp_attention", "get_attention_tp_group"),
    ):
        find = getattr(importlib.import_module(f"sglang.srt.{module}"), name, None)
        if find is not None:
            group = find()
            break
    if group is None:
        raise UnknownModel("this SGLang does not say which ranks share a batch")
    if group.world_size == 1:
        return [share]
    distributed = importlib.import_module("torch.distributed")
    shares: list[Any] = [None] * group.world_size
    distributed.all_gather_object(shares, share, group=group.cpu_group)
    return shares
