"""How far an array is: the tasks' own words on the shared file system, weighed against what Slurm says of them."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from eagle3_remote.array import slurm
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.array.submit import LATEST_FILE
from eagle3_remote.files import read_json
from eagle3_remote.protocol import (
    ArraySpec,
    ArrayStatus,
    ExtractState,
    ExtractStatus,
    TaskState,
    TaskStatus,
    decode,
)
from eagle3_remote.rpc import Refused

ASK_EVERY = 5.0
"""Seconds between two questions to Slurm's controller, whoever looks however often."""
_FIRST_WAIT = 10.0
SILENT_AFTER = 120.0
"""Seconds without a word after which a task that Slurm calls running is said to be silent."""
_SUMMED = (
    "total",
    "stored",
    "rejected",
    "failed",
    "in_flight",
    "tokens_in_flight",
    "tokens_total",
    "tokens_stored",
    "bytes_stored",
    "bytes_total",
    "cut",
)
_RATES = ("samples_per_s", "tokens_per_s", "bytes_per_s", "mean_samples_per_s")
AT_WORK = (TaskState.STARTING, TaskState.SERVER, TaskState.PROBING, TaskState.EXTRACTING, TaskState.STOPPING)
_ENDED = (TaskState.FINISHED, TaskState.STOPPED, TaskState.FAILED, TaskState.LOST)


@dataclasses.dataclass(frozen=True)
class _Answer:
    job: str
    queue: Mapping[int, slurm.Word] = dataclasses.field(default_factory=dict)
    ended: Mapping[int, slurm.Word] = dataclasses.field(default_factory=dict)
    error: str = ""


class ArrayReader:
    """Reads arrays; remembers Slurm's last answer, and asks anew in the background.

    Args:
        home: the box folder, which notes the last array.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._answer = _Answer("")
        self._asked_at = float("-inf")

    def latest(self) -> tuple[ArrayFolder, float] | None:
        """The array that was submitted last from here, and when."""
        try:
            path = (self._home / LATEST_FILE).read_text()
            at = (self._home / LATEST_FILE).stat().st_mtime
        except OSError:
            return None
        folder = ArrayFolder(Path(path))
        return (folder, at) if folder.record.exists() else None

    def status(self, folder: ArrayFolder) -> ArrayStatus:
        """How far it is.

        Raises:
            Refused: there is no array there.
        """
        try:
            spec = folder.spec()
        except ValueError as error:
            raise Refused(f"There is no array of ours in {folder.root}: {error}.") from error
        submitted = folder.jobs()
        job = submitted[-1] if submitted else ""
        asked = self._ask(job) if job else _Answer("", error="It was not submitted yet.")
        tasks = tuple(
            judge(
                said(folder, spec, index),
                asked.queue.get(index),
                asked.ended.get(index, asked.ended.get(slurm.REST)),
                bool(asked.error),
                time.time(),
            )
            for index in range(spec.tasks)
        )
        return summary(job, folder, spec, tasks, asked.error)

    def _ask(self, job: str) -> _Answer:
        """Slurm's last answer; who looks does not wait for a controller that hangs, but for the very first one."""
        with self._lock:
            other = self._answer.job != job
            if other:
                self._answer = _Answer(job, error="It has not answered yet.")
                self._answered.clear()
            if other or time.monotonic() - self._asked_at > ASK_EVERY:
                self._asked_at = time.monotonic()
                threading.Thread(target=self._ask_slurm, args=(job,), name="slurm", daemon=True).start()
        self._answered.wait(_FIRST_WAIT)
        return self._answer

    def _ask_slurm(self, job: str) -> None:
        try:
            answer = _Answer(job, slurm.queue(job), slurm.accounting(job))
        except slurm.SlurmError as error:
            answer = _Answer(job, error=str(error))
        with self._lock:
            if self._answer.job == job:
                self._answer = answer
                self._answered.set()


def said(folder: ArrayFolder, spec: ArraySpec, index: int) -> TaskStatus:
    """The last word of one task."""
    with contextlib.suppress(ValueError):
        task = decode(TaskStatus, read_json(folder.said(index)))
        # what is the same for all is said once
        return dataclasses.replace(
            task, extract=task.extract and dataclasses.replace(task.extract, spec=None, job=None)
        )
    shard = str(folder.shard(index, spec.tasks))
    return TaskStatus(index, TaskState.QUEUED, "It has not begun.", log=str(folder.log(index)), shard=shard)


def judge(
    said: TaskStatus, queued: slurm.Word | None, ended: slurm.Word | None, unknown: bool, now: float
) -> TaskStatus:
    """One task, its own word corrected by Slurm's. Pure.

    Args:
        queued: what the queue says of it; `None`: it is not in the queue.
        ended: what accounting says.
        unknown: Slurm could not be asked; then the task's own word stands.
    """
    word = queued or ended
    told = dataclasses.replace(said, slurm="" if word is None else word.state)
    ending = queued is not None and queued.state == "COMPLETING" and said.state in _ENDED
    if unknown or ending or said.state is TaskState.FINISHED:
        return told
    if queued is not None and queued.state in slurm.QUEUED:
        why = f" ({queued.reason})" if queued.reason else ""
        kept = (
            f" {said.extract.stored} samples of its shard are stored." if said.extract and said.extract.stored else ""
        )
        return _idle(told, TaskState.QUEUED, f"It waits in Slurm's queue{why}.{kept}")
    if queued is not None:
        silent = now - said.heard_at if said.heard_at is not None else 0.0
        if said.state in _ENDED or said.heard_at is None:
            return _idle(told, TaskState.STARTING, f"Slurm starts it on {queued.node or 'a node'}.")
        if silent > SILENT_AFTER:
            return dataclasses.replace(
                told, sentence=f"Slurm calls it {queued.state}, but it said nothing for {silent:.0f} s: {said.sentence}"
            )
        return told
    if said.state in (TaskState.FAILED, TaskState.STOPPED):
        return _idle(told, said.state, said.sentence)
    how = "it is not in Slurm's queue any more"
    if ended is not None:
        how = f"Slurm calls it {ended.state}" + (f" ({ended.reason})" if ended.reason else "")
    return _idle(
        told,
        TaskState.LOST,
        f"It ended without finishing: {how}. Its log: {said.log}. Submit the array again to go on.",
    )


def _idle(task: TaskStatus, state: TaskState, sentence: str) -> TaskStatus:
    """A task that does nothing now: what it had in flight and its rates are past."""
    extract = task.extract
    if extract is not None:
        extract = dataclasses.replace(
            extract, in_flight=0, tokens_in_flight=0, eta=None, samples_per_s=0.0, tokens_per_s=0.0, bytes_per_s=0.0
        )
    return dataclasses.replace(task, state=state, sentence=sentence, extract=extract)


def summary(
    job: str, folder: ArrayFolder, spec: ArraySpec, tasks: Sequence[TaskStatus], slurm_error: str
) -> ArrayStatus:
    """The whole, from its tasks. Pure."""
    running = sum(task.state in AT_WORK for task in tasks)
    queued = sum(task.state is TaskState.QUEUED for task in tasks)
    finished = sum(task.state is TaskState.FINISHED for task in tasks)
    failed = len(tasks) - running - queued - finished
    over = running + queued == 0
    parts = [
        f"{number} {word}"
        for number, word in ((running, "run"), (queued, "wait"), (finished, "finished"), (failed, "ended early"))
        if number
    ]
    sentence = f"Array {job} of {len(tasks)} tasks: {', '.join(parts)}."
    if over and not failed:
        sentence += f" Join the shards with 'merge --out {spec.extract.out}'."
    elif over:
        sentence += " Submit it again to go on with those that ended early."
    if slurm_error:
        sentence += f" Slurm could not be asked: {slurm_error}"
    return ArrayStatus(
        job=job,
        folder=str(folder.root),
        out=spec.extract.out,
        sentence=sentence,
        total=_total(spec, tasks, sentence, over, failed),
        tasks=tuple(tasks),
        running=running,
        queued=queued,
        finished=finished,
        failed=failed,
        over=over,
        slurm_error=slurm_error,
    )


def _total(spec: ArraySpec, tasks: Sequence[TaskStatus], sentence: str, over: bool, failed: int) -> ExtractStatus:
    """The sums, as one extraction."""
    known = [task.extract for task in tasks if task.extract is not None]
    state = ExtractState.RUNNING if known else ExtractState.PLANNING
    if over:
        state = ExtractState.STOPPED if failed else ExtractState.FINISHED
    etas = [one.eta for one in known if one.eta is not None]
    sums = {name: sum(getattr(one, name) for one in known) for name in (*_SUMMED, *_RATES)}
    return ExtractStatus(
        state=state,
        sentence=sentence,
        spec=spec.extract,
        elapsed=max((one.elapsed for one in known), default=0.0),
        # the slowest task decides, and those that wait have not begun to count
        eta=max(etas) if etas and not any(task.state is TaskState.QUEUED for task in tasks) else None,
        **sums,
    )
