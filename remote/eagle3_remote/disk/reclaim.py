"""The job that removes one folder: ``main([RUN_DIR])``. Killed anywhere, the same command goes on with what is left.

Before the first file is removed, the dataset's lock is taken and what makes trainers take it for a dataset is removed, so that nobody
starts on a half of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from eagle3_remote.disk import look, tree
from eagle3_remote.disk.control import check
from eagle3_remote.disk.kinds import OURS
from eagle3_remote.job import work
from eagle3_remote.job.work import EXIT_GOOD, EXIT_NOT_FIT, Progress
from eagle3_remote.protocol import Found, ReclaimSpec, WorkState, decode
from eagle3_remote.rpc import Refused


def main(argv: list[str]) -> int:
    """Remove what RUN_DIR/spec.json names; returns the exit code."""
    run_dir, message = work.run_dir_of(argv)
    progress = Progress(run_dir)
    try:
        check(Path(str(message["home"])), decode(ReclaimSpec, message), but=run_dir.name)
        _remove(decode(Found, message["found"]), progress)
    except (Refused, tree.Moved) as error:
        progress.end(WorkState.FAILED, str(error))
        return EXIT_NOT_FIT
    except OSError as error:
        progress.end(WorkState.FAILED, f"Removing stopped: {error}. What was removed is gone, the rest stays.")
        return EXIT_NOT_FIT
    return EXIT_GOOD


def _remove(found: Found, progress: Progress) -> None:
    kind = look.kind_named(found)
    with tree.opened(found.path, found.device, found.inode) as (parent, folder, name):
        with _locked(folder, found.path):
            progress.say(f"Counting what is in {found.path}.")
            there = tree.measure(folder, kind.part, lambda: progress.stop_asked)
            progress.say(f"Removing {there.files} files.", total=there.files, bytes_total=there.bytes)
            whole = tree.empty(folder, kind.part, lambda size: progress.moved(1, size))
            if not whole:
                left = progress.status.total - progress.status.done
                progress.end(WorkState.STOPPED, f"Stopped on request: {left} files of {found.path} are left.")
                return
        with contextlib.suppress(OSError):  # strangers are in it
            os.rmdir(name, dir_fd=parent)
            progress.end(WorkState.FINISHED, f"Removed {found.path}: {progress.status.done} files.")
            return
        count = there.strangers
        what = f"{count} other entries, for example {there.example}," if count != 1 else f"{there.example}"
        text = f"Removed {progress.status.done} files of {found.path}; {what} were not made by an extraction and stay."
        progress.end(WorkState.FINISHED, text.replace(" were not", " was not") if count == 1 else text)


@contextlib.contextmanager
def _locked(folder: int, path: str) -> Iterator[None]:
    """Hold the lock of a dataset of ours, so that no extraction begins in it.

    Raises:
        Refused: somebody holds it.
    """
    lock = _open_lock(folder)
    if lock is None:
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{path} is in use: an extraction writes it. End that first.") from None
        yield
    finally:
        os.close(lock)


def _open_lock(folder: int) -> int | None:
    """`None`: there is none, as in other people's folders."""
    try:
        ours = os.open(OURS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.open("lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=ours)
    except OSError:
        return None
    finally:
        os.close(ours)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
