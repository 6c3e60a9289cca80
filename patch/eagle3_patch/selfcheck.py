"""Prove on this very server, before any row is written, that the rows are right on every tensor-parallel rank.

The check runs inside the first prefill that SGLang itself makes: its warm-up request, before the server says that it is
ready, or with ``--skip-server-warmup`` the first request of anybody, before its rows go anywhere. A prefill of our own
would have to be built from Req, ScheduleBatch and ForwardBatch, which every release builds in another way; this one is the
server's real path, with its real kernels, in one way for all releases.

It cannot deadlock: the ranks of one attention tensor-parallel group run the same batches in the same order (they share
every layer's all-reduce), so whether a batch is checked, and when, is decided from the batch alone and equally on all of
them; a rank that finds something wrong by itself still takes part in the exchange, and all of them refuse together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

FUSION_LIMIT = 2048
"""Tokens of a batch up to which SGLang fuses all-reduce and norm (FUSE_ALLREDUCE_MAX_BATCH_SIZE, 0.5.4 to 0.5.20); the
first batch on either side of it is checked."""
SAMPLE = 64
"""Rows of a batch that are exchanged, evenly spread."""
RANK_TOLERANCE = {torch.float32: 0.0}
RANK_TOLERANCE_OTHERS = 2.0**-7
"""Largest relative L2 difference of a row between ranks: none in float32, one unit in the last place of bfloat16. One
rank's partial sum differs by about 1."""
NORM_TOLERANCE = {torch.float32: 1e-4}
NORM_TOLERANCE_OTHERS = 0.02
"""Largest relative L2 difference of a row between norm(state before the norm) and the final state: kernels round the
stream to the model's dtype before or after the norm."""

Gather = Callable[[Any], list[Any]]
"""Give one object, get those of all ranks of the group, in their order."""


class Wrong(Exception):
    """The rows of this server are not what they should be."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What a passed check has found."""

    rows: int
    """Tokens of the batch."""
    ranks: int
    rank_difference: float
    """Largest relative L2 difference of a row between the first rank and any other."""
    norm_difference: float


@dataclasses.dataclass(frozen=True)
class _Share:
    """One rank's part of the exchange."""

    problem: str | None
    rows: torch.Tensor | None
    """``[states, sample, hidden]``, float32, on the CPU."""
    norm_difference: float = 0.0


def picked(rows: int) -> list[int]:
    """Which rows of a batch are looked at: all of a small one, the first and the last of any."""
    if rows <= SAMPLE:
        return list(range(rows))
    return [index * (rows - 1) // (SAMPLE - 1) for index in range(SAMPLE)]


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest relative L2 difference of any row; a row of zeros equals a row of zeros."""
    distance, size = (one - other).norm(dim=-1), other.norm(dim=-1)
    relative: float = torch.where(distance == 0, 0.0, distance / size).max().item()
    return relative


def check(
    states: Callable[[], tuple[Sequence[torch.Tensor], torch.Tensor, torch.Tensor]],
    norm: Callable[[torch.Tensor], torch.Tensor],
    names: Sequence[str],
    rows: int,
    gather: Gather,
) -> Report:
    """Check one batch. Every rank of the group must come here in the same batch, and every one leaves it the same way.

    Args:
        states: gives the captured states, the one before the final norm and the one after it, each ``[tokens, hidden]``.
        norm: the final norm, ``[n, hidden]`` to ``[n, hidden]``.
        names: what the captured states are called.

    Raises:
        Wrong: they are not right on some rank; the message says what and where.
    """
    try:
        share, dtype = _share(states, norm, names, rows)
    except Exception as error:
        share, dtype = _Share(f"{error}" or type(error).__name__, None), None
    shares: list[_Share] = gather(share)
    for rank, other in enumerate(shares):
        if other.problem is not None:
            where = f" on rank {rank} of {len(shares)}" if len(shares) > 1 else ""
            raise Wrong(f"{other.problem}{where}")
    worst = 0.0
    tolerance = RANK_TOLERANCE.get(dtype, RANK_TOLERANCE_OTHERS) if dtype is not None else 0.0
    first = shares[0].rows
    for rank, other in enumerate(shares[1:], 1):
        if first is None or other.rows is None or first.shape != other.rows.shape:
            raise Wrong(f"the ranks of one tensor-parallel group have different batches (rank {rank})")
        for name, ours, theirs in zip(names, first, other.rows, strict=True):
            found = difference(theirs, ours)
            worst = max(worst, found)
            if not found <= tolerance:
                raise Wrong(
                    f"the states of {name} differ between the tensor-parallel ranks 0 and {rank} by {found:.2g} of their "
                    f"size in a batch of {rows} tokens: most likely a layer leaves its all-reduce to the next one; start the "
                    "server without flashinfer's fused all-reduce"
                )
    return Report(rows, len(shares), worst, max(share.norm_difference for share in shares))


def _share(
    states: Callable[[], tuple[Sequence[torch.Tensor], torch.Tensor, torch.Tensor]],
    norm: Callable[[torch.Tensor], torch.Tensor],
    names: Sequence[str],
    rows: int,
) -> tuple[_Share, torch.dtype]:
    columns, before, after = states()
    if len(columns) != len(names):
        raise RuntimeError(f"{len(columns)} states were captured where {len(names)} were asked for")
    short = [tuple(state.shape) for state in (*columns, before, after) if state.shape[0] < rows]
    if short:
        raise RuntimeError(f"{rows} rows were computed and {short} came by")
    index = torch.tensor(picked(rows), device=columns[0].device)
    dtype = columns[0].dtype
    taken = torch.stack([state.index_select(0, index) for state in columns]).to("cpu", torch.float32)
    for name, state in zip(names, taken, strict=True):
        if not bool(torch.isfinite(state).all()):
            raise RuntimeError(f"the states of {name} are not finite")
    renormed = norm(before.index_select(0, index)).to("cpu", torch.float32)
    found = difference(renormed, after.index_select(0, index).to("cpu", torch.float32))
    if not found <= NORM_TOLERANCE.get(dtype, NORM_TOLERANCE_OTHERS):
        raise RuntimeError(
            f"the final norm of the state before it is not the state that the logits are made of ({found:.2g} off)"
        )
    return _Share(None, taken, found), dtype
