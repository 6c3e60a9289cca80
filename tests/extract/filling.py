"""Small file systems of their own, and taking their space."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def small_disk_at(path: Path, size: str, needs: Callable[[bool, str], None]) -> Iterator[Path]:
    """A real file system of that size (``24m``) at `path`, which is made."""
    path.mkdir()
    needs(os.geteuid() == 0, "mounting a small tmpfs needs root")
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    mounted = subprocess.run(argv, capture_output=True, text=True)
    needs(mounted.returncode == 0, f"mounting a small tmpfs: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path, leave: int) -> None:
    """Take all but so many bytes of the file system."""
    seen = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, seen.f_bavail * seen.f_frsize - leave)


def fill_to_the_last(path: Path) -> None:
    """Take every free byte of the file system."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x")
