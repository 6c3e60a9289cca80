"""Which of the box's releases are still used, and removing those that are not.

A release is used by every job that was started from it and lives, and by the agent of whatever console runs from it. An
agent says so by a shared lock on the release's stamp, held for life; whoever does not (an older release's agent) is found
by its command line and environment, which name the folder. A young stamp counts as used: a deploy renews it, as
its agent may be about to start, and so does every agent that starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3_remote.box import identity
from eagle3_remote.box.bootstrap import STALE_SECONDS, STAMP
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import JobState

KEEP = 3
"""So many of the last used stay in any case: a person may go back."""
_NAME = re.compile(r"[0-9a-f]{64}")
_LOCK_WAIT = 10.0
"""Seconds."""


def folder(home: Path) -> Path:
    """Where the releases lie."""
    return home / "releases"


class Removed(Exception):
    """The release was removed while it was about to be used."""


def hold(release: Path) -> int | None:
    """Take part in using a release, until the process ends; `None` where it has no stamp (a checkout, a test).

    Raises:
        Removed: somebody removed it just now.
    """
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = os.open(release / STAMP, os.O_RDONLY | os.O_CLOEXEC)
        # First: who is about to remove it looks at the age once more when nobody else can hold it.
        with contextlib.suppress(OSError):
            os.utime(descriptor)
        _share(descriptor)
    if not release.is_dir() or (descriptor is not None and not _is(descriptor, release / STAMP)):
        if descriptor is not None:
            os.close(descriptor)
        raise Removed
    return descriptor


def _share(descriptor: int) -> None:
    """Lock the stamp with others. Who looks, or removes, holds it for a moment: that is waited for, and no longer. Where it
    cannot be locked (a file system without locks) the command line tells."""
    deadline = time.monotonic() + _LOCK_WAIT
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return
        else:
            return


def _is(descriptor: int, path: Path) -> bool:
    """Whether an open file still is the one at `path`: it may have been removed and made anew meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def name_of(home: Path, release: str) -> str:
    """A release as people see it: its folder's name, the whole path where it lies elsewhere."""
    path = Path(release)
    return path.name if path.parent == folder(home) else release


def unused(home: Path, keep: int = KEEP, look: identity.Look | None = None) -> list[Path]:
    """The complete releases that may go, the longest unused first. `look`: one at all processes, for the jobs; `None`: look now."""
    ages: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder(home).iterdir():
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):  # not complete: the next deploy of it makes it anew
                    ages.append(((path / STAMP).stat().st_mtime, path))
    old = [path for at, path in sorted(ages)[: max(0, len(ages) - keep)] if not _young(at)]
    if not old:
        return []
    look = identity.look() if look is None else look
    named = list(_named_by_processes())
    by_jobs = {Path(str(job.spec.get("release", ""))) for job in jobs.everything(home) if uses(job, look)}
    return [
        path
        for path in old
        if path not in by_jobs and not any(os.fsencode(path) in text for text in named) and not _locked(path)
    ]


def uses(job: jobs.Job, look: identity.Look) -> bool:
    """Whether a job may still start something from its release: it lives, something of it does, or its supervisor, which
    may be on another host that shares this home, holds its lock."""
    alive = jobs.state_of(job) in (JobState.RUNNING, JobState.STARTING)
    return alive or jobs.lock_held(job) or bool(stopping.members(job, look))


def collect(home: Path, keep: int = KEEP, look: identity.Look | None = None) -> list[Path]:
    """Remove the unused ones; gives those that are gone. Each leaves its name in one step, so that nobody meets a half."""
    gone = []
    for path in unused(home, keep, look):
        with contextlib.suppress(OSError), _exclusively(path) as ours:
            if ours and not _young((path / STAMP).stat().st_mtime):  # an agent that starts renews it, then waits for us
                grave = tempfile.mkdtemp(
                    prefix=".tmp-", dir=path.parent
                )  # the bootstrap removes what a kill leaves of it
                os.rename(path, os.path.join(grave, path.name))
                shutil.rmtree(grave, ignore_errors=True)
                gone.append(path)
    return gone


def _young(stamp: float) -> bool:
    """Whether a release whose stamp is of then counts as used by its age alone."""
    return abs(time.time() - stamp) <= STALE_SECONDS


def _locked(path: Path) -> bool:
    with contextlib.suppress(OSError), _exclusively(path) as ours:
        return not ours
    return True


@contextlib.contextmanager
def _exclusively(path: Path) -> Iterator[bool]:
    """Hold the stamp alone; False: somebody holds it."""
    descriptor = os.open(path / STAMP, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def _named_by_processes() -> Iterator[bytes]:
    """Command line and environment of every process but this one; what may not be read is not among them."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError), open(f"/proc/{name}/{part}", "rb") as file:
                    yield file.read()
