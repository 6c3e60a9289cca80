"""From a dump folder to a stored file: wait, copy, name.

A file below ``hidden_states/`` has its final name only when it is complete and on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from eagle3_patch import layout
from eagle3_remote.extract.checks import Checked, unreadable
from eagle3_remote.extract.errors import SampleFailure
from eagle3_remote.extract.scan import Read, SourceLost, read_once
from eagle3_remote.extract.statesfile import Header, read_header

TMP_PREFIX = ".tmp-"
ASK_SERVER = 5.0
"""Seconds without a dump after which the server is looked at again."""
_TOO_MUCH_AT_ONCE = ("No space left", "ENOSPC", "are not taken away", "no memory for")
"""In the patch's reasons: the file system, its own budget of dumps, its pinned memory (``eagle3_patch`` writer.py, capture.py)."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
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


def waited_for(error: OSError, dataset: str, so: str = "") -> str | None:
    """The sentence for what passes by itself: no space, or a journal that another program holds. `None`: it does not pass.

    Args:
        so: what that means for now, after a comma.
    """
    if is_full(error):
        return f"Paused: {dataset} is full{so}. It goes on by itself when there is space."
    if error.errno == errno.EBUSY:
        return (
            f"Paused: another program holds the journal of {dataset}{so}. It goes on by itself when that lets go of it."
        )
    return None


async def wait_for_dump(folder: str, timeout: float, check_server: Callable[[], Awaitable[None]]) -> None:
    """Return when the dump is complete.

    Args:
        check_server: asked every `ASK_SERVER` seconds; raises where the server that should write it is gone.

    Raises:
        SampleFailure: the patch left an error mark, or nothing came within `timeout` seconds.
    """
    now = time.monotonic()
    end, ask, pause = now + timeout, now + ASK_SERVER, 0.002
    while not _is_done(folder):
        now = time.monotonic()
        if now > end:
            await check_server()
            raise SampleFailure("dump-missing", f"no dump in {folder} within {timeout:.0f} s of the answer")
        if now > ask:
            await check_server()
            ask = time.monotonic() + ASK_SERVER
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)


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
    if any(sign in reason for sign in _TOO_MUCH_AT_ONCE) or "quota exceeded" in reason.lower():
        return SampleFailure("dump-full", reason)
    if "cached" in reason or "prefix cache" in reason:
        return SampleFailure("cached-tokens", reason)
    return SampleFailure("dump-error", reason)


@dataclasses.dataclass(frozen=True)
class Staged:
    """A checked file that lies on the output's file system and has not its final name yet."""

    path: str
    row: int
    copied: Copied
    checked: Checked | None


class Check(Protocol):
    """What looks at a dump while it is copied; raises `SampleFailure`."""

    def open(self, folder: str, header: Header) -> None:
        """Before the rows."""

    def rows(self, first: int, piece: memoryview) -> None:
        """A piece of the rows."""

    def close(self, ids: bytes) -> Checked:
        """After them."""


def stage(folder: str, states_dir: str, row: int, check: Check | None, *, rename: bool = False) -> Staged:
    """Check a dump's states and copy them beside their final place under a hidden name; with `rename` they stay where they are.

    One pass over the bytes. Making them durable and naming them is `sync_file` and `name`.

    Raises:
        SampleFailure: the first thing that is wrong with the dump; nothing is left of a copy.
        OSError: the output cannot be written; nothing is left of a copy.
    """
    source = os.path.join(folder, layout.STATES_FILE)
    try:
        fd = os.open(source, os.O_RDONLY)
    except OSError as error:
        raise unreadable(folder, error) from None
    try:
        try:
            header = read_header(source)
        except (OSError, ValueError) as error:
            raise unreadable(folder, error) from None
        if check is not None:
            check.open(folder, header)
        path = source if rename else os.path.join(states_dir, f"{TMP_PREFIX}{row}")
        try:
            if rename:
                read = read_once(fd, header, None, None if check is None else check.rows)
            else:
                read = _copy(fd, header, path, check)
        except SourceLost as error:
            raise unreadable(folder, error) from None
        try:
            checked = None if check is None else check.close(read.ids)
        except SampleFailure:
            if path != source:
                _remove_quietly(path)
            raise
    finally:
        os.close(fd)
    return Staged(path, row, Copied(read.size, read.crc32), checked)


def can_rename(dump_dir: str, states_dir: str) -> bool:
    """Whether a dump becomes a stored file by a rename alone. Tried, because two mounts of one file system look like one."""
    mark = f"{TMP_PREFIX}rename-{os.getpid()}"
    source, target = os.path.join(dump_dir, mark), os.path.join(states_dir, mark)
    try:
        os.close(os.open(source, os.O_CREAT | os.O_WRONLY, 0o644))
        os.rename(source, target)
    except OSError:
        _remove_quietly(source)
        return False
    _remove_quietly(target)
    return True


def _copy(source: int, header: Header, tmp: str, check: Check | None) -> Read:
    try:
        target = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            return read_once(source, header, target, None if check is None else check.rows)
        finally:
            os.close(target)
    except BaseException:
        _remove_quietly(tmp)
        raise


def sync_file(path: str) -> None:
    """Make a file's bytes durable.

    Raises:
        OSError: they may not be on disk; the file must be written again.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def name(staged: Staged, states_dir: str) -> None:
    """Give a durable file its final name."""
    os.rename(staged.path, os.path.join(states_dir, file_name(staged.row)))


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


def sweep(dump_dir: str, runs: list[str], keep: set[str], names: list[str] | None = None) -> int:
    """Delete dump folders of this dataset's own runs, except the rids in `keep`; returns how many.

    Folders of other clients, of probes and of other datasets are not touched. `names`: listed before `keep` was known.
    """
    prefixes = tuple(f"{layout.FOLDER_PREFIX}{layout.RID_PREFIX}{run}-" for run in runs)
    kept = {layout.folder_name(rid) for rid in keep}
    removed = 0
    for name in listed(dump_dir) if names is None else names:
        if prefixes and name.startswith(prefixes) and name not in kept:
            remove_dumps([os.path.join(dump_dir, name)])
            removed += 1
    return removed


def listed(dump_dir: str) -> list[str]:
    """The names in a dump directory; none where it is gone or cannot be looked into."""
    try:
        return os.listdir(dump_dir)
    except OSError:
        return []


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
