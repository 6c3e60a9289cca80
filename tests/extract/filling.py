"""Taking the space of a file system."""

from __future__ import annotations

import os
from pathlib import Path


def fill(path: Path, leave: int) -> None:
    """Take all but so many bytes of the file system."""
    seen = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, seen.f_bavail * seen.f_frsize - leave)
