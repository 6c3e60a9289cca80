"""What the model's ``config.json`` says, and what a running server says of itself."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from typing import Any

from eagle3_remote.extract.errors import ExtractionError

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_INPUT_RESERVE = 5
"""Tokens that SGLang keeps of a request's length: ``max_req_input_len = max_req_len - 5`` (tp_worker.py, 0.5.9 and 0.5.23)."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model directory."""

    path: str
    architecture: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    context_len: int
    """0: not said."""
    dtype: str
    fingerprint: str
    """SHA-256 of ``config.json`` and of the weight index (or the names and sizes of the weight files)."""


@dataclasses.dataclass(frozen=True)
class Server:
    """A running SGLang server (``/get_server_info``, in newer releases also ``/server_info``)."""

    model_path: str
    version: str
    context_len: int
    max_total_tokens: int
    max_input_len: int
    """``max_req_input_len``; a prompt must be shorter. 0: not said."""
    chunk: int
    """``chunked_prefill_size``; -1: off."""
    dtype: str
    """As the server was told: ``auto`` or a name."""
    shares_prefixes: bool
    """The radix cache is on, and our requests do not keep out of it with an ``extra_key`` each."""
    speculative: str


def read_model(path: str) -> Model:
    """Read ``config.json``, following a nested ``text_config``.

    Raises:
        ExtractionError: missing, unreadable, or without layers, hidden size or vocabulary.
    """
    config_path = os.path.join(path, "config.json")
    try:
        with open(config_path, "rb") as file:
            raw = file.read()
        config = json.loads(raw)
    except (OSError, ValueError) as error:
        raise ExtractionError(
            f"The model's {config_path} cannot be read: {error}. Name the model's directory."
        ) from None
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    merged = {**config, **text}
    sizes = {}
    for name in ("num_hidden_layers", "hidden_size", "vocab_size"):
        value = merged.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ExtractionError(
                f"{config_path} does not say {name}, which is needed to check the samples before they are sent."
            )
        sizes[name] = value
    digest = hashlib.sha256(raw)
    digest.update(_weights(path))
    context = merged.get("max_position_embeddings")
    dtype = (
        merged.get("dtype")
        or merged.get("torch_dtype")
        or config.get("dtype")
        or config.get("torch_dtype")
        or "bfloat16"
    )
    return Model(
        path=path,
        architecture=(config.get("architectures") or [""])[0],
        num_layers=sizes["num_hidden_layers"],
        hidden_size=sizes["hidden_size"],
        vocab_size=sizes["vocab_size"],
        context_len=context if isinstance(context, int) else 0,
        dtype=str(dtype).removeprefix("torch."),
        fingerprint=digest.hexdigest(),
    )


def _weights(path: str) -> bytes:
    index = os.path.join(path, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, "rb") as file:
            return file.read()
    names = sorted(name for name in os.listdir(path) if name.endswith((".safetensors", ".bin", ".pt")))
    return json.dumps([(name, os.path.getsize(os.path.join(path, name))) for name in names]).encode()


def server_from(info: dict[str, Any], models: dict[str, Any], model: Model) -> Server:
    """Fold ``/server_info`` (or ``/get_server_info``) and ``/v1/models`` into what the extraction needs.

    Raises:
        ExtractionError: the answer lacks what the length check needs.
    """
    served = (models.get("data") or [{}])[0]
    context = served.get("max_model_len") or info.get("context_length") or model.context_len
    total = info.get("max_total_num_tokens")
    if not isinstance(context, int) or not isinstance(total, int):
        raise ExtractionError(
            "The server does not say its context length and KV pool size (max_model_len, max_total_num_tokens), "
            "so over-long samples could not be kept from it."
        )
    chunk = info.get("chunked_prefill_size")
    limit = info.get("max_req_input_len")
    return Server(
        model_path=str(info.get("model_path", "")),
        version=str(info.get("version", "")),
        context_len=context,
        max_total_tokens=total,
        max_input_len=limit if isinstance(limit, int) else 0,
        chunk=chunk if isinstance(chunk, int) else -1,
        dtype=str(info.get("dtype", "auto")).removeprefix("torch."),
        shares_prefixes=not info.get("disable_radix_cache", False),
        speculative=str(info.get("speculative_algorithm") or ""),
    )


def longest_prompt(server: Server) -> tuple[int, str]:
    """The most tokens that the server takes in one prompt, and which limit that is."""
    context = server.context_len - 1 - _INPUT_RESERVE
    pool = server.max_total_tokens - 1 - _INPUT_RESERVE
    if server.max_input_len and server.max_input_len - 1 < min(context, pool):
        return server.max_input_len - 1, "its own limit max_req_input_len"
    if pool < context:
        return pool, f"its KV pool holds {server.max_total_tokens} tokens"
    return context, f"its context length is {server.context_len}"


def served_dtype(server: Server, model: Model) -> str:
    """The dtype the server computes in: with ``auto`` a float32 checkpoint is served in float16 (0.5.9 and 0.5.23)."""
    aliases = {"half": "float16", "float": "float32"}
    name = model.dtype if server.dtype == "auto" else aliases.get(server.dtype, server.dtype)
    if server.dtype == "auto" and name == "float32":
        return "float16"
    return name


def check_server(server: Server, model: Model) -> None:
    """Refuse a server whose rows could not be right.

    Raises:
        ExtractionError: another model, the radix cache is on, or speculative decoding is.
    """
    if server.model_path and os.path.realpath(server.model_path) != os.path.realpath(model.path):
        raise ExtractionError(
            f"The server serves {server.model_path}, not {model.path}: start the server with that model."
        )
    if server.shares_prefixes:
        raise ExtractionError(
            "The server's radix cache is on: rows of a cached prefix are never computed. Start it with --disable-radix-cache, "
            "or give each request an extra_key of its own."
        )
    if server.speculative:
        raise ExtractionError(
            f"The server runs with speculative decoding ({server.speculative}), which cuts the captured rows short. Start it without."
        )
