"""What each trainer reads: names, tensors and layer ids, one `Format` each.

Read in and held against the wheels of speculators 0.3.0 to 0.9.0, hs-connectors 0.9.0, specforge 0.2.0 and nvidia-modelopt 0.47.0.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from eagle3_remote.export.errors import ExportError

FP8 = "float8_e4m3fn"
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, FP8: 1}
_GROUP = 2000
"""Samples a folder, as SpecForge's own prepare script groups them."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One sample as it is written: final state and dtype are already those of the export."""

    row: int
    name: str
    ids: Any
    """int64 ``[tokens]``."""
    mask: Any
    """int64 ``[tokens]``, 0 or 1."""
    states: Any
    """``[tokens, layers, hidden]``, boundaries ascending, the final state last."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is the same for every sample."""

    boundaries: tuple[int, ...]
    num_layers: int
    hidden_size: int
    final: str
    dtype: str
    model: str
    data: str
    max_seq_len: int


@dataclasses.dataclass(frozen=True)
class Format:
    """One format.

    `finals` are the final states it can hold, its own choice first; none: whatever is stored.
    """

    name: str
    readers: str
    """Who reads it, for a person."""
    finals: tuple[str, ...]
    place: Callable[[int], str]
    """Where a row goes, below the target."""
    write: Callable[[str, Sample, Facts], None]
    """Write one sample to a path that does not exist yet."""
    layer_ids: Callable[[Facts], tuple[int, ...]]
    """The captured layers as this trainer counts them."""
    ids_name: str
    """What the trainer calls them."""
    token_bytes: int = 16
    """Bytes a token beyond its states: int64 input_ids and loss_mask."""
    folder: bool = False
    """Whether a sample is a folder of files."""
    layers: int = 0
    """How many boundaries it must have; 0: any number."""


def _own(tensor: Any) -> Any:
    """The tensor, contiguous and alone in its memory: torch saves all of the memory that a tensor is a part of."""
    tensor = tensor.contiguous()
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if whole else tensor.clone()


def _save(path: str, value: dict[str, Any] | Any) -> None:
    import torch

    # through a Python file: a full disk is an OSError then, and the archive's inner name does not depend on the path
    with open(path, "xb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def _write_v1(path: str, sample: Sample, facts: Facts) -> None:
    states = [_own(sample.states[:, layer]) for layer in range(sample.states.shape[1])]
    _save(path, {"input_ids": sample.ids, "hidden_states": states, "loss_mask": sample.mask})


def _write_specforge(path: str, sample: Sample, facts: Facts) -> None:
    value = {
        "input_ids": sample.ids,
        "loss_mask": sample.mask,
        "hidden_state": _own(sample.states[:, -1])[None],
        "aux_hidden_state": _own(sample.states[:, :-1].flatten(1))[None],
    }
    _save(path, value)


def _write_modelopt(path: str, sample: Sample, facts: Facts) -> None:
    value = {
        "input_ids": sample.ids,
        "loss_mask": sample.mask,
        "hidden_states": _own(sample.states[:, -1]),
        "aux_hidden_states": _own(sample.states[:, :-1].flatten(1)),
        "hidden_states_prenorm": facts.final == "pre",
        "conversation_id": sample.name,
    }
    _save(path, value)


def _write_pt(path: str, sample: Sample, facts: Facts) -> None:
    os.mkdir(path)
    for layer in range(sample.states.shape[1] - 1):
        _save(os.path.join(path, f"aux_{layer}.pt"), _own(sample.states[:, layer]))
    _save(os.path.join(path, "final.pt"), _own(sample.states[:, -1]))
    _save(os.path.join(path, "input_ids.pt"), sample.ids)
    _save(os.path.join(path, "loss_mask.pt"), sample.mask)
    meta = {
        "row": sample.row,
        "id": sample.name,
        "tokens": len(sample.ids),
        "boundaries": list(facts.boundaries),
        "final": facts.final,
        "hidden_size": facts.hidden_size,
        "num_layers": facts.num_layers,
        "dtype": facts.dtype,
    }
    with open(os.path.join(path, "meta.json"), "x", encoding="utf-8") as file:
        json.dump(meta, file)
        file.flush()
        os.fsync(file.fileno())
    open(os.path.join(path, "done"), "x").close()


def _write_speculators(path: str, sample: Sample, facts: Facts) -> None:
    from safetensors.torch import save_file

    tensors = {"hidden_states": sample.states.contiguous(), "token_ids": sample.ids}
    if facts.dtype == FP8:
        tensors["hidden_states"], tensors["hidden_states_scales"] = to_fp8(sample.states)
    save_file(tensors, path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_fp8(states: Any) -> tuple[Any, Any]:
    """(float8_e4m3fn ``[tokens, layers, hidden]``, float32 scales ``[tokens, 1, 1]``), a scale a token over all its layers.

    As hs_connectors 0.9.0 fp8_utils.py does it, whose ``FP8Transfer`` multiplies them together again.
    """
    import torch

    wide = states.to(torch.float32)
    scales = (wide.abs().amax(dim=(1, 2), keepdim=True) / torch.finfo(torch.float8_e4m3fn).max).clamp(min=1e-12)
    return (wide / scales).to(torch.float8_e4m3fn), scales


def _before(facts: Facts) -> tuple[int, ...]:
    """Ids of layers whose output is captured: boundary b is after layer b - 1."""
    return tuple(boundary - 1 for boundary in facts.boundaries)


FORMATS = {
    one.name: one
    for one in (
        Format(
            "speculators",
            "speculators 0.5 and newer (float8_e4m3fn: 0.9 and newer, with --hidden-states-backend fp8)",
            ("pre",),
            lambda row: f"hidden_states/hs_{row}.safetensors",
            _write_speculators,
            # vLLM counts boundaries; the final state is not named (speculators 0.9.0 train/config/schema.py)
            lambda facts: facts.boundaries,
            "target_layer_ids",
            token_bytes=8,
        ),
        Format(
            "speculators-v1",
            "speculators 0.3 and 0.4, and 0.5 to 0.7 with --legacy-data",
            ("pre",),
            lambda row: f"data_{row}.pt",
            _write_v1,
            # its generator captures after a layer, the last one included (0.3.0 and 0.4.0.1 custom_worker.py)
            lambda facts: (*_before(facts), facts.num_layers - 1),
            "layer_ids",
        ),
        Format(
            "specforge",
            "SpecForge 0.2",
            ("post",),
            lambda row: f"rows_{row // _GROUP * _GROUP}-{row // _GROUP * _GROUP + _GROUP}/data_{row}.ckpt",
            _write_specforge,
            _before,
            "aux_hidden_state_layer_ids",
            layers=3,
        ),
        Format(
            "modelopt",
            "NVIDIA ModelOpt (final pre: 0.46 and newer, older ones take it for post)",
            ("post", "pre"),
            lambda row: f"{row}.pt",
            _write_modelopt,
            _before,
            "eagle_aux_hidden_state_layer_ids",
        ),
        Format(
            "pt",
            "scripts that read aux_0.pt, aux_1.pt, ... and final.pt",
            (),
            lambda row: f"sample_{row}",
            _write_pt,
            lambda facts: facts.boundaries,
            "boundaries",
            folder=True,
        ),
    )
}


def check(form: Format, boundaries: Sequence[int], final: str, stored_final: str, dtype: str) -> str:
    """The final state that is written ("pre" or "post").

    Raises:
        ExportError: the format cannot hold what is asked, or it cannot be made of what is stored.
    """
    wanted = final or (form.finals[0] if form.finals else stored_final)
    if form.finals and wanted not in form.finals:
        raise ExportError(f"{form.name} needs the final state {form.finals[0]}-norm, {wanted}-norm is asked for.")
    if stored_final == "post" and wanted == "pre":
        raise ExportError(
            f"{form.name} is asked for with the final state before the final norm, and this dataset holds it after it: that cannot be "
            "turned back. Extract again with --final pre, or choose a format that takes it as it is."
        )
    if form.layers and len(boundaries) != form.layers:
        raise ExportError(f"{form.name} needs exactly {form.layers} boundaries, the dataset has {len(boundaries)}.")
    if form.layer_ids(_only(boundaries))[0] < 0:
        raise ExportError(
            f"{form.name} counts a layer by its output and has no id for boundary 0, the embeddings: choose another format."
        )
    if dtype and dtype not in ITEM_BYTES:
        raise ExportError(f"{dtype} is no dtype to store states in: choose one of {', '.join(ITEM_BYTES)}.")
    if dtype == FP8 and form.name != "speculators":
        raise ExportError(
            f"Nothing reads {FP8} in the format {form.name}; speculators 0.9 and newer reads it in its own."
        )
    return wanted


def _only(boundaries: Sequence[int]) -> Facts:
    return Facts(tuple(boundaries), max(boundaries), 0, "", "", "", "", 0)


def payload(form: Format, facts: Facts, tokens: int) -> int:
    """Bytes of all tensors of a sample of so many tokens; its files are larger than that."""
    scales = 4 if facts.dtype == FP8 else 0
    states = (len(facts.boundaries) + 1) * facts.hidden_size * ITEM_BYTES[facts.dtype]
    return tokens * (states + form.token_bytes + scales)


def size(form: Format, facts: Facts, tokens: int, samples: int) -> int:
    """Bytes that so many tokens in so many samples take on disk."""
    return payload(form, facts, tokens) + samples * files_each(form, facts) * _OVERHEAD


def files_each(form: Format, facts: Facts) -> int:
    """Files (and folders) that one sample takes."""
    return len(facts.boundaries) + 6 if form.folder else 1


_OVERHEAD = 4096 + 3072
"""Bytes a file takes beyond its rows: its last, partly filled block, and torch's archive of names and alignment."""
