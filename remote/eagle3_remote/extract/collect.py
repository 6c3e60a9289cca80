"""From a dump folder to a stored file: wait, copy, name.

A file below ``hidden_states/`` has its final name only when it is complete and on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import mmap
import os
import re
import shutil
import time
import zlib

from eagle3_patch import layout
from eagle3_remote.extract.errors import SampleFailure

TMP_PREFIX = ".tmp-"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_PIECE = 8 * 1024 * 1024
_HS_NAME = re.compile(r"hs_(0|[1-9][0-9]*)\.safetensors")


@dataclasses.dataclass(frozen=True)
class Copied:
    """Size and CRC-32 of a file that was stored."""

    bytes: int
    crc32: int


def file_name(row: int) -> str:
    """The name of a row's states in ``hidden_states/``."""
    return f"hs_{row}.safetensors"


def row_of(name: str) -> int | None:
    """The row of a file name, or `None` for another name."""
    found = _HS_NAME.fullmatch(name)
    return int(found.group(1)) if found else None


def is_full(error: OSError) -> bool:
    """No space or no quota: worth waiting for."""
    return error.errno in _FULL


async def wait_for_dump(folder: str, timeout: float) -> None:
    """Return when the dump is complete.

    Raises:
        SampleFailure: the patch left an error mark, or nothing came within `timeout` seconds.
    """
    end, pause = time.monotonic() + timeout, 0.002
    while not _is_done(folder):
        if time.monotonic() > end:
            raise SampleFailure("dump-missing", f"no dump in {folder} within {timeout:.0f} s of the answer")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _is_done(folder: str) -> bool:
    if os.path.exists(os.path.join(folder, layout.DONE_FILE)):
        return True
    error = os.path.join(folder, layout.ERROR_FILE)
    if os.path.exists(error):
        raise _patch_failure(error)
    return False


def _patch_failure(path: str) -> SampleFailure:
    try:
        with open(path, encoding="utf-8") as file:
            reason = str(json.load(file).get("reason", ""))
    except (OSError, ValueError, AttributeError) as error:
        reason = f"{path} cannot be read: {error}"
    if "No space left" in reason or "ENOSPC" in reason or "quota exceeded" in reason.lower():
        return SampleFailure("dump-full", reason)
    if "cached" in reason:
        return SampleFailure("cached-tokens", reason)
    return SampleFailure("dump-error", reason)


def store(folder: str, states_dir: str, row: int) -> Copied:
    """Put a dump's states under their final name: a rename where both lie on one file system, else a copy.

    The name appears after the bytes are on disk; making the name itself durable is the caller's (`sync_dir`, for many at once).

    Raises:
        OSError: nothing is left under the final name; the temporary file is removed.
    """
    source = os.path.join(folder, layout.STATES_FILE)
    final = os.path.join(states_dir, file_name(row))
    with open(source, "rb") as file:
        if os.fstat(file.fileno()).st_dev == os.stat(states_dir).st_dev:
            copied = Copied(os.fstat(file.fileno()).st_size, _crc(file.fileno()))
            os.fsync(file.fileno())
            try:
                os.rename(source, final)
                return copied
            except OSError as error:
                if error.errno != errno.EXDEV:  # two mounts of one file system
                    raise
        tmp = os.path.join(states_dir, f"{TMP_PREFIX}{row}")
        try:
            copied = _copy(file.fileno(), tmp)
            os.rename(tmp, final)
        except BaseException:
            _remove_quietly(tmp)
            raise
    return copied


def _crc(fd: int) -> int:
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
        value = 0
        for at in range(0, len(data), _PIECE):
            with data[at : at + _PIECE] as piece:
                value = zlib.crc32(piece, value)
        return value


def _copy(source: int, tmp: str) -> Copied:
    target = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        with mmap.mmap(source, 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
            value, at = 0, 0
            while at < len(data):
                with data[at : at + _PIECE] as piece:
                    value = zlib.crc32(piece, value)
                end = min(at + _PIECE, len(data))
                while at < end:
                    sent = os.sendfile(target, source, at, end - at)
                    if sent == 0:
                        raise OSError(errno.EIO, f"the dump became shorter while it was copied to {tmp}")
                    at += sent
            size = len(data)
        os.fsync(target)
    finally:
        os.close(target)
    return Copied(size, value)


def sync_dir(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_dumps(folders: list[str]) -> None:
    """Delete folders of our own requests, whatever state they are in."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(dump_dir: str, runs: list[str], keep: set[str]) -> int:
    """Delete dump folders of this dataset's own runs, except the rids in `keep`; returns how many.

    Folders of other clients, of probes and of other datasets are not touched.
    """
    prefixes = tuple(f"{layout.FOLDER_PREFIX}{layout.RID_PREFIX}{run}-" for run in runs)
    kept = {layout.folder_name(rid) for rid in keep}
    removed = 0
    try:
        names = os.listdir(dump_dir)
    except FileNotFoundError:
        return 0
    for name in names:
        if prefixes and name.startswith(prefixes) and name not in kept:
            remove_dumps([os.path.join(dump_dir, name)])
            removed += 1
    return removed


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
