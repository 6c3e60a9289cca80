"""Which requests are being put together, and which have ended. Pure; any payload."""

from __future__ import annotations

import array
import dataclasses
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from eagle3_patch.assemble import Assembly

T = TypeVar("T")

REMEMBERED = 8192
"""Ended requests that are remembered, so that one prefilled again after a retraction is not written again."""


@dataclasses.dataclass
class Request(Generic[T]):
    """A request of ours that was seen in a batch."""

    rid: str
    owner: weakref.ref[Any]
    """SGLang's own Req object: a later one under the same rid is another request, a dead one is in no batch any more."""
    prompt: array.array[int]
    assembly: Assembly[T]
    began: float = dataclasses.field(default_factory=time.monotonic)


class Ledger(Generic[T]):
    """Requests by rid. An *owner* is SGLang's Req object: it has ``origin_input_ids`` and ``finished()``."""

    def __init__(self) -> None:
        self._open: dict[str, Request[T]] = {}
        self._ended: OrderedDict[str, weakref.ref[Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def has_ended(self, rid: str, owner: Any) -> bool:
        """Whether this very request was completed or failed before."""
        seen = self._ended.get(rid)
        return seen is not None and seen() is owner

    def find(self, rid: str, owner: Any) -> Request[T] | None:
        """The open request, if it is this owner's."""
        request = self._open.get(rid)
        return request if request is not None and request.owner() is owner else None

    def open(self, rid: str, owner: Any) -> Request[T]:
        """Begin a request; nothing may be open under its rid."""
        if rid in self._open:
            raise ValueError(f"{rid} is open")
        prompt = array.array("q", owner.origin_input_ids)
        request = Request[T](rid, weakref.ref(owner), prompt, Assembly[T](len(prompt)))
        self._open[rid] = request
        return request

    def drop(self, rid: str) -> list[T]:
        """Forget an open request; returns its pieces."""
        request = self._open.pop(rid, None)
        return [] if request is None else request.assembly.pieces

    def end(self, rid: str, owner: weakref.ref[Any]) -> list[T]:
        """A request was completed or failed; returns its pieces."""
        pieces = self.drop(rid)
        self._ended[rid] = owner
        self._ended.move_to_end(rid)
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        return pieces

    def forget_lost(self, held: Iterable[Any]) -> list[T]:
        """Drop requests that ended in the middle: finished (aborted), or none of the `held` by the scheduler any more.

        Returns:
            Their pieces.
        """
        if not self._open:
            return []
        alive = {id(owner) for owner in held}
        lost = []
        for rid, request in self._open.items():
            owner = request.owner()
            if owner is None or owner.finished() or id(owner) not in alive:
                lost.append(rid)
        return [piece for rid in lost for piece in self.drop(rid)]
