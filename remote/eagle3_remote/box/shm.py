"""Shared-memory segments of a job's processes in ``/dev/shm``: which they used, and which of those may be removed.

A segment is a job's when it was not there before the job and a process of the job had it mapped or open. Names alone
prove nothing (``psm_*`` and ``sem.*`` are everybody's), so they only bound what is removed. Killed servers leave some:
0.5.23 ``sglang_loads_*.shm`` (``managers/load_snapshot.py``), every Python its ``sem.mp-*``, NCCL its ``nccl-*``.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from eagle3_remote.box import identity

SHM = "/dev/shm"
KINDS = ("psm_", "sem.", "torch_", "nccl", "sgl", "cuda.shm.", "multi_tokenizer_args_", "mp-", "pym-")
"""How segments begin that nobody needs once their processes are gone."""


@dataclasses.dataclass(frozen=True, order=True)
class Segment:
    """One file in ``/dev/shm``: a name is used again, a name with its inode is not."""

    name: str
    inode: int


@dataclasses.dataclass(frozen=True)
class Reclaimed:
    """What became of a job's segments."""

    removed: tuple[str, ...] = ()
    bytes: int = 0
    left: tuple[str, ...] = ()
    """Those that stay, each with its reason."""


def present() -> set[Segment]:
    """The segments that are there now."""
    try:
        with os.scandir(SHM) as entries:
            return {Segment(one.name, one.inode()) for one in entries if one.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def used_by(pids: Iterable[int]) -> set[Segment]:
    """The segments that these processes have mapped or open. A semaphore is mapped under a name that is gone already,
    so the inode tells."""
    inodes = {inode for pid in pids for inode in _inodes(pid)}
    return {one for one in present() if one.inode in inodes}


def reclaim(ours: Iterable[Segment]) -> Reclaimed:
    """Remove the segments in `ours` that are still there, are this user's, of a known kind, and used by nobody.

    Args:
        ours: what a job's processes used and what was not there before it.
    """
    there = sorted(present() & set(ours))
    if not there:
        return Reclaimed()
    users: dict[int, list[int]] = {}
    for process in identity.living():
        for inode in _inodes(process.pid):
            users.setdefault(inode, []).append(process.pid)
    removed, freed, left = [], 0, []
    for one in there:
        path = os.path.join(SHM, one.name)
        try:
            seen = os.lstat(path)
            if one.inode in users:
                left.append(f"{path} is used by pid {', '.join(map(str, users[one.inode]))}")
            elif seen.st_uid != os.getuid():
                left.append(f"{path} belongs to user id {seen.st_uid}")
            elif not one.name.startswith(KINDS):
                left.append(f"{path} is of no known kind")
            elif seen.st_ino == one.inode and stat.S_ISREG(seen.st_mode):
                os.unlink(path)
                removed.append(one.name)
                freed += seen.st_blocks * 512
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append(f"{path} cannot be removed: {error.strerror}")
    return Reclaimed(tuple(removed), freed, tuple(left))


def _inodes(pid: int) -> Iterator[int]:
    """Inodes of files in `SHM` that a process has mapped or open; none where it may not be looked into."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                if b" /dev/shm/" in line:
                    yield int(line.split(None, 5)[4])
    except (OSError, ValueError):
        pass
    folder = Path(f"/proc/{pid}/fd")
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            if os.readlink(folder / name).startswith(f"{SHM}/"):
                yield os.stat(folder / name).st_ino
        except OSError:
            continue
