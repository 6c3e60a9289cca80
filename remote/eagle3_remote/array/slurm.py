"""Slurm's own programs: submitting, asking, cancelling. Their plain output is read, which all versions since 17 share."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

_WAIT = 30.0
RUNNING = frozenset(
    ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING")
)
QUEUED = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))


REST = -1
"""Stands for all tasks that are not named: a record that Slurm kept for tasks that never began together."""
_NO_TASK = "4294967294"
"""NO_VAL of slurm.h, which is the task number in such a record (22.05)."""


class SlurmError(Exception):
    """Slurm is not there, or does not do it; the text is a sentence."""


@dataclasses.dataclass(frozen=True)
class Word:
    """What Slurm says of one task."""

    state: str
    """``RUNNING``, ``PENDING``, ``FAILED`` ..."""
    node: str = ""
    reason: str = ""


def _run(*argv: str) -> str:
    program = shutil.which(argv[0])
    if program is None:
        raise SlurmError(f"{argv[0]} is not in the PATH of this host: is it a login host of a Slurm cluster?")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_WAIT,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{argv[0]} did not answer: {error}.") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise SlurmError(f"{argv[0]} refused (exit code {done.returncode}): {said[-1] if said else 'it said nothing'}")
    return done.stdout.decode("utf-8", "replace")


def submit(script: str, args: Sequence[str]) -> str:
    """Submit; Slurm's number of the job.

    Raises:
        SlurmError: with Slurm's own words.
    """
    # --parsable: "number" or "number;cluster"
    number = _run("sbatch", "--parsable", *args, script).strip().splitlines()[-1].partition(";")[0]
    if not number.isdigit():
        raise SlurmError(f"sbatch answered {number!r} instead of a job number.")
    return number


def queue(job: str) -> dict[int, Word]:
    """What the queue says of the tasks of an array; those that ended are not in it.

    Raises:
        SlurmError: it cannot be asked.
    """
    try:
        text = _run("squeue", "-h", "-r", "-j", job, "-o", "%i|%T|%N|%r")
    except SlurmError as error:
        if "Invalid job id" in str(error):  # all of it ended a while ago
            return {}
        raise
    words: dict[int, Word] = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        task = re.fullmatch(r"\d+_(\d+)", parts[0])
        if task and len(parts) == 4:
            words[int(task[1])] = Word(parts[1], parts[2], parts[3] if parts[3] != "None" else "")
    return words


def accounting(job: str) -> dict[int, Word]:
    """What accounting remembers of tasks that ended; without it, as is usual in small clusters, what the controller does."""
    try:
        text = _run("sacct", "-n", "-P", "-X", "-j", job, "-o", "JobID,State,NodeList,ExitCode")
    except SlurmError:
        return _remembered(job)
    words: dict[int, Word] = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == 4:
            # "CANCELLED by 1000"
            word = Word(parts[1].partition(" ")[0], parts[2], f"exit code {parts[3]}")
            words |= dict.fromkeys(_tasks(parts[0].partition("_")[2]), word)
    return words


def _remembered(job: str) -> dict[int, Word]:
    """Without accounting: what the controller still knows of jobs that ended minutes ago."""
    try:
        text = _run("scontrol", "-o", "show", "job", job)
    except SlurmError:
        return {}
    words: dict[int, Word] = {}
    for line in text.splitlines():
        facts = dict(part.partition("=")[::2] for part in line.split() if "=" in part)
        word = Word(facts.get("JobState", ""), facts.get("NodeList", ""), f"exit code {facts.get('ExitCode', '?')}")
        number = facts.get("ArrayTaskId", "")
        words |= dict.fromkeys([REST] if number == _NO_TASK else _tasks(number), word)
    return words


def _tasks(text: str) -> list[int]:
    """The numbers in ``7``, ``0-2%2`` or ``[1,4-6%3]``: tasks that ended before they began are told together."""
    found: list[int] = []
    for part in text.strip("[]").partition("%")[0].split(","):
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if span:
            found += range(int(span[1]), int(span[2] or span[1]) + 1)
    return found


def cancel(job: str) -> None:
    """Waiting tasks leave the queue; running ones are asked to finish what is in flight and end.

    Raises:
        SlurmError: with Slurm's own words.
    """
    _run("scancel", "--state=PENDING", job)
    try:
        _run("scancel", "--batch", "--signal=TERM", job)
    except SlurmError as error:
        if "Invalid job id" not in str(error):  # all of it was waiting, and is gone
            raise


def requeue(job: str, task: int) -> None:
    """Put this task back into the queue.

    Raises:
        SlurmError: with Slurm's own words.
    """
    _run("scontrol", "requeue", f"{job}_{task}")
