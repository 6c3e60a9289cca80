"""The file systems of the box that could take data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from eagle3_remote.box.patience import NoAnswer, within
from eagle3_remote.protocol import Disk

LEAST = 8 * 10**9
"""A smaller one is no place for hidden states."""
_MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"))
_NEVER = re.compile(r"/(proc|sys|dev|run|boot|snap|etc)(/|$)|/var/lib/(docker|containerd|kubelet)(/|$)")
_OCTAL = re.compile(r"\\([0-7]{3})")


def disks(seconds: float, most: int = 8) -> tuple[Disk, ...]:
    """The writable ones of at least `LEAST` bytes, most free first; one that does not answer is left out."""
    seen: dict[tuple[int, int], Disk] = {}
    for path, kind in _mounts():
        if kind in _MEMORY or _NEVER.match(path):
            continue
        try:
            key, disk = within(seconds, path, lambda path=path, kind=kind: _look(path, kind))  # type: ignore[misc]
        except (NoAnswer, OSError):
            continue
        if disk.total >= LEAST and disk.free and (key not in seen or len(path) < len(seen[key].path)):
            seen[key] = disk
    return tuple(sorted(seen.values(), key=lambda one: -one.free)[:most])


def _look(path: str, kind: str) -> tuple[tuple[int, int], Disk]:
    stat, room = os.stat(path), os.statvfs(path)
    if not os.path.isdir(path) or room.f_flag & os.ST_RDONLY:
        return (stat.st_dev, 0), Disk(path, kind, 0, 0)
    disk = Disk(path, kind, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)
    return (stat.st_dev, room.f_blocks), disk


def _mounts() -> Iterable[tuple[str, str]]:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except OSError:
        return [("/", "")]
    return [(_OCTAL.sub(lambda found: chr(int(found[1], 8)), line[1]), line[2]) for line in lines if len(line) > 2]


def driver() -> str:
    """Version of the NVIDIA kernel driver; empty: none is loaded."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            found = re.search(r"\b(\d{3,}\.\d+(\.\d+)?)\b", file.read())
    except OSError:
        return ""
    return found[1] if found else ""


def filesystem_of(path: str) -> str:
    """The type of the file system that holds `path`, by the longest mount point above it; "" where /proc does not say."""
    real, best, found = os.path.realpath(path), "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    for point, kind in mounts:
        point = point.replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, kind
    return found
