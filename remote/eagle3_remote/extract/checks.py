"""Whether one dump is what was asked for. Runs on a worker thread; needs torch and safetensors."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from eagle3_patch import layout
from eagle3_remote.extract.errors import SampleFailure

EXPLANATIONS = {
    "rows": "the dumps do not have one row a token: a prefix cache or a cut prefill; start the server with --disable-radix-cache",
    "prompt-tokens": "the server counts other prompt tokens than were sent: something between changes the prompts",
    "cached-tokens": "the server took tokens from its prefix cache, so their rows were never computed: start it with "
    "--disable-radix-cache and let nobody else use it",
    "token-ids": "the dumps hold other token ids than were sent: rows of another request, or a patch that does not fit this SGLang",
    "layers": "the server captures other layers than asked: start it with the boundaries of this extraction",
    "hidden-size": "the dumped rows have another width than the model's hidden size: another model, or partial sums of one rank",
    "dtype": "the dtype of the rows changed within the dataset: the server was started with another --dtype",
    "non-finite": "the model's hidden states are not finite (NaN or infinity): dtype or quantisation of the model, or a broken kernel",
    "zero-row": "whole rows are zero: the patch captured buffers that were never written",
    "dump-unreadable": "the dumps cannot be read: patch and extraction are of different releases, or the dump directory is not the server's",
    "dump-error": "the patch could not write the dumps; its reason is beside each sample",
    "dump-full": "the patch finds no space in the dump directory: free it or use another one",
    "dump-missing": "the server answers but no dump appears: the patch is not loaded, or it writes to another dump directory",
    "timeout": "the server accepts requests but does not answer: look at its log; it may hang",
    "server-error": "the server answers with errors: look at its log",
    "refused": "the server refuses the requests; its words are beside each sample",
    "input-changed": "the data file is not the one that was read when this dataset was begun",
}


@dataclasses.dataclass(frozen=True)
class Expected:
    """What every dump of a run must show."""

    boundaries: tuple[int, ...]
    final: str
    hidden_size: int
    dtype: str | None
    """Of the rows stored so far; `None` before the first."""


@dataclasses.dataclass(frozen=True)
class Checked:
    """A good dump: the dtype of its rows and what the patch said of itself."""

    dtype: str
    meta: dict[str, Any]


def check_dump(folder: str, expected: Expected, ids: Any) -> Checked:
    """Check a complete dump folder against the ids that were sent (``array('q')``).

    Raises:
        SampleFailure: the first thing that is wrong, its kind one of `EXPLANATIONS`.
    """
    import numpy
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        with open(os.path.join(folder, layout.META_FILE), encoding="utf-8") as file:
            meta = json.load(file)
        with safe_open(os.path.join(folder, layout.STATES_FILE), framework="pt") as states:
            hidden = states.get_tensor("hidden_states")
            token_ids = states.get_tensor("token_ids")
    except (OSError, ValueError, SafetensorError) as error:
        raise SampleFailure("dump-unreadable", f"the dump cannot be read: {error}") from None
    _check_layers(meta, expected)
    tokens, layers = len(ids), len(expected.boundaries) + 1
    if hidden.dim() != 3 or hidden.shape[0] != tokens or tuple(token_ids.shape) != (tokens,):
        raise SampleFailure(
            "rows",
            f"{tokens} tokens were sent, the dump has {list(hidden.shape)} states and {list(token_ids.shape)} ids",
        )
    if hidden.shape[1] != layers:
        raise SampleFailure("layers", f"the dump has {hidden.shape[1]} layers, not {layers} (boundaries and final)")
    if hidden.shape[2] != expected.hidden_size:
        raise SampleFailure(
            "hidden-size", f"the rows have width {hidden.shape[2]}, the model's hidden size is {expected.hidden_size}"
        )
    sent = torch.from_numpy(numpy.frombuffer(ids.tobytes(), dtype=numpy.int64).copy())
    if token_ids.dtype != torch.int64 or not torch.equal(token_ids, sent):
        raise SampleFailure("token-ids", _first_difference(token_ids.tolist(), sent.tolist()))
    dtype = str(hidden.dtype).removeprefix("torch.")
    if not hidden.is_floating_point() or (expected.dtype is not None and dtype != expected.dtype):
        raise SampleFailure("dtype", f"the rows are {dtype}, those stored before {expected.dtype or 'floating point'}")
    _check_values(hidden)
    return Checked(dtype, meta)


def _check_layers(meta: dict[str, Any], expected: Expected) -> None:
    boundaries, final = tuple(meta.get("boundaries", ())), meta.get("final")
    if boundaries != expected.boundaries:
        raise SampleFailure(
            "layers", f"the dump has boundaries {list(boundaries)}, asked were {list(expected.boundaries)}"
        )
    if final != expected.final:
        raise SampleFailure("layers", f"the dump's final state is {final}-norm, asked was {expected.final}-norm")


def _check_values(hidden: Any) -> None:
    """`hidden` is [tokens, layers, hidden]; NaN passes through aminmax, so one pass finds NaN and infinity."""
    import torch

    low, high = torch.aminmax(hidden)
    if not (torch.isfinite(low) and torch.isfinite(high)):
        at = torch.nonzero(~torch.isfinite(hidden).all(dim=2))[0].tolist()
        raise SampleFailure("non-finite", f"row {at[0]}, layer {at[1]} holds NaN or infinity")
    alive = hidden.any(dim=2)
    if not bool(alive.all()):
        at = torch.nonzero(~alive)[0].tolist()
        raise SampleFailure("zero-row", f"row {at[0]}, layer {at[1]} is all zero")


def _first_difference(got: list[int], sent: list[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(got, sent, strict=True)) if a != b), None)
    if at is None:
        return "the token ids are not int64"
    return f"token {at} was sent as {sent[at]}, the dump has {got[at]}"
