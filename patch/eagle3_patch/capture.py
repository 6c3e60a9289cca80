"""Take the rows of our requests out of each prefill, on the rank that writes."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from eagle3_patch import layout, markers
from eagle3_patch.assemble import Cut, Entry, Gap, cut
from eagle3_patch.config import Settings
from eagle3_patch.ledger import Ledger, Request
from eagle3_patch.pool import Pool
from eagle3_patch.room import Room
from eagle3_patch.taps import Taps
from eagle3_patch.writer import Finished, Piece, Writer

POOL_PATIENCE = 10.0
"""Seconds that a forward waits for the writers when the pool is used up, before it fails the request."""
_ID_BYTES = 8
BATCHES_IN_COPY = 2
"""So many batches' rows may be packed on the GPU and on their way to the host; the forward of one more waits for the oldest.
With SGLang's own capture, which is alive while the forward is, that is all the GPU memory that the patch takes."""


@dataclasses.dataclass
class _Batch:
    """A prefill batch with requests of ours, from the scheduler until the logits processor."""

    entries: list[Entry]
    requests: list[Any]
    ours: list[bool]
    collected: bool = False


@dataclasses.dataclass(frozen=True)
class _Copy:
    """Tensors on the GPU that must live until a copy of them has ended."""

    ready: Any
    states: torch.Tensor
    token_ids: torch.Tensor


def _slabs(pinned: bool, size: int, slab: int) -> Sequence[torch.Tensor]:
    """A segment of `size` bytes, page-locked where the rows come from a GPU, cut into uint8 ``[slab]``."""
    segment: Sequence[torch.Tensor] = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).split(slab)
    return segment


def _fill(
    slabs: Sequence[torch.Tensor], states: torch.Tensor, token_ids: torch.Tensor, fit: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Copy `fit` rows into each slab, the ids in front; returns the rows' and the ids' views of the slabs."""
    filled_states, filled_ids = [], []
    for slab, rows, ids in zip(slabs, states.split(fit), token_ids.split(fit), strict=True):
        head, size = len(ids) * _ID_BYTES, rows.numel() * rows.element_size()
        into_ids = slab[:head].view(torch.int64)
        into_rows = slab[head : head + size].view(rows.dtype).view(rows.shape)
        into_ids.copy_(ids, non_blocking=True)
        into_rows.copy_(rows, non_blocking=True)
        filled_ids.append(into_ids)
        filled_states.append(into_rows)
    return filled_states, filled_ids


def _entries(batch: Any, requests: list[Any]) -> list[Entry]:
    """The batch's numbers, copied: the scheduler edits its lists in place."""
    return [
        Entry(request.rid, len(request.origin_input_ids), int(prefix), int(extend))
        for request, prefix, extend in zip(requests, list(batch.prefix_lens), list(batch.extend_lens), strict=True)
    ]


class Capture:
    """Everything that the writing rank knows. Used from the scheduler's thread alone."""

    def __init__(self, settings: Settings, taps: Taps, facts: dict[str, Any], device: torch.device) -> None:
        self._settings = settings
        self._taps = taps
        self._facts = facts
        self._pool = Pool(settings.pinned_budget, functools.partial(_slabs, device.type != "cpu"))
        self._writer = Writer(settings.dump_dir, self._pool, Room(settings.dump_budget))
        self._local = threading.local()
        self._ledger: Ledger[Piece] = Ledger()
        self._copy_stream: Any = None
        self._in_copy: deque[list[_Copy]] = deque()
        """Of each batch what may still be on its way to the host."""

    def begin(self, batch: Any, scheduler: Any) -> bool:
        """Note the requests of a prefill batch, before its forward; returns whether its states are wanted.

        Never raises: a failure marks the requests.
        """
        requests = list(batch.reqs)
        # a finished one is aborted, and its last chunk was on the way already
        ours = [self._is_ours(request.rid) and not request.finished() for request in requests]
        try:
            if len(self._ledger):
                held = (*requests, *scheduler.waiting_queue, scheduler.chunked_req)
                self._release(self._ledger.forget_lost(held))
            if any(ours):
                self._local.batch = _Batch(_entries(batch, requests), requests, ours)
        except Exception as error:
            for request in itertools.compress(requests, ours):
                self._fail(request.rid, request, f"its batch was not understood ({type(error).__name__}: {error})")
        return self._batch() is not None

    def end(self) -> None:
        """The batch's forward is over; requests whose rows never came by are marked."""
        batch = self._batch()
        self._local.batch = None
        if batch is not None and not batch.collected:
            self._fail_all(batch, "their forward did not reach the logits processor")

    def collect(self, given_ids: Any, hidden: torch.Tensor, aux: Any, forward_batch: Any) -> None:
        """Take the rows where the logits processor receives them. Never raises: a failure marks the requests."""
        batch = self._batch()
        if batch is None or batch.collected:
            return
        batch.collected = True
        try:
            ids = forward_batch.input_ids if given_ids is None else given_ids  # Kimi-K2.5's wrapper passes None on
            columns = self._taps.columns(hidden, aux)
            rows = sum(entry.extend for entry in batch.entries)
            short = [tuple(column.shape) for column in columns if column.shape[0] < rows]
            if short or ids.shape[0] < rows:
                raise RuntimeError(f"{rows} rows were computed and {short or tuple(ids.shape)} came by")
            self._wait_for_copies()
            for piece in cut(batch.entries, batch.ours):
                self._take(batch, piece, columns, ids)
        except Exception as error:
            self._fail_all(batch, f"the capture failed ({type(error).__name__}: {error})")

    def _is_ours(self, rid: Any) -> bool:
        if not isinstance(rid, str) or not rid.startswith(self._settings.rid_prefix):
            return False
        try:
            layout.folder_name(rid)
        except ValueError as error:
            markers.warn(f"request not dumped: {error}")
            return False
        return True

    def _batch(self) -> _Batch | None:
        batch: _Batch | None = getattr(self._local, "batch", None)
        return batch

    def _take(self, batch: _Batch, piece: Cut, columns: Sequence[torch.Tensor], ids: torch.Tensor) -> None:
        rid, owner = batch.entries[piece.index].rid, batch.requests[piece.index]
        if self._ledger.has_ended(rid, owner):
            return
        request = self._ledger.find(rid, owner)
        if request is None:
            self._release(self._ledger.drop(rid))  # an earlier request under the same rid that never ended
            request = self._ledger.open(rid, owner)
        try:
            skip, rows = request.assembly.fresh(piece.position, piece.rows)
        except Gap as gap:
            self._fail(rid, owner, f"{gap} (prefix cache hit; start the server with --disable-radix-cache)")
            return
        if rows < 1:
            return
        first = piece.first + skip
        row = len(columns) * self._taps.hidden_size * columns[0].element_size() + _ID_BYTES
        fit = self._pool.slab_bytes // row
        slabs = self._pool.take(-(-rows // fit), POOL_PATIENCE) if fit else None
        if slabs is None:
            limit = f"{self._settings.pinned_budget} ({layout.ENV_PINNED_BUDGET})"
            self._fail(rid, owner, f"no memory for {rows * row} more bytes of rows within {limit}")
            return
        try:
            packed = torch.stack([column[first : first + rows] for column in columns], dim=1)
            taken_ids = ids[first : first + rows].to(torch.int64, copy=True)
            taken = self._to_host(packed, taken_ids, slabs, fit)
        except BaseException:  # no memory on the GPU: the slabs are in no piece yet
            self._pool.drop(slabs)
            raise
        request.assembly.add(taken, rows)
        if request.assembly.complete:
            self._finish(request, packed)

    def _to_host(self, states: torch.Tensor, token_ids: torch.Tensor, slabs: list[torch.Tensor], fit: int) -> Piece:
        """Copy into the slabs, `fit` rows each, on a stream of our own; the forward goes on, a writer waits for the event."""
        if states.device.type == "cpu":
            return Piece(slabs, *_fill(slabs, states, token_ids, fit), None)
        device = torch.get_device_module(states.device)
        if self._copy_stream is None:
            self._copy_stream = device.Stream()
        self._copy_stream.wait_stream(device.current_stream())
        with device.stream(self._copy_stream):
            filled = _fill(slabs, states, token_ids, fit)
            ready = device.Event()
            ready.record(self._copy_stream)
        self._in_copy[-1].append(_Copy(ready, states, token_ids))
        return Piece(slabs, *filled, ready)

    def _wait_for_copies(self) -> None:
        """A new batch begins: let go of what has arrived, and wait where too many batches are on their way."""
        while self._in_copy and (
            len(self._in_copy) >= BATCHES_IN_COPY or all(c.ready.query() for c in self._in_copy[0])
        ):
            for copy in self._in_copy.popleft():
                copy.ready.synchronize()
        self._in_copy.append([])

    def _release(self, pieces: Sequence[Piece]) -> None:
        self._pool.drop(slab for piece in pieces for slab in piece.slabs)

    def _finish(self, request: Request[Piece], packed: torch.Tensor) -> None:
        total = request.assembly.total
        meta = {
            "rid": request.rid,
            "tokens": total,
            **self._facts,
            "dtype": str(packed.dtype).removeprefix("torch."),
            "shape": [total, *packed.shape[1:]],
            "cached_tokens": 0,
            "chunks": list(request.assembly.sizes),
        }
        pieces = self._ledger.end(request.rid, request.owner)
        self._writer.finish(Finished(meta, pieces, request.prompt, request.began))

    def _fail(self, rid: str, owner: Any, reason: str) -> None:
        if not self._ledger.has_ended(rid, owner):
            self._release(self._ledger.end(rid, weakref.ref(owner)))
            self._writer.fail(rid, reason)

    def _fail_all(self, batch: _Batch, reason: str) -> None:
        for entry, request, ours in zip(batch.entries, batch.requests, batch.ours, strict=True):
            if ours and entry.prefix < entry.prompt:
                self._fail(entry.rid, request, reason)
