"""The directory that the patched server dumps into: made for one server job, removed only when it is provably ours."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.box import doctor, identity
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import JobState
from eagle3_remote.rpc import Refused

OWNER_FILE = ".eagle3-dump.json"
"""In a directory that we made: names the job it was made for. Without it a directory is never removed."""


def default(job_id: str) -> Path:
    """``/dev/shm/eagle3-console/<job>``; the temporary directory where there is no /dev/shm."""
    base = Path("/dev/shm")
    if not base.is_dir():
        base = Path(tempfile.gettempdir())
    shared = base / "eagle3-console"
    # Another user's folder of that name cannot be written: take one of our own beside it.
    if shared.exists() and not os.access(shared, os.W_OK | os.X_OK):
        shared = base / f"eagle3-console-{os.getuid()}"
    return shared / job_id


def check(path: Path) -> None:
    """See whether `path` can be made or used, without leaving anything.

    Raises:
        Refused: it cannot; says why.
    """
    if path.exists():
        if not path.is_dir():
            raise Refused(f"The dump directory {path} is a file: name a directory.")
        if not os.access(path, os.W_OK | os.X_OK):
            raise Refused(f"The dump directory {path} may not be written by this user: name another one.")
        return
    parent = path.parent
    if parent.parent == Path("/dev/shm") and not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise Refused(f"The parent of the dump directory, {parent}, does not exist: make it or name another one.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise Refused(f"The parent of the dump directory, {parent}, may not be written: name another dump directory.")


def create(path: Path, job_id: str) -> None:
    """Make the directory (0700) and note whose it is. One that exists already stays the person's, unless it was made
    for an earlier job: then it is this one's from now on.

    Raises:
        OSError: it cannot be made.
    """
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        owner = (read_json(path / OWNER_FILE) or {}).get("job")
        if not isinstance(owner, str) or not _is_ours(path, owner):
            return
    write_atomic(path / OWNER_FILE, json.dumps({"job": job_id}).encode())


def remove(path: Path, job_id: str) -> bool:
    """Remove the directory with all dumps in it, if we made it for that job. False: it is not ours, or it is gone."""
    if not _is_ours(path, job_id):
        return False
    shutil.rmtree(path, ignore_errors=True)
    parent = path.parent
    if parent.name.startswith("eagle3-console"):
        with contextlib.suppress(OSError):  # another server's directory is in it
            parent.rmdir()
    return not path.exists()


def _is_ours(path: Path, job_id: str) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        return False
    return (read_json(path / OWNER_FILE) or {}).get("job") == job_id


def in_use(home: Path, path: str) -> jobs.Job | None:
    """The extraction job that still collects from `path`, however either spells it."""
    real = os.path.realpath(path) if path else ""
    for job in jobs.living(home, "extract"):
        if any(folder and os.path.realpath(folder) == real for _, folder in collects(job)):
            return job
    return None


def collects(job: jobs.Job) -> list[tuple[str, str]]:
    """(URL, dump directory) of every server that an extraction job uses."""
    message = job.spec["message"]
    more = message.get("servers") or ()
    first = (message.get("server_url", ""), message.get("dump_dir", ""))
    return [first, *((one.get("url", ""), one.get("dump_dir", "")) for one in more if isinstance(one, dict))]


def waiting(home: Path, url: str) -> str:
    """The dump directory of an extraction that runs on the server at `url`, and waits for it while it is away."""
    for job in jobs.living(home, "extract"):
        for used, folder in collects(job):
            if used == url:
                return folder
    return ""


def taken(home: Path, path: Path, url: str, ending: Collection[str] = ()) -> str:
    """Who else uses the directory, in words; empty: nobody.

    Args:
        url: of the server that is to dump there; an extraction that runs on it shall find its dumps there again.
        ending: ids of server jobs whose processes do not count, because they will have ended.
    """
    real = os.path.realpath(path)
    for job in jobs.living(home, "extract"):
        for used, folder in collects(job):
            if folder and os.path.realpath(folder) == real and used != url:
                return f"job {job.id}, which collects from it for {used}"
    for process in identity.living():
        env = identity.environment(process.pid) or {}
        given = env.get(layout.ENV_DUMP_DIR) or env.get(layout.ENV_DUMP_DIR_OLD)
        if given and os.path.realpath(given) == real and env.get(identity.JOB_ENV) not in ending:
            return doctor.describe(process.pid)
    return ""


def release(home: Path, job: jobs.Job) -> str:
    """After the server `job` ended: remove its dump directory if it is ours and unused. A sentence, with a space in
    front, for the report; empty when there is nothing to say."""
    path = str(job.spec.get("dump_dir", ""))
    if not path or not os.path.isdir(path):
        return ""
    user = in_use(home, path)
    if user is not None:
        return f" The dump directory {path} stays: job {user.id} still collects from it."
    if remove(Path(path), job.id):
        return f" The dump directory {path} was removed."
    return f" The dump directory {path} was there before this server and stays."


def sweep(home: Path) -> None:
    """Remove the dump directories of server jobs that ended without being stopped (they would hold memory)."""
    for job in jobs.everything(home, "server"):
        path = str(job.spec.get("dump_dir", ""))
        if not path or not _is_ours(Path(path), job.id) or in_use(home, path) is not None:
            continue
        if jobs.state_of(job) not in (JobState.RUNNING, JobState.STARTING) and not stopping.members(job):
            remove(Path(path), job.id)
