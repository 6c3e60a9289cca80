"""What is left of a server once its processes are gone: port, GPU memory, shared memory, dump directory. Each is looked
at, ours is removed, and what stays is named with its owner."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Collection
from pathlib import Path

from eagle3_remote.box import doctor, gpus, shm
from eagle3_remote.job import jobs
from eagle3_remote.protocol import PortFact, StopReport, decode
from eagle3_remote.server import dumpdir, ledger

GPU_WAIT = 20.0
"""Seconds for the driver to take back the memory of processes that were killed."""
LOOK_WAIT = 5.0
"""Seconds that the stop waits to hear who holds GPU memory."""


def shown_on_gpus(pids: Collection[int]) -> bool:
    """Whether the driver shows any of these processes as holding GPU memory; in many containers it shows none."""
    seen: list[str] = []
    look = threading.Thread(target=lambda: seen.extend(gpus.held_by(pids, gpus.cards() or ())), daemon=True)
    look.start()
    look.join(LOOK_WAIT)  # a driver that hangs must not keep the server from being stopped
    return bool(seen)


def after_stop(home: Path, job: jobs.Job, report: StopReport, pids: Collection[int], *, shown: bool) -> StopReport:
    """Add to the report of a job whose processes are gone what became of the rest. GPU memory that they still hold means
    that the job is not stopped.

    Args:
        pids: of the processes that were ended.
        shown: what `shown_on_gpus` said of them while they lived.
    """
    on_gpus = _gpus(pids, shown)
    found = [_port(job), on_gpus, _shm(job), (dumpdir.release(home, job), ())]
    return dataclasses.replace(
        report,
        stopped=report.stopped and not on_gpus[1],
        sentence=report.sentence + "".join(words for words, _ in found),
        leftovers=report.leftovers + tuple(one for _, left in found for one in left),
    )


def _port(job: jobs.Job) -> tuple[str, tuple[str, ...]]:
    port = decode(PortFact, doctor.port_fact(int(job.spec["message"]["port"])))
    if port.free:
        return f" Port {port.port} is free.", ()
    return f" Port {port.port} is held by {port.holder}, which is not of this job.", ()


def _gpus(pids: Collection[int], shown: bool) -> tuple[str, tuple[str, ...]]:
    deadline = time.monotonic() + GPU_WAIT
    while True:
        cards = gpus.cards()
        if cards is None:
            return "", ()
        held = gpus.held_by(pids, cards)
        if not held or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    if held:
        return f" GPU memory is not back: {'; '.join(held)}.", tuple(held)
    used = ", ".join(f"{card.index}: {card.used / gpus.GIB:.1f}" for card in cards)
    if not shown and any(_unseen(card) >= gpus.TAKEN for card in cards):
        return (
            f" Whether its GPU memory is back cannot be seen from here: who holds what is hidden (GiB in use by GPU: {used}).",
            (),
        )
    return f" Its GPU memory is back (GiB in use by GPU: {used}).", ()


def _unseen(card: gpus.Card) -> int:
    """Bytes of a GPU that no process which is seen from here holds."""
    return card.used - sum(app.used for app in card.apps if app.owner)


def _shm(job: jobs.Job) -> tuple[str, tuple[str, ...]]:
    done = shm.reclaim(ledger.segments(job))
    words = ""
    if done.removed:
        many = len(done.removed) > 1
        names = ", ".join(done.removed[:4]) + (" ..." if len(done.removed) > 4 else "")
        words = f" {len(done.removed)} shared-memory segment{'s' if many else ''} that it left {'were' if many else 'was'} removed ({names})."
    if done.left:
        words += f" Left in /dev/shm: {'; '.join(done.left)}."
    return words, done.left
