"""Who uses a folder now: a lock, a job of ours, or any process that has something inside open. What cannot be seen is not claimed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.array.status import AT_WORK, SILENT_AFTER
from eagle3_remote.box import identity
from eagle3_remote.disk.kinds import EXPORTED, OURS
from eagle3_remote.files import read_json
from eagle3_remote.job import jobs
from eagle3_remote.protocol import JobState, TaskStatus, decode

_DUMP_VARIABLES = tuple(f"{name}=".encode() for name in (layout.ENV_DUMP_DIR, layout.ENV_DUMP_DIR_OLD))


class Holders:
    """One look at jobs and processes; asked about many folders.

    Args:
        home: the box folder, whose jobs count.
        but: a job that does not count (the one that asks).
    """

    def __init__(self, home: Path, but: str = "") -> None:
        self._jobs = list(_job_paths(home, but))
        self._processes = list(_process_paths(but))

    def of(self, path: str) -> str:
        """Who uses `path` (absolute, without links), in words; empty: nobody that can be seen."""
        for used, who in self._jobs:
            if _inside(used, path) or _inside(path, used):
                return who
        for hidden in (OURS, EXPORTED):
            locked = _lock_holder(os.path.join(path, hidden, "lock"))
            if locked:
                return locked
        for used, who in self._processes:
            if _inside(used, path):
                return who
        return _task_of(Path(path))


def _task_of(shard: Path) -> str:
    """The task of a Slurm array that works in `shard`, on whatever node: by its own last word, which lies beside the shards."""
    folder, index = ArrayFolder(shard.parent.parent), shard.name.partition("-of-")[0]
    if shard.parent != folder.shards or not index.isdigit():
        return ""
    try:
        said = decode(TaskStatus, read_json(folder.said(int(index))))
    except ValueError:
        return ""
    fresh = said.heard_at is not None and abs(time.time() - said.heard_at) < SILENT_AFTER
    return f"task {said.index} of an array works in it on {said.node}" if said.state in AT_WORK and fresh else ""


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _lock_holder(lock: str) -> str:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        who = read_json(Path(lock)) or {}
        return f"it is being written by process {who.get('pid', '?')} on {who.get('host', '?')}"
    except OSError:
        return ""  # a file system without locks
    finally:
        os.close(descriptor)
    return ""


def _job_paths(home: Path, but: str) -> Iterator[tuple[str, str]]:
    for job in jobs.everything(home):
        if job.id == but or jobs.state_of(job) not in (JobState.RUNNING, JobState.STARTING):
            continue
        message = job.spec["message"]
        verb = {"server": "dumps into it", "extract": "writes it", "reclaim": "removes it"}.get(job.kind, "works on it")
        named = ("out", "dump_dir", "path", "dataset", "to")
        used = [*map(message.get, named), job.spec.get("dump_dir")]
        for path in [*used, *message.get("shards", ())]:
            if isinstance(path, str) and path:
                yield os.path.realpath(path), f"job {job.id} {verb}"


def _process_paths(but: str) -> Iterator[tuple[str, str]]:
    for stat in identity.living():
        if stat.pid == os.getpid() or (but and identity.carries_job(stat.pid, but)):
            continue
        paths = {*_open_files(stat.pid), *_mapped_files(stat.pid)}
        for path in paths:
            yield path, f"process {stat.pid} ({stat.name}) has files of it open"
        for path in _dump_dirs(stat.pid):
            yield path, f"process {stat.pid} ({stat.name}) is set to dump into it"


def _open_files(pid: int) -> Iterable[str]:
    found = []
    with contextlib.suppress(OSError):
        found = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    for link in [f"/proc/{pid}/cwd", *found]:
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            if target.startswith("/"):
                yield target.removesuffix(" (deleted)")


def _mapped_files(pid: int) -> Iterable[str]:
    """Files that are mapped may have no descriptor any more (``torch.load(mmap=True)``)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            path = line[line.find(b"/") :].rstrip(b"\n") if b"/" in line else b""
            if path:
                yield os.fsdecode(path).removesuffix(" (deleted)")


def _dump_dirs(pid: int) -> Iterable[str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for word in file.read().split(b"\0"):
            name = next((one for one in _DUMP_VARIABLES if word.startswith(one)), None)
            if name is not None and len(word) > len(name):
                yield os.path.realpath(os.fsdecode(word[len(name) :]))
