"""Which trainers read a dataset as it is, and which need which export. Pure."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Trainer:
    """One reader of datasets. What each format is lies in `eagle3_remote.export.formats`."""

    name: str
    form: str
    """The export it needs; empty: it reads the dataset as it is."""
    ids: str
    """What it calls the captured layers."""
    offset: int = -1
    """Its id of a boundary, less the boundary: -1 where it counts layers by their output."""
    only_pre: bool = False
    """Whether it wants the final state before the final norm."""
    layers: int = 0
    """How many boundaries it needs; 0: any number."""


TRAINERS = (
    Trainer("speculators 0.5 and newer", "", "--target-layer-ids", offset=0, only_pre=True),
    Trainer("speculators 0.3, 0.4; to 0.7 with --legacy-data", "speculators-v1", "layer_ids", only_pre=True),
    Trainer("SpecForge 0.2", "specforge", "aux_hidden_state_layer_ids", layers=3),
    Trainer("NVIDIA ModelOpt", "modelopt", "eagle_aux_hidden_state_layer_ids"),
    Trainer("scripts that read aux_0.pt ... final.pt", "pt", "boundaries", offset=0),
)


def trainer_lines(manifest: dict[str, Any], dataset: str) -> list[str]:
    """A Markdown table: trainer, what it reads, and the captured layers as it counts them."""
    lines = ["| trainer | reads | layers as it counts them |", "|---|---|---|"]
    for one in TRAINERS:
        ids = [boundary + one.offset for boundary in manifest["boundaries"]]
        why_not = unable(one, manifest["boundaries"], manifest["final"])
        reads = (
            f"cannot be: {why_not}"
            if why_not
            else (_export(dataset, one.form) if one.form else f"{dataset} as it is, with --on-missing raise")
        )
        shown = "" if why_not else f"{one.ids} {' '.join(map(str, ids))}"
        lines.append(f"| {one.name} | {reads} | {shown} |")
    if manifest["final"] == "pre":
        fp8 = _export(dataset, "speculators", "--dtype", "float8_e4m3fn")
        lines += ["", f"Half the space, for speculators 0.9 and newer with --hidden-states-backend fp8: {fp8}."]
    return lines


def unable(one: Trainer, boundaries: Sequence[int], final: str) -> str:
    """Why a trainer cannot take a dataset of these boundaries and final state, and what it needs; empty: it can."""
    if one.only_pre and final != "pre":
        return "extract again with --final pre"
    return unable_by_boundaries(one, boundaries)


def unable_by_boundaries(one: Trainer, boundaries: Sequence[int]) -> str:
    """As `unable`, whatever the final state is."""
    if one.layers and len(boundaries) != one.layers:
        return f"needs exactly {one.layers} boundaries"
    return "no id for boundary 0" if min(boundaries) + one.offset < 0 else ""


def _export(dataset: str, form: str, *more: str) -> str:
    words = ["export", "HOST", "--out", dataset, "--format", form, *more, "--to", "DIR"]
    return f"`eagle3-console {shlex.join(words)}`"
