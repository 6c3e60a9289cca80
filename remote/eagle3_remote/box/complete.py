"""Names to go on with while a path is typed. One folder is listed, never a tree."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from eagle3_remote.box.disks import disks
from eagle3_remote.box.patience import NoAnswer, within
from eagle3_remote.protocol import PathEntry, PathList, PathQuery

SECONDS = 3.0
MOST = 20_000
"""So many names of a folder are read."""
_PARTS = re.compile(r"(\d+)")


def complete(query: PathQuery, seconds: float = SECONDS) -> PathList:
    """The names that `query` may go on with; what is wrong is a sentence part in the result."""
    typed = query.typed
    if not typed:
        return _places(seconds)
    if typed == "~":
        return PathList("", "~", (PathEntry("~", True),))
    folder, word = typed[: typed.rfind("/") + 1], typed[typed.rfind("/") + 1 :]
    try:
        return within(seconds, folder or "the home folder", lambda: _list(query, folder, word))
    except NoAnswer as slow:
        return PathList(folder, word, error=str(slow))
    except OSError as error:
        return PathList(folder, word, error=_why(folder, error))


def real(path: str) -> str:
    """Absolute; ``~`` and relative paths are those of the user's home."""
    return os.path.normpath(os.path.join(os.path.expanduser("~"), os.path.expanduser(path)))


def _list(query: PathQuery, folder: str, word: str) -> PathList:
    root = real(folder or "~")
    names: list[str] = []
    with os.scandir(root) as found:
        for one in found:
            if word.startswith(".") or not one.name.startswith("."):
                names.append(one.name)
            if len(names) >= MOST:
                break
    begins = [name for name in names if name.startswith(word)]
    fits = begins or [name for name in names if word.lower() in name.lower()]
    # Links and kinds are asked for only where they are shown.
    entries: list[PathEntry] = []
    fits.sort(key=_natural)
    for at, name in enumerate(fits):
        if len(entries) >= query.limit:
            return PathList(folder, word, _folders_first(entries), len(fits) - at, bool(begins))
        entry = _entry(os.path.join(root, name), name)
        if entry.is_dir or not query.folders_only:
            entries.append(entry)
    return PathList(folder, word, _folders_first(entries), 0, bool(begins))


def _entry(path: str, name: str) -> PathEntry:
    link = ""
    try:
        if os.path.islink(path):
            link = os.readlink(path)
        seen = os.stat(path)
    except OSError:
        return PathEntry(name, False, 0, link, broken=bool(link))
    folder = os.path.isdir(path)
    return PathEntry(name, folder, 0 if folder else seen.st_size, link)


def _folders_first(entries: Sequence[PathEntry]) -> tuple[PathEntry, ...]:
    return tuple(sorted(entries, key=lambda one: not one.is_dir))


def _natural(name: str) -> list[object]:
    """``part-2`` before ``part-10``."""
    return [int(part) if at % 2 else part.lower() for at, part in enumerate(_PARTS.split(name))]


def _places(seconds: float) -> PathList:
    """Where to begin: the disks that could hold data, roomiest first, and the user's home."""
    found = [disk.path for disk in disks(seconds)]
    names = dict.fromkeys([*(path.rstrip("/") or "/" for path in found), "~", "/"])
    return PathList("", "", tuple(PathEntry(name, True) for name in names))


def _why(folder: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no folder {folder}"
    if isinstance(error, NotADirectoryError):
        return f"{folder.rstrip('/')} is a file, not a folder"
    if isinstance(error, PermissionError):
        return f"{folder} may not be read by this user"
    return f"{folder} cannot be listed: {error.strerror or error}"
