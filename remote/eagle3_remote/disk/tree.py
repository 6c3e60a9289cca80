"""Walking and emptying one folder by descriptors: never through a link, never into another file system.

Every step is relative to an open folder (``openat``), so that a name swapped for a link between two steps leads nowhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator

from eagle3_remote.disk.kinds import Part

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclasses.dataclass
class Measured:
    """What removing the recognised files gives back."""

    bytes: int = 0
    shared_bytes: int = 0
    files: int = 0
    strangers: int = 0
    exact: bool = True
    example: str = ""
    """One of the strangers."""


class Moved(Exception):
    """The folder is not the one that was shown."""


@contextlib.contextmanager
def opened(path: str, device: int, inode: int) -> Iterator[tuple[int, int, str]]:
    """(parent, folder, name) of an absolute path without links, as descriptors.

    Raises:
        Moved: a part of the path is a link now, or another folder lies there.
        OSError: it is gone, or may not be read.
    """
    *parents, name = path.strip("/").split("/")
    parent = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            try:
                inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            except NotADirectoryError:
                raise Moved(f"{part} in {path} is a link or a file") from None
            os.close(parent)
            parent = inner
        folder = _open_folder(parent, name)
        if folder is None:
            raise Moved(f"{path} is a link or a file")
        try:
            seen = os.fstat(folder)
            if (seen.st_dev, seen.st_ino) != (device, inode):
                raise Moved(f"another folder lies at {path} now")
            yield parent, folder, name
        finally:
            os.close(folder)
    finally:
        os.close(parent)


def measure(folder: int, part: Part, over: Callable[[], bool] = lambda: False) -> Measured:
    """Count what of a folder is recognised; stops early (not exact) once `over()`."""
    found = Measured()
    names: dict[tuple[int, int], list[int]] = {}
    _measure(folder, part, os.fstat(folder).st_dev, found, names, over)
    for links, here, size in names.values():
        if here < links:
            found.shared_bytes += size
        else:
            found.bytes += size
    return found


def _measure(
    folder: int,
    part: Part,
    device: int,
    found: Measured,
    names: dict[tuple[int, int], list[int]],
    over: Callable[[], bool],
) -> None:
    known = _known(folder, part)
    with os.scandir(folder) as entries:
        for entry in entries:
            if over():
                found.exact = False
                return
            if entry.is_dir(follow_symlinks=False):
                inner_part = part.folder(entry.name)
                inner = None if inner_part is None else _open_folder(folder, entry.name, device)
                if inner is None or inner_part is None:
                    _strange(found, entry.name)
                    continue
                try:
                    _measure(inner, inner_part, device, found, names, over)
                finally:
                    os.close(inner)
            elif known and _belongs(folder, entry.name, part):
                _count(found, names, entry.stat(follow_symlinks=False))
            else:
                _strange(found, entry.name)


def _count(found: Measured, names: dict[tuple[int, int], list[int]], seen: os.stat_result) -> None:
    found.files += 1
    size = seen.st_blocks * 512
    if seen.st_nlink > 1:
        names.setdefault((seen.st_dev, seen.st_ino), [seen.st_nlink, 0, size])[1] += 1
    else:
        found.bytes += size


def _strange(found: Measured, name: str) -> None:
    found.strangers += 1
    found.example = found.example or name


def empty(folder: int, part: Part, removed: Callable[[int], bool]) -> bool:
    """Remove what is recognised, files of a folder before its folders, folders in the order of `part`.

    Args:
        removed: told the allocated bytes of each removed file; False ends the work.

    Returns:
        Whether it came to the end.
    """
    return _empty(folder, part, os.fstat(folder).st_dev, removed)


def _empty(folder: int, part: Part, device: int, removed: Callable[[int], bool]) -> bool:
    # Reading goes on behind what was removed; some file systems then leave names out, so it is read until nothing comes.
    known = _known(folder, part)
    while known:
        gone = 0
        for name in _files(folder):
            if not _belongs(folder, name, part):
                continue
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
            os.unlink(name, dir_fd=folder)
            gone += 1
            if not removed(seen.st_blocks * 512 if seen.st_nlink == 1 else 0):
                return False
        if not gone:
            break
    for _, inner_part in part.folders:
        for name in _folders(folder):
            inner = _open_folder(folder, name, device) if part.folder(name) is inner_part else None
            if inner is None:
                continue
            try:
                if not _empty(inner, inner_part, device, removed):
                    return False
            finally:
                os.close(inner)
            with contextlib.suppress(OSError):  # strangers are in it
                os.rmdir(name, dir_fd=folder)
    return True


def _files(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry.name


def _folders(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _known(folder: int, part: Part) -> bool:
    return not part.needs or any(re.fullmatch(part.needs, name) for name in _files(folder))


def _belongs(folder: int, name: str, part: Part) -> bool:
    if not part.file(name):
        return False
    if part.check is None:
        return True
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and part.check(descriptor)
    finally:
        os.close(descriptor)


def _open_folder(parent: int, name: str, device: int | None = None) -> int | None:
    """The folder itself; `None` where it is a link, not a folder, gone, closed to us, or on another file system."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except (NotADirectoryError, FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    if device is not None and os.fstat(folder).st_dev != device:
        os.close(folder)
        return None
    return folder
