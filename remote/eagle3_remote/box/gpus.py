"""Who holds GPU memory, by nvidia-smi. On a box without it nothing is claimed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence

from eagle3_remote.box import doctor

TIMEOUT = 15.0
"""Seconds: without persistence mode nvidia-smi wakes the driver first."""
GIB = 1 << 30
TAKEN = GIB
"""Bytes that one process, or processes out of sight together, must hold for a GPU to count as taken."""


@dataclasses.dataclass(frozen=True)
class App:
    """One process that holds memory of one GPU."""

    gpu: int
    pid: int
    name: str
    used: int
    """Bytes; 0 where the driver does not tell."""
    job: str = ""
    """The job of ours that it belongs to, by its environment."""
    owner: str = ""
    """Its user; empty: it is in another container, and only the driver sees it."""

    @property
    def words(self) -> str:
        """Who it is and what it holds."""
        whose = f"user {self.owner}, " if self.owner else "not of this container, "
        ours = f", of our job {self.job}" if self.job else ""
        held = f"{self.used / GIB:.1f} GiB by " if self.used else ""
        return f"{held}pid {self.pid} ({whose}{self.name}{ours})"


@dataclasses.dataclass(frozen=True)
class Card:
    """One GPU and who is on it."""

    index: int
    uuid: str
    used: int
    total: int
    apps: tuple[App, ...] = ()


def cards() -> tuple[Card, ...] | None:
    """Every GPU with its processes; `None` where nvidia-smi is missing, fails or hangs."""
    rows = _ask("--query-gpu=index,uuid,memory.used,memory.total")
    apps = _ask("--query-compute-apps=gpu_uuid,pid,used_memory,process_name")
    if rows is None or apps is None:
        return None
    found = []
    for row in rows:
        if len(row) != 4 or not row[0].isdigit():
            continue
        index, uuid = int(row[0]), row[1]
        here = tuple(_app(index, app) for app in apps if len(app) >= 4 and app[0] == uuid and app[1].isdigit())
        found.append(Card(index, uuid, _mib(row[2]), _mib(row[3]), here))
    return tuple(found)


def visible(all_cards: Sequence[Card], env: Mapping[str, str]) -> list[Card]:
    """The GPUs in the order a process with this environment numbers them.

    ``CUDA_VISIBLE_DEVICES`` holds indexes or (beginnings of) uuids; CUDA stops reading at the first that is neither.
    """
    text = env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(all_cards)
    chosen: list[Card] = []
    for word in (part.strip() for part in text.split(",")):
        match = [
            card
            for card in all_cards
            if (word.isdigit() and card.index == int(word)) or (word.startswith("GPU-") and card.uuid.startswith(word))
        ]
        if len(match) != 1:
            break
        chosen += match
    return chosen


def taken(needed: Iterable[Card], ending: Collection[str] = ()) -> list[str]:
    """A sentence part for each GPU that somebody holds memory of; empty: all are free.

    Args:
        ending: ids of jobs whose memory does not count, because they will have ended.
    """
    found = []
    for card in needed:
        apps = [app for app in card.apps if app.used >= TAKEN and app.job not in ending]
        words = [app.words for app in apps]
        # A container may see the memory and not whose it is. The driver itself needs some hundred MiB.
        if card.used >= TAKEN and not any(app.used for app in card.apps):
            who = " and ".join(app.words for app in card.apps) or "processes that are not seen from here"
            if not card.apps or not all(app.job in ending for app in card.apps):
                words.append(f"{card.used / GIB:.1f} GiB by {who}")
        if words:
            found.append(f"GPU {card.index} ({card.total / GIB:.0f} GiB) holds {' and '.join(words)}")
    return found


def held_by(pids: Iterable[int], all_cards: Iterable[Card]) -> list[str]:
    """What processes of these numbers still hold, in words."""
    numbers = set(pids)
    return [f"GPU {card.index}: {app.words}" for card in all_cards for app in card.apps if app.pid in numbers]


def _app(index: int, row: Sequence[str]) -> App:
    pid = int(row[1])
    name = ",".join(row[3:]).strip()
    try:
        owner = doctor.user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return App(index, pid, name, _mib(row[2]))
    return App(index, pid, name, _mib(row[2]), doctor.job_of(pid), owner)


def _mib(text: str) -> int:
    return int(text) * 1024 * 1024 if text.strip().isdigit() else 0


def _ask(query: str) -> list[list[str]] | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [[word.strip() for word in line.split(",")] for line in lines if line.strip()]
