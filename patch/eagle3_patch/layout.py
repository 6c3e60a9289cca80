"""What a dump looks like on disk, and the names by which patch, extraction and console know each other.

Standard library only: the extraction and the agent import this module, the rest of the package never.

One folder a request below the dump directory::

    req_<rid>/states.safetensors   hidden_states [tokens, len(boundaries) + 1, hidden], boundaries ascending, final last
                                   token_ids     int64 [tokens]
    req_<rid>/meta.json            the facts of `META_KEYS`
    req_<rid>/done                 empty, created last: the folder is complete

A request that could not be written has ``error.json`` (``{"rid", "reason"}``) instead of ``done``.
With the ``pt`` layout ``aux_0.pt aux_1.pt ... final.pt`` (each ``[tokens, hidden]``) stand in for ``states.safetensors``.

A *boundary* is the number of decoder layers already done: 0 = embeddings, N = after the last layer, before the final norm.
"""

from __future__ import annotations

import re

ENV_DUMP_DIR = "EAGLE3_DUMP_DIR"
ENV_DUMP_DIR_OLD = "SGLANG_HS_DUMP_DIR"
"""The name the hand-made patch used; honoured when `ENV_DUMP_DIR` is unset."""
ENV_BOUNDARIES = "EAGLE3_BOUNDARIES"
"""Comma list, for example ``2,30,58``; unset: `default_boundaries`."""
ENV_FINAL = "EAGLE3_FINAL"
"""``pre`` (before the final norm, the default: what speculators' layout needs) or ``post``."""
ENV_LAYOUT = "EAGLE3_DUMP_LAYOUT"
"""``safetensors`` (default) or ``pt``."""
ENV_HUSH = "EAGLE3_HUSH_FILE"
"""A JSON file of secrets that no log line of the server shall have, set where there are any."""
ENV_RID_PREFIX = "EAGLE3_RID_PREFIX"
"""Only requests whose rid starts with this are dumped; default `RID_PREFIX`."""
ENV_PINNED_BUDGET = "EAGLE3_PINNED_BUDGET"
"""Bytes of host memory for rows that wait for the writers; default 8 GiB."""
ENV_DUMP_BUDGET = "EAGLE3_DUMP_BUDGET"
"""Bytes of complete dumps that may lie in the dump directory at once; unset: as many as the file system takes."""

RID_PREFIX = "e3-"

STATES_FILE = "states.safetensors"
META_FILE = "meta.json"
DONE_FILE = "done"
ERROR_FILE = "error.json"
FOLDER_PREFIX = "req_"

META_KEYS = (
    "rid",
    "tokens",
    "boundaries",
    "engine_ids",
    "final",
    "hidden_size",
    "num_layers",
    "dtype",
    "shape",
    "cached_tokens",
    "layout",
    "model_class",
    "sglang_version",
    "patch_version",
    "chunks",
    "model",
    "tp_rank",
    "seconds",
)
"""``engine_ids``: what SGLang's own setter was given, ``shape``: of ``hidden_states``, ``cached_tokens``: always 0, ``chunks``: rows
of each prefill that the request was computed in, ``seconds``: from its first prefill until all rows were on the CPU."""

MARKER_READY = "eagle3-patch ready: "
"""Followed by one JSON object a rank: patch, sglang, model_class, num_layers, hidden_size, boundaries, final, layout,
tp_rank, tp_size, writes, dump_dir, pinned_budget, dump_budget (bytes; 0: none)."""
MARKER_CHECKED = "eagle3-patch checked: "
"""Printed by each writing rank when the states of its first batch, and again of its first batch above 2048 tokens, were
found right; followed by one JSON object: rows, ranks, rank_difference, norm_difference."""
MARKER_REFUSED = "eagle3-patch refused: "
"""Followed by ``{"reason": ...}``; the server then exits by itself."""

_RID = re.compile(r"[A-Za-z0-9._-]{1,180}")


def folder_name(rid: str) -> str:
    """The folder of one request.

    Raises:
        ValueError: the rid is not safe as a file name (letters, digits, ``. _ -``, at most 180).
    """
    if not _RID.fullmatch(rid):
        raise ValueError(f"rid {rid!r} is not usable as a folder name: letters, digits, '.', '_' and '-', at most 180")
    return FOLDER_PREFIX + rid


def default_boundaries(num_layers: int) -> tuple[int, ...]:
    """SGLang's own default, ``2, N//2, N-3`` (``set_eagle3_layers_to_capture(None)``, 0.5.4 to 0.5.23), sorted and unique.

    Raises:
        ValueError: fewer than 6 layers, where the three would not be three distinct inner boundaries.
    """
    chosen = tuple(sorted({2, num_layers // 2, num_layers - 3}))
    if len(chosen) != 3 or chosen[0] < 1 or chosen[-1] >= num_layers:
        raise ValueError(f"{num_layers} layers are too few for the default boundaries 2, N//2, N-3: name them yourself")
    return chosen


def parse_boundaries(text: str, num_layers: int | None = None) -> tuple[int, ...]:
    """Read ``"2,30,58"`` into a sorted tuple.

    Raises:
        ValueError: not integers, repeated, below 0, or above `num_layers` where that is given.
    """
    try:
        values = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"boundaries {text!r} are not a comma list of integers") from None
    if not values:
        raise ValueError("no boundary is named")
    if len(set(values)) != len(values):
        raise ValueError(f"boundaries {text!r} name one twice")
    if min(values) < 0 or (num_layers is not None and max(values) > num_layers):
        top = "" if num_layers is None else f" to {num_layers}"
        raise ValueError(f"boundaries {text!r} are outside 0{top}")
    return tuple(sorted(values))
