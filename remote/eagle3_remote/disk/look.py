"""Looking for what extractions left: a breadth-first walk that is bounded in depth and time and stays on its file systems."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sqlite3
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.disk import tree
from eagle3_remote.disk.holders import Holders
from eagle3_remote.disk.kinds import (
    DATASET,
    DUMPS,
    EXPORT,
    EXPORTED,
    EXPORTS,
    FOREIGN_DUMPS,
    KINDS,
    OURS,
    Kind,
    export_manifest,
    first_names,
    recognise,
)
from eagle3_remote.extract.statesfile import DTYPES, read_header
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs
from eagle3_remote.protocol import Found, Mount, SpaceQuery, SpaceReport, decode, encode
from eagle3_remote.rpc import Refused
from eagle3_remote.server.dumpdir import OWNER_FILE

SHOWN_FILE = "space.json"
"""In the box folder: what the last look showed. Only that can be removed."""
_NAMES = 2000
"""So many names of a folder decide what it is."""
_SYSTEM = re.compile(r"/(proc|sys|dev|boot|bin|sbin|lib\d*|usr|etc|run|snap|nix|var/lib|var/cache)")
_NEVER = frozenset((".git", "node_modules", "__pycache__", "site-packages", ".snapshot", "lost+found"))
_WALK_SHARE = 0.6
"""Of the time; the rest is for measuring what was found."""


@dataclasses.dataclass
class _Walk:
    found: list[tuple[str, Kind]] = dataclasses.field(default_factory=list)
    folders: int = 0
    not_reached: int = 0
    too_deep: int = 0


def look(home: Path, query: SpaceQuery) -> SpaceReport:
    """Find, measure and judge; what is shown is noted in the box folder.

    Raises:
        Refused: a path that was named is not a folder.
    """
    began = time.monotonic()
    roots = [_folder(path) for path in query.paths] or starting_points(home)
    deadline = began + query.seconds
    walk = _walk(roots, query.depth, began + query.seconds * _WALK_SHARE)
    holders = Holders(home)
    found = [one for path, kind in walk.found if (one := describe(path, kind, holders, deadline)) is not None]
    found.sort(key=lambda one: (-one.bytes, one.path))
    report = SpaceReport(
        found=tuple(found),
        mounts=_mounts(roots),
        looked_in=tuple(roots),
        folders=walk.folders,
        not_reached=walk.not_reached,
        too_deep=walk.too_deep,
        seconds=round(time.monotonic() - began, 2),
    )
    with contextlib.suppress(OSError):  # a full home: then nothing can be removed by name until there is room
        home.mkdir(mode=0o700, exist_ok=True)
        write_atomic(home / SHOWN_FILE, json.dumps([encode(one) for one in found]).encode())
    return report


def _folder(path: str) -> str:
    real = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(real):
        raise Refused(f"There is no directory {path} on this box to look into.")
    return real


def starting_points(home: Path) -> list[str]:
    """Outputs and dump directories of this box's jobs, the usual place of dumps, and then the whole file systems of the outputs."""
    outs: list[str] = []
    dumps = ["/dev/shm"]
    for job in jobs.everything(home):
        message = job.spec["message"]
        if job.kind == "extract" and message.get("out"):
            outs.append(os.path.dirname(os.path.realpath(str(message["out"]))))
        dumps.append(os.path.dirname(str(job.spec.get("dump_dir") or message.get("dump_dir") or "")))
    if not outs:
        outs.append(os.path.expanduser("~"))
    points = [*outs, *dumps, *(_mount_of(path) for path in outs)]
    return list(dict.fromkeys(os.path.realpath(path) for path in points if path and os.path.isdir(path)))


def _mount_of(path: str) -> str:
    while path != "/" and not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _walk(roots: list[str], depth: int, deadline: float) -> _Walk:
    walk, seen = _Walk(), set[tuple[int, int]]()
    queue = deque((root, 0) for root in roots)
    while queue:
        path, level = queue.popleft()
        if time.monotonic() > deadline:
            walk.not_reached = len(queue) + 1
            break
        try:
            at = os.lstat(path)
            key = (at.st_dev, at.st_ino)
            if key in seen:
                continue
            seen.add(key)
            files, folders = _names(path, at.st_dev)
        except OSError:
            continue
        walk.folders += 1
        kind = recognise(path, files, folders)
        if kind is not None:
            walk.found.append((path, kind))
            continue
        inner = [os.path.join(path, name) for name in folders if name not in _NEVER]
        inner = [one for one in inner if not _SYSTEM.fullmatch(one)]
        if level >= depth:
            walk.too_deep += len(inner)
        else:
            queue.extend((one, level + 1) for one in sorted(inner))
    return walk


def _names(path: str, device: int) -> tuple[list[str], list[str]]:
    """Some file names, and all folders of the same file system; links are neither."""
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            if not entry.is_dir(follow_symlinks=False):
                if len(files) < _NAMES:
                    files.append(entry.name)
            elif entry.stat(follow_symlinks=False).st_dev == device:
                folders.append(entry.name)
    return files, folders


def describe(path: str, kind: Kind, holders: Holders, deadline: float) -> Found | None:
    """One finding; `None` where it went away meanwhile."""
    try:
        at = os.lstat(path)
        with tree.opened(path, at.st_dev, at.st_ino) as (_, folder, _name):
            size = tree.measure(folder, kind.part, lambda: time.monotonic() > deadline)
    except (OSError, tree.Moved):
        return None
    found = Found(
        path=path,
        kind=kind.word,
        ours=kind.ours,
        bytes=size.bytes,
        files=size.files,
        exact=size.exact,
        device=at.st_dev,
        inode=at.st_ino,
        modified_at=_newest(path, at.st_mtime),
        shared_bytes=size.shared_bytes,
        strangers=size.strangers,
        owner=at.st_uid,
        holder=holders.of(path),
        note=kind.means,
    )
    if kind is DATASET:
        return dataclasses.replace(found, **_dataset_facts(path))
    if kind is EXPORT or kind in EXPORTS.values():
        return dataclasses.replace(found, **_export_facts(path, kind))
    if kind in (DUMPS, FOREIGN_DUMPS):
        job = (read_json(Path(path) / OWNER_FILE) or {}).get("job")
        requests = [name for name in first_names(path, 100_000) if name.startswith(layout.FOLDER_PREFIX)]
        note = f"{len(requests)} requests" + (f", of job {job}" if job else f", {kind.means}")
        return dataclasses.replace(found, samples=len(requests), note=note)
    return dataclasses.replace(found, **_states_facts(path, kind))


def _newest(path: str, mtime: float) -> float:
    for name in ("hidden_states", OURS, EXPORTED, f"{OURS}/journal.sqlite3", f"{OURS}/journal.sqlite3-wal"):
        with contextlib.suppress(OSError):
            mtime = max(mtime, os.lstat(os.path.join(path, name)).st_mtime)
    return mtime


def _dataset_facts(path: str) -> dict[str, Any]:
    """From the manifest, else from the journal as it lies there."""
    manifest = read_json(Path(path) / OURS / "manifest.json") or {}
    facts: dict[str, Any] = {"complete": bool(manifest.get("complete"))}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        facts |= {
            "model": str(manifest["model"]["path"]),
            "boundaries": tuple(int(one) for one in manifest["boundaries"]),
            "final": str(manifest["final"]),
            "samples": int(manifest["counts"]["stored"]),
        }
    if not facts["complete"]:
        facts |= _journal_facts(os.path.join(path, OURS, "journal.sqlite3"))
    return facts


def _journal_facts(journal: str) -> dict[str, Any]:
    # immutable: nothing is made beside it and no lock is waited for; somebody may be writing it, then the figures are about right
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(journal).as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            kept = db.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
            stored, total = db.execute("SELECT total(state = 'stored'), count(*) FROM samples").fetchone()
        said = json.loads(kept[0]) if kept else {}
        facts: dict[str, Any] = {"samples": int(stored), "note": f"{int(stored)} of {total} samples stored"}
        if said:
            facts |= {"boundaries": tuple(int(one) for one in said["boundaries"]), "final": str(said["final"])}
        return facts
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return {"note": "its journal cannot be read"}


def _export_facts(path: str, kind: Kind) -> dict[str, Any]:
    """From its manifest: of which dataset, and what it holds once it is complete."""
    manifest = export_manifest(path)
    facts: dict[str, Any] = {"complete": bool(manifest.get("complete")), "note": kind.means}
    with contextlib.suppress(KeyError, TypeError):
        facts["note"] = f"{kind.means}, of {manifest['source']['path']}"
    with contextlib.suppress(KeyError, TypeError):
        facts["final"] = str(manifest["request"]["final"])
    with contextlib.suppress(KeyError, TypeError, ValueError):
        facts |= {
            "samples": int(manifest["samples"]),
            "model": str(manifest["facts"]["model"]),
            "boundaries": tuple(int(one) for one in manifest["facts"]["boundaries"]),
        }
    return facts


def _states_facts(path: str, kind: Kind) -> dict[str, Any]:
    """The shape that the first safetensors file tells."""
    for folder in (path, os.path.join(path, "hidden_states")):
        for name in first_names(folder, 50):
            if not (name.startswith("hs_") and name.endswith(".safetensors")):
                continue
            with contextlib.suppress(OSError, ValueError):
                header = read_header(os.path.join(folder, name))
                _, layers, hidden = header.shape
                return {"note": f"{kind.means}, {layers} × {hidden} {DTYPES[header.dtype]} a token"}
    return {}


def _mounts(roots: Iterable[str]) -> tuple[Mount, ...]:
    mounts: dict[int, Mount] = {}
    for root in roots:
        with contextlib.suppress(OSError):
            device, seen = os.stat(root).st_dev, os.statvfs(root)
            inodes = seen.f_favail if seen.f_files else None
            free, total = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
            mounts.setdefault(device, Mount(_mount_of(root), root, total, free, inodes))
    return tuple(mounts.values())


def shown(home: Path, path: str) -> Found | None:
    """What the last look showed at `path`."""
    try:
        listed = json.loads((home / SHOWN_FILE).read_bytes())
        found = [decode(Found, one) for one in listed]
    except (OSError, ValueError, TypeError):
        return None
    return next((one for one in found if one.path == path), None)


def kind_of(path: str) -> Kind | None:
    """What lies at `path` now.

    Raises:
        OSError: it cannot be read.
    """
    return recognise(path, *_names(path, os.lstat(path).st_dev))


def kind_named(found: Found) -> Kind:
    """The kind that a finding names."""
    return next(kind for kind in KINDS if (kind.word, kind.ours) == (found.kind, found.ours))
