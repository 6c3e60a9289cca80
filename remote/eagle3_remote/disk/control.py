"""Starting the removal of one folder that was shown, or refusing it with the reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from eagle3_remote.disk import look, tree
from eagle3_remote.disk.holders import Holders
from eagle3_remote.disk.kinds import OURS
from eagle3_remote.files import read_json
from eagle3_remote.job import jobs, work
from eagle3_remote.job.programs import Programs
from eagle3_remote.protocol import Found, JobStatus, ReclaimSpec, StopReport, encode
from eagle3_remote.rpc import Refused


class ReclaimControl(Programs):
    """Starts removals."""

    def start(self, spec: ReclaimSpec) -> JobStatus:
        """Check and start a detached job that removes the folder; one that runs already is handed out again.

        Raises:
            Refused: it was not shown, is something else now, is in use, is another user's, or its name was not typed.
        """
        with jobs.exclusive(self._home):
            running = self._removing(spec.path)
            if running is not None and spec.confirm == os.path.basename(str(running.spec["message"]["path"])):
                return jobs.status_of(running)
            found = check(self._home, spec)
            message = {**encode(spec), "path": found.path, "home": str(self._home), "found": encode(found)}
            return self._start("reclaim", "disk.reclaim", [sys.executable, "-I"], message)

    def stop(self, path: str) -> StopReport:
        """Stop the removal of `path`; what is left stays.

        Raises:
            Refused: it is not being removed.
        """
        job = self._removing(path)
        if job is None:
            raise Refused(f"{path} is not being removed now: there is nothing to stop.")
        return work.stop(self._home, job.id)

    def _removing(self, path: str) -> jobs.Job | None:
        real = real_path(path)
        living = jobs.living(self._home, "reclaim")
        return next((job for job in living if job.spec["message"]["path"] == real), None)


def real_path(path: str) -> str:
    """Absolute, its parents without links; the last part may be one."""
    asked = os.path.abspath(os.path.expanduser(path))
    return os.path.join(os.path.realpath(os.path.dirname(asked)), os.path.basename(asked))


def check(home: Path, spec: ReclaimSpec, but: str = "") -> Found:
    """What is to be removed, if it may be.

    Args:
        but: the job that asks, which does not count as a user of the folder.

    Raises:
        Refused: see `ReclaimControl.start`.
    """
    path = real_path(spec.path)
    found = look.shown(home, path)
    if found is None:
        raise Refused(
            f"{path} was not among what 'space' showed last: look first, with 'space HOST {os.path.dirname(path)}', "
            "and name a folder that it lists."
        )
    name = os.path.basename(path)
    if spec.confirm != name:
        raise Refused(f"Nothing was removed: the name typed is {spec.confirm!r}, the folder's is {name!r}.")
    if found.owner != os.getuid():
        raise Refused(
            f"{path} belongs to user {found.owner}, not to this one ({os.getuid()}): let that user remove it."
        )
    try:
        with tree.opened(path, found.device, found.inode):
            kind = look.kind_of(path)
    except tree.Moved as error:
        raise Refused(f"{error}, not what 'space' showed: look again.") from error
    except OSError as error:
        raise Refused(f"{path} cannot be removed: {error.strerror}. Look again with 'space'.") from error
    if kind is None or (kind.word, kind.ours) != (found.kind, found.ours):
        raise Refused(f"{path} does not look like {found.note or found.kind} any more: look again with 'space'.")
    for into in (read_json(Path(path) / OURS / "joined.json") or {}).get("into", []):
        whole = os.path.normpath(os.path.join(path, str(into)))
        if os.path.isdir(os.path.join(whole, OURS)):
            raise Refused(
                f"{whole} was joined from {path} by symbolic links and has no states of its own: remove that first."
            )
    holder = Holders(home, but).of(path)
    if holder:
        raise Refused(f"{path} is in use: {holder}. End that first.")
    return found
