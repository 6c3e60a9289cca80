"""Writing and submitting an array from the login host."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
from pathlib import Path

from eagle3_remote.array import slurm
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.job import jobs
from eagle3_remote.protocol import ArraySpec, Submission
from eagle3_remote.rpc import Refused

LATEST_FILE = "array.json"
"""In the box folder: the array that was submitted last."""
_OURS = ("--array", "-a", "--output", "-o", "--signal", "--requeue", "--no-requeue", "--open-mode")
_WARN_SECONDS = 300
"""So long before its time limit a task is told to stop; it then puts itself back into the queue."""


def submit(home: Path, release: Path, asked: ArraySpec, *, dry_run: bool = False) -> Submission:
    """Write the folder of the array and submit it; an array that ended early is submitted again and goes on.

    Raises:
        Refused: a path is wrong, it runs already, it was begun differently, or Slurm refuses.
    """
    spec = _checked(asked)
    folder = ArrayFolder.of(spec.extract.out)
    script = script_of(spec, folder)
    if dry_run:
        return Submission("", str(folder.root), script, ("sbatch", str(folder.script)), "Nothing was submitted.")
    earlier = folder.jobs()
    _check_earlier(spec, folder, earlier)
    try:
        folder.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.write(spec, earlier)  # first: by it the folder is known as ours, whatever ends us
        for path in (folder.shards, *(folder.home(index) for index in range(spec.tasks))):
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        _copy_release(release, folder.release)
        folder.script.write_text(script)
        job = slurm.submit(str(folder.script), ())
        folder.write(spec, [*earlier, job])
        home.mkdir(mode=0o700, exist_ok=True)
        (home / LATEST_FILE).write_text(str(folder.root))
    except OSError as error:
        raise Refused(f"The folder of the array, {folder.root}, cannot be written: {error.strerror}.") from error
    except slurm.SlurmError as error:
        raise Refused(str(error)) from error
    sentence = f"Array {job} of {spec.tasks} tasks was submitted; it goes on without this console. All of it lies in {folder.root}."
    return Submission(job, str(folder.root), script, ("sbatch", str(folder.script)), sentence)


def _checked(asked: ArraySpec) -> ArraySpec:
    if asked.tasks < 1:
        raise Refused("An array needs at least one task.")
    for arg in asked.sbatch_args:
        if not arg.startswith("-") or arg.partition("=")[0] in _OURS or "\n" in arg:
            raise Refused(
                f"The argument {arg!r} cannot be handed to sbatch: each is one word with its value (--gres=gpu:8), and "
                "--array, --output, --signal, --requeue and --open-mode are given by the console."
            )
    server, extract = asked.server, asked.extract
    extract = dataclasses.replace(extract, data=_absolute(extract.data), out=_absolute(extract.out))
    server = dataclasses.replace(server, model=_absolute(server.model), python=_absolute(server.python))
    if not os.path.isdir(server.model):
        raise Refused(f"There is no model directory {server.model} on this host.")
    if not os.path.exists(extract.data):
        raise Refused(f"The data {extract.data} does not exist on this host.")
    if not os.access(server.python, os.X_OK):
        raise Refused(f"The Python {server.python} cannot be started on this host.")
    parent = os.path.dirname(extract.out)
    if not os.path.isdir(parent):
        raise Refused(f"The parent of the output directory, {parent}, does not exist: make it first.")
    if os.path.lexists(extract.out) and not (os.path.isdir(extract.out) and not os.listdir(extract.out)):
        raise Refused(
            f"{extract.out} exists already: the shards are merged into it in the end, so name a new directory."
        )
    return dataclasses.replace(asked, server=server, extract=extract)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _check_earlier(spec: ArraySpec, folder: ArrayFolder, earlier: list[str]) -> None:
    if not folder.record.exists():
        if folder.root.exists() and any(folder.root.iterdir()):
            raise Refused(f"{folder.root} is there, and no array of ours made it: choose another --out.")
        return
    try:
        kept = folder.spec()
    except ValueError as error:
        raise Refused(f"{folder.record} cannot be read ({error}): choose another --out.") from error
    if kept.tasks != spec.tasks:
        raise Refused(
            f"{folder.root} was begun with {kept.tasks} tasks, {spec.tasks} are asked for: the input is split by their number. "
            "Submit it with the same number, or choose another --out."
        )
    try:
        queued = slurm.queue(earlier[-1]) if earlier else {}
    except slurm.SlurmError as error:
        raise Refused(str(error)) from error
    living = [word for word in queued.values() if word.state != "COMPLETING"]
    if living:
        raise Refused(f"{len(living)} tasks of array {earlier[-1]} are still in the queue: watch it, or stop it first.")


def script_of(spec: ArraySpec, folder: ArrayFolder) -> str:
    """The batch script."""
    last = spec.tasks - 1
    at_once = f"%{spec.at_once}" if spec.at_once else ""
    code = jobs.code_of(folder.release, "array.task")
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name=eagle3-{_word(os.path.basename(spec.extract.out))}",
        f"#SBATCH --array=0-{last}{at_once}",
        f"#SBATCH --output={shlex.quote(str(folder.root).replace('%', '%%') + '/slurm-%a.out')}",
        # what was said before the task was requeued stays
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        # to this script alone, which is the task: near the time limit it stops in order and goes back into the queue
        f"#SBATCH --signal=B:USR1@{_WARN_SECONDS}",
        *(f"#SBATCH {shlex.quote(arg)}" for arg in spec.sbatch_args),
        "export PYTHONUNBUFFERED=1",
        shlex.join(["exec", spec.server.python, "-u", "-c", code, str(folder.root)]),
    ]
    return "\n".join(lines) + "\n"


def _word(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name) or "extract"


def _copy_release(release: Path, target: Path) -> None:
    """A copy of its own: the tasks may start days from now, and start again."""
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for package in ("eagle3_remote", "eagle3_patch"):
        shutil.copytree(release / package, fresh / package, ignore=shutil.ignore_patterns("__pycache__"))
    if target.exists():
        shutil.rmtree(target)
    fresh.rename(target)
