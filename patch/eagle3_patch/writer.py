"""The threads that write finished requests, so that the forward pass never waits for a file."""

from __future__ import annotations

import dataclasses
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch

from eagle3_patch import files, layout, markers
from eagle3_patch.pool import Pool
from eagle3_patch.room import Room

THREADS = 4
ROOM_PATIENCE = 60.0
"""Seconds that a writer waits for dumps to be taken away when the budget of the dump directory is used up."""
SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another wants it. The scheduler's thread never sleeps: at Python's own
5 ms a writer waits that long after each of its dozen system calls, and 2 threads came to 0.4 GB/s (H200, SGLang 0.5.17)."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows of one request out of one forward, in slabs of the pool or on their way there."""

    slabs: Sequence[torch.Tensor]
    states: Sequence[torch.Tensor]
    """One a slab: ``[rows, len(boundaries) + 1, hidden]``, contiguous."""
    token_ids: Sequence[torch.Tensor]
    """One a slab: int64 ``[rows]``, what the model was given, not what the request asked for."""
    ready: Any
    """A device event that says that the copy has ended; `None` for rows that were on the CPU."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """A request with all its rows."""

    meta: dict[str, Any]
    pieces: Sequence[Piece]
    prompt: Sequence[int]
    """The request's own ids, to hold against those that the model was given."""
    began: float
    """`time.monotonic` of its first prefill."""

    @property
    def slabs(self) -> list[torch.Tensor]:
        """All that it takes of the pool."""
        return [slab for piece in self.pieces for slab in piece.slabs]


@dataclasses.dataclass(frozen=True)
class Failed:
    """A request that has no rows, and why."""

    rid: str
    reason: str


class Writer:
    """Writes requests in the background; an error there marks the request and goes no further."""

    def __init__(self, dump_dir: str, pool: Pool[torch.Tensor], room: Room) -> None:
        self._dump_dir = dump_dir
        self._pool = pool
        self._room = room
        self._jobs: queue.SimpleQueue[Finished | Failed] = queue.SimpleQueue()
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        for number in range(THREADS):
            threading.Thread(target=self._work, name=f"eagle3-writer-{number}", daemon=True).start()

    def finish(self, job: Finished) -> None:
        """Hand over a complete request; its slabs are given back when it is written."""
        self._pool.move(len(job.slabs))
        self._jobs.put(job)

    def fail(self, rid: str, reason: str) -> None:
        """Mark a request as failed."""
        self._jobs.put(Failed(rid, reason))

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, Failed):
                self._mark(job.rid, job.reason)
                continue
            try:
                self._write(job)
            except Exception as error:  # a full disk, a removed folder: this request's failure, never the server's
                self._mark(job.meta["rid"], f"it could not be written to {self._dump_dir}: {error}")
            finally:
                self._pool.written(job.slabs)
            del job

    def _write(self, job: Finished) -> None:
        for piece in job.pieces:
            if piece.ready is not None:
                piece.ready.synchronize()
        seconds = round(time.monotonic() - job.began, 6)
        states = [part for piece in job.pieces for part in piece.states]
        token_ids = [part for piece in job.pieces for part in piece.token_ids]
        given = torch.cat(token_ids)
        if not torch.equal(given, torch.tensor(job.prompt, dtype=torch.int64)):
            self._mark(job.meta["rid"], "the rows belong to other token ids than the request's")
            return
        folder = os.path.join(self._dump_dir, layout.folder_name(job.meta["rid"]))
        if not self._room.take(folder, files.size_of(states) + files.size_of(token_ids), ROOM_PATIENCE):
            raise OSError(
                f"{self._room.limit} bytes of dumps lie there ({layout.ENV_DUMP_BUDGET}) and are not taken away"
            )
        try:
            files.write_request(self._dump_dir, job.meta | {"seconds": seconds}, states, token_ids)
        except BaseException:
            self._room.give(folder)
            raise
        self._room.lies(folder)

    def _mark(self, rid: str, reason: str) -> None:
        markers.warn(f"request {rid} is not dumped: {reason}")
        try:
            files.write_error(self._dump_dir, rid, reason)
        except Exception as error:  # the same full disk; a thread that ends would hold up all that come after
            markers.warn(f"request {rid} cannot even be marked: {error}")
