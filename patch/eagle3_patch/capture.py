"""Take the rows of our requests out of each prefill, on the rank that writes."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from eagle3_patch import layout, markers
from eagle3_patch.assemble import Cut, Entry, Gap, cut
from eagle3_patch.budget import Budget
from eagle3_patch.config import Settings
from eagle3_patch.ledger import Ledger, Request
from eagle3_patch.taps import Taps
from eagle3_patch.writer import Finished, Piece, Writer

BUDGET_PATIENCE = 10.0
"""Seconds that a forward waits for the writers when the budget is used up, before it fails the request."""


@dataclasses.dataclass
class _Batch:
    """A prefill batch with requests of ours, from the scheduler until the logits processor."""

    entries: list[Entry]
    requests: list[Any]
    ours: list[bool]
    collected: bool = False


def _entries(batch: Any, requests: list[Any]) -> list[Entry]:
    """The batch's numbers, copied: the scheduler edits its lists in place."""
    return [
        Entry(request.rid, len(request.origin_input_ids), int(prefix), int(extend))
        for request, prefix, extend in zip(requests, list(batch.prefix_lens), list(batch.extend_lens), strict=True)
    ]


class Capture:
    """Everything that the writing rank knows. Used from the scheduler's thread alone."""

    def __init__(self, settings: Settings, taps: Taps, facts: dict[str, Any]) -> None:
        self._settings = settings
        self._taps = taps
        self._facts = facts
        self._budget = Budget(settings.budget_bytes)
        self._writer = Writer(settings.dump_dir, self._budget)
        self._local = threading.local()
        self._ledger: Ledger[Piece] = Ledger()
        self._copy_stream: Any = None

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
                self._budget.drop(self._ledger.forget_lost(held))
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
            self._budget.drop(self._ledger.drop(rid))  # an earlier request under the same rid that never ended
            request = self._ledger.open(rid, owner)
        try:
            skip, rows = request.assembly.fresh(piece.position, piece.rows)
        except Gap as gap:
            self._fail(rid, owner, f"{gap} (prefix cache hit; start the server with --disable-radix-cache)")
            return
        if rows < 1:
            return
        first = piece.first + skip
        size = rows * (len(columns) * self._taps.hidden_size * columns[0].element_size() + 8)
        if not self._budget.take(size, BUDGET_PATIENCE):
            limit = self._budget.limit
            self._fail(rid, owner, f"no memory for {size} more bytes of rows within {limit} ({layout.ENV_BUDGET})")
            return
        request.size += size
        packed = torch.stack([column[first : first + rows] for column in columns], dim=1)
        request.assembly.add(self._to_cpu(packed, ids[first : first + rows].to(torch.int64, copy=True)), rows)
        if request.assembly.complete:
            self._finish(request, packed.dtype)

    def _to_cpu(self, states: torch.Tensor, token_ids: torch.Tensor) -> Piece:
        """Copy on a stream of our own; the forward goes on, a writer waits for the event."""
        if states.device.type == "cpu":
            return Piece(states, token_ids, None)
        device = torch.get_device_module(states.device)
        if self._copy_stream is None:
            self._copy_stream = device.Stream()
        self._copy_stream.wait_stream(device.current_stream())
        with device.stream(self._copy_stream):
            copies = []
            for tensor in (states, token_ids):
                copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
                copy.copy_(tensor, non_blocking=True)
                tensor.record_stream(self._copy_stream)
                copies.append(copy)
            ready = device.Event()
            ready.record(self._copy_stream)
        return Piece(copies[0], copies[1], ready)

    def _finish(self, request: Request[Piece], dtype: torch.dtype) -> None:
        meta = {
            "rid": request.rid,
            "tokens": request.assembly.total,
            **{name: self._facts[name] for name in ("boundaries", "final", "hidden_size", "num_layers")},
            "dtype": str(dtype).removeprefix("torch."),
            **{name: self._facts[name] for name in ("layout", "model_class", "sglang_version", "patch_version")},
            "chunks": list(request.assembly.sizes),
        }
        self._ledger.end(request.rid, request.owner)
        self._writer.finish(Finished(meta, request.assembly.pieces, request.prompt, request.size))

    def _fail(self, rid: str, owner: Any, reason: str) -> None:
        if not self._ledger.has_ended(rid, owner):
            self._budget.drop(self._ledger.end(rid, weakref.ref(owner)))
            self._writer.fail(rid, reason)

    def _fail_all(self, batch: _Batch, reason: str) -> None:
        for entry, request, ours in zip(batch.entries, batch.requests, batch.ours, strict=True):
            if ours and entry.prefix < entry.prompt:
                self._fail(entry.rid, request, reason)
