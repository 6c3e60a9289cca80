"""What the environment asks for, and which servers the patch refuses. Standard library only."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from eagle3_patch import layout

DEFAULT_PINNED_BUDGET = 8 * 1024**3
FINALS = ("pre", "post")
LAYOUTS = ("safetensors", "pt")

_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")

_MUST_BE_OFF = {
    "enable_two_batch_overlap": "two-batch overlap goes around the layers' capture",
    "enable_nsa_prefill_context_parallel": "context parallel splits the rows over ranks",
    "enable_dsa_prefill_context_parallel": "context parallel splits the rows over ranks",
    "enable_prefill_context_parallel": "context parallel splits the rows over ranks",
    "enable_prefill_cp": "context parallel splits the rows over ranks",
    "enable_layernorm_sp": "the sequence-parallel layer norm splits the rows over ranks",
    "enable_attn_tp_input_scattered": "scattered attention input splits the rows over ranks",
    "enable_pdmux": "split prefill goes around the layers' capture",
    "enable_return_aux_hidden_states": "the server's own clients would get the layers of the dump",
    "is_embedding": "an embedding model has no logits processor",
}
_MUST_BE_ONE = {
    "pp_size": "pipeline parallel: only the last stage's layers could be captured",
    "attn_cp_size": "context parallel splits the rows over ranks",
    "dcp_size": "decode context parallel is untried",
}
_MUST_BE_UNSET = {
    "speculative_algorithm": "speculative decoding uses the capture of the layers itself",
    "dllm_algorithm": "a diffusion model has no prefill",
}
"""Attribute of ServerArgs -> why. Names of 0.5.4 to 0.5.23; one that a version lacks is not on in it."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The patch's whole configuration."""

    dump_dir: str
    boundaries: tuple[int, ...] | None
    """`None`: `layout.default_boundaries` of the model."""
    final: str
    layout: str
    rid_prefix: str
    pinned_budget: int
    dump_budget: int
    """0: none."""


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the ``EAGLE3_*`` variables; one that is empty counts as unset.

    Raises:
        ValueError: a variable has a value that means nothing; the message names it and what it may be.
    """
    dump_dir = environ.get(layout.ENV_DUMP_DIR) or environ.get(layout.ENV_DUMP_DIR_OLD) or ""
    if not os.path.isabs(dump_dir):
        raise ValueError(f"{layout.ENV_DUMP_DIR}={dump_dir!r} is not an absolute path")
    text = environ.get(layout.ENV_BOUNDARIES) or ""
    try:
        boundaries = layout.parse_boundaries(text) if text else None
    except ValueError as error:
        raise ValueError(f"{layout.ENV_BOUNDARIES}: {error}") from None
    prefix = environ.get(layout.ENV_RID_PREFIX) or layout.RID_PREFIX
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"{layout.ENV_RID_PREFIX}={prefix!r}: letters, digits, '.', '_' and '-', at most 64")
    return Settings(
        dump_dir=dump_dir,
        boundaries=boundaries,
        final=_one_of(environ, layout.ENV_FINAL, FINALS),
        layout=_one_of(environ, layout.ENV_LAYOUT, LAYOUTS),
        rid_prefix=prefix,
        pinned_budget=_bytes(environ, layout.ENV_PINNED_BUDGET, DEFAULT_PINNED_BUDGET),
        dump_budget=_bytes(environ, layout.ENV_DUMP_BUDGET, 0),
    )


def _one_of(environ: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = environ.get(name) or allowed[0]
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: it may be {' or '.join(allowed)}")
    return value


def _bytes(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError(f"{name}={text!r} is not a number of bytes above 0")
    return int(text)


def unsupported(args: Any) -> str | None:
    """Why rows cannot be trusted on a server with these ServerArgs; `None` when nothing speaks against it."""
    mode = unsupported_mode(args)
    if mode is not None:
        return mode
    if str(getattr(args, "device", "")).startswith("cuda") and _prefill_graphs(args):
        return (
            "prefill CUDA graphs are on, and a replayed graph runs no hook; start the server with --disable-cuda-graph "
            "(SGLang 0.5.10 to 0.5.13 also: --disable-piecewise-cuda-graph; up to 0.5.9: without "
            "--enable-piecewise-cuda-graph)"
        )
    return None


def unsupported_mode(args: Any) -> str | None:
    """The part of `unsupported` that the command line alone decides; `args` may be what the parser made of it."""
    for name, why in _MUST_BE_OFF.items():
        if getattr(args, name, False):
            return f"{_flag(name)} is on: {why}; start the server without it"
    for name, why in _MUST_BE_ONE.items():
        if (getattr(args, name, 1) or 1) > 1:
            return f"{_flag(name)} is {getattr(args, name)}: {why}; start the server with 1"
    for name, why in _MUST_BE_UNSET.items():
        if getattr(args, name, None):
            return f"{_flag(name)} is {getattr(args, name)}: {why}; start the server without it"
    if getattr(args, "disaggregation_mode", "null") not in ("null", None):
        return "prefill and decode are disaggregated, which is untried; start the server without --disaggregation-mode"
    return None


def _flag(attribute: str) -> str:
    return "--" + attribute.replace("_", "-")


def _prefill_graphs(args: Any) -> bool:
    """Whether prefill runs from CUDA graphs (facts of 0.5.4 to 0.5.23, ServerArgs after its own resolution)."""
    config = getattr(args, "cuda_graph_config", None)  # 0.5.16 and newer
    if config is not None:
        backend = getattr(getattr(config, "prefill", None), "backend", None)
        return str(getattr(backend, "value", backend)).lower() != "disabled"
    disabled = getattr(args, "disable_piecewise_cuda_graph", None)  # 0.5.10 to 0.5.13: on unless disabled
    if disabled is not None:
        return not disabled
    return bool(getattr(args, "enable_piecewise_cuda_graph", False))  # up to 0.5.9: off unless enabled
