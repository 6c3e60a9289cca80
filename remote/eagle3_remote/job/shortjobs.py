"""Short checks that need torch: a program in the Python that the box's jobs run in, and its one line of JSON.

Unlike a job it does not outlive whoever asked: where the agent ends, so does it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle3_remote.job import jobs
from eagle3_remote.rpc import Refused


class NotStarted(Refused):
    """The Python named could not be started."""


class Ended(Refused):
    """It ended without an answer. `code` is its exit code, negative: the signal that ended it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def python_of(home: Path, job: jobs.Job | None = None, asked: str = "") -> str:
    """The Python with torch: the one asked for, else that of `job`, else of the newest extraction or server.

    Raises:
        Refused: none is known, or the one asked for cannot be started.
    """
    if asked:
        path = os.path.expanduser(asked)
        if not os.access(path, os.X_OK):
            raise Refused(f"{path} cannot be started on this box: name a Python that has torch with --python.")
        return path
    candidates = [] if job is None else [job]
    for kind in ("extract", "server", "export", "merge"):
        candidates += jobs.everything(home, kind)
    for one in candidates:
        python = str(one.spec["message"].get("python", ""))
        if os.access(python, os.X_OK):
            return python
    raise Refused(
        "No Python with torch is known here: it is learnt from the first server or extraction started, or named with --python."
    )


def run(
    release: Path,
    python: str,
    module: str,
    *arguments: str,
    seconds: float | None = None,
    env: Mapping[str, str] | None = None,
) -> Any:
    """What ``main([*arguments])`` of `module` (below ``eagle3_remote``) prints as JSON.

    Args:
        seconds: it is ended then; `None`: it may take what it takes.
        env: variables on top of our own; what nobody else shall see belongs here, not among the arguments.

    Raises:
        NotStarted: it could not be started.
        Ended: it failed; the text carries its last word.
        Refused: it took too long.
    """
    code = jobs.code_of(release, module, "from eagle3_remote.job.lifeline import hold_on; hold_on(); ")
    end, held = os.pipe()  # its other end is closed when this process ends, however that happens
    try:
        done = subprocess.run(
            [python, "-c", code, *arguments],
            stdin=end,
            env={**os.environ, **(env or {})},
            capture_output=True,
            timeout=seconds,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as late:
        raise Refused(
            f"{module} of {arguments[0]} did not end in {late.timeout:g} s: the disk is slow or busy."
        ) from None
    except OSError as error:
        raise NotStarted(f"{python} could not be started for {module}: {error.strerror}.") from error
    finally:
        os.close(end)
        os.close(held)
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
    raise Ended(f"{module} of {arguments[0]} ended with exit code {done.returncode}: {last}", done.returncode)
