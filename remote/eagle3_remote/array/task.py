"""One task of a Slurm array: ``python -m eagle3_remote.array.task ARRAY_FOLDER`` starts a server on this node, waits until it is ready,
probes it, extracts one shard, and stops the server. It does so by the same calls that a console makes of the agent.

A task that was killed and is started again, on this node or another, goes on with its shard. TERM (``scancel``, preemption) finishes
what is in flight and ends; USR1, which Slurm sends before the time limit, does the same and puts the task back into the queue.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from eagle3_remote.agent import Agent
from eagle3_remote.array import slurm
from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import (
    ArraySpec,
    ExtractState,
    ExtractStatus,
    JobState,
    JobStatus,
    Phase,
    ProbeReport,
    ServerStatus,
    TaskState,
    TaskStatus,
    decode,
    encode,
)
from eagle3_remote.rpc import Refused, ServerFault
from eagle3_remote.server.status import StatusReader, extract_status

EXIT_GOOD, EXIT_NOT_FIT, EXIT_SERVER, EXIT_INCOMPLETE = 0, 5, 6, 7
EXIT_STOPPED = 75
"""EX_TEMPFAIL of sysexits.h: nothing is wrong, but it is not done; start it again."""
SERVER_TRIES = 3
"""Servers that one task starts before it gives up."""
STUCK_AFTER = 3600.0
"""Seconds without any progress of a loading server after which it counts as stuck; a big model on a slow disk takes long."""
PROBE_TOKENS = 19
_EVERY = 1.0
_PR_SET_CHILD_SUBREAPER = 36
_LAST_PORT = 55_535
"""SGLang 0.5.13 gives its gRPC server the port 10,000 above (`server_args.py`), and refuses to start where there is none."""
_TRIES = 1000
_SERVING = (Phase.READY, Phase.BUSY)
_OVER = (Phase.EXITED, Phase.FAILED, Phase.NOT_RUNNING)


class _Asked(Exception):
    """The task was asked to end."""


class _Failed(Exception):
    """It cannot go on; the text is a sentence."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class Task:
    """One task.

    Args:
        folder: of the array.
        index: which shard.
        release: the folder that holds ``eagle3_remote`` and ``eagle3_patch``.
    """

    def __init__(self, folder: ArrayFolder, spec: ArraySpec, index: int, release: Path) -> None:
        self._folder, self._spec, self._index = folder, spec, index
        self._home = folder.home(index)
        self._box = Agent(self._home, release)
        self._status = StatusReader(self._home)
        self._asked = ""
        last = _last_said(folder.said(index))
        self._was_finished = last is not None and last.state is TaskState.FINISHED and _all_stored(last)
        self._said = TaskStatus(
            index,
            TaskState.STARTING,
            "The task starts.",
            node=socket.gethostname(),
            attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
            log=str(folder.log(index)),
            shard=str(folder.shard(index, spec.tasks)),
            extract=None if last is None else last.extract,
        )

    @property
    def requeue(self) -> bool:
        """Whether the time limit came before the end."""
        return self._asked == "USR1"

    def ask(self, number: int, _frame: object) -> None:
        """A signal."""
        self._asked = self._asked or signal.Signals(number).name.removeprefix("SIG")

    def run(self) -> int:
        """Everything, to the exit code of the task."""
        try:
            if self._was_finished:  # an array is submitted again for those that are not
                self._say(TaskState.FINISHED, "Its shard was finished by an earlier start.")
                return EXIT_GOOD
            self._clear()
            for left in reversed(range(SERVER_TRIES)):
                try:
                    code, sentence = self._once()
                    break
                except _Failed as error:
                    self._check_asked()  # Slurm's TERM reaches the server too
                    if error.code != EXIT_SERVER or not left:
                        raise
                    self._say(TaskState.SERVER, f"{error} The server is started again.")
                finally:
                    self._stop_all()
            self._say(TaskState.FINISHED, sentence)
            return code
        except _Asked:
            why = "the time limit is near" if self.requeue else "it was asked to"
            self._say(
                TaskState.STOPPED,
                f"Stopped, for {why}; what is stored stays, and the task goes on when it is started again.",
            )
            return EXIT_STOPPED
        except _Failed as error:
            self._say(TaskState.FAILED, str(error))
            return error.code
        except Refused as error:
            self._say(TaskState.FAILED, str(error))
            return EXIT_NOT_FIT

    def _once(self) -> tuple[int, str]:
        server = self._start_server()
        self._say(TaskState.PROBING, "The server is ready; one request is checked.")
        try:
            probe = decode(ProbeReport, self._box.probe({"tokens": PROBE_TOKENS}))
        except ServerFault as error:
            raise _Failed(str(error), EXIT_SERVER) from error
        if not probe.ok:
            raise _Failed(probe.sentence, EXIT_SERVER)
        wanted = dataclasses.replace(
            self._spec.extract,
            out=self._said.shard,
            shard=f"{self._index}/{self._spec.tasks}",
            server_url="",
            dump_dir="",
            python=self._spec.server.python,
        )
        return self._extract(self._box.extract_start(encode(wanted)), server)

    def _start_server(self) -> ServerStatus:
        self._say(TaskState.SERVER, "The server starts.")
        spec = dataclasses.replace(self._spec.server, port=free_port())
        job = decode(JobStatus, self._box.methods()["server.start"](encode(spec)))
        moved, last = time.monotonic(), None
        while True:
            self._check_asked()
            server = self._status.server()
            if server.phase in _OVER or server.log.refused:
                why = f"the patch refused: {server.log.refused}" if server.log.refused else server.sentence
                raise _Failed(f"The server did not come up: {why} Its log: {job.log_path}", EXIT_SERVER)
            if server.phase in _SERVING:
                return server
            sign = (server.phase, server.log.shards_done, server.log.last_line)
            if sign != last:
                moved, last = time.monotonic(), sign
            elif time.monotonic() - moved > STUCK_AFTER:
                raise _Failed(
                    f"The server has shown no progress for {STUCK_AFTER / 60:.0f} minutes: {server.sentence}",
                    EXIT_SERVER,
                )
            self._say(TaskState.SERVER, server.sentence)
            time.sleep(_EVERY)

    def _extract(self, started: object, server: ServerStatus) -> tuple[int, str]:
        job = jobs.find(self._home, decode(JobStatus, started).id)
        assert job is not None  # it has just been started
        while True:
            now = extract_status(job)
            if now.job is not None and now.job.state not in (JobState.RUNNING, JobState.STARTING):
                return self._ended(now)
            self._said = dataclasses.replace(self._said, extract=now)
            self._say(TaskState.EXTRACTING, now.sentence)
            if self._asked:
                self._say(TaskState.STOPPING, "What is in flight is finished.")
                stopping.request_stop(job)
                stopping.terminate_leader(job)
                self._wait_end(job)
                self._said = dataclasses.replace(self._said, extract=extract_status(job))
                if self._said.extract is None or self._said.extract.state is not ExtractState.FINISHED:
                    raise _Asked
            time.sleep(_EVERY)

    def _wait_end(self, job: jobs.Job) -> None:
        """Slurm itself kills what takes longer than its patience (KillWait)."""
        while not stopping.wait_end(job, _EVERY):
            self._said = dataclasses.replace(self._said, extract=extract_status(job))
            self._write()

    def _ended(self, now: ExtractStatus) -> tuple[int, str]:
        self._said = dataclasses.replace(self._said, extract=now)
        rc = None if now.job is None else now.job.rc
        if now.state is ExtractState.FINISHED:
            return EXIT_INCOMPLETE if now.rejected + now.failed else EXIT_GOOD, now.sentence
        self._check_asked()
        if now.state is ExtractState.STOPPED:
            raise _Asked
        raise _Failed(now.sentence, EXIT_SERVER if rc is None or rc < 0 else rc)

    def _check_asked(self) -> None:
        if self._asked:
            raise _Asked

    def _clear(self) -> None:
        """End what an earlier start of this task left running on this node."""
        self._say(TaskState.STARTING, "The task starts.")
        for job in jobs.everything(self._home):
            if stopping.members(job):
                report = stopping.stop(job)
                _print(f"Left by an earlier start: {report.sentence}")
                if report.leftovers:
                    raise _Failed(report.sentence, EXIT_NOT_FIT)

    def _stop_all(self) -> None:
        for job in jobs.living(self._home, "extract"):
            _print(stopping.stop(job).sentence)
        if jobs.living(self._home, "server"):
            _print(str(self._box.methods()["server.stop"]({"job": None})["sentence"]))

    def _say(self, state: TaskState, sentence: str) -> None:
        if (state, sentence) != (self._said.state, self._said.sentence) and state is not TaskState.EXTRACTING:
            _print(sentence)
        self._said = dataclasses.replace(self._said, state=state, sentence=sentence)
        self._write()

    def _write(self) -> None:
        """For looking only: a full disk does not end the task."""
        self._said = dataclasses.replace(self._said, heard_at=time.time())
        with contextlib.suppress(OSError):
            write_atomic(self._folder.said(self._index), json.dumps(encode(self._said)).encode())


def _last_said(path: Path) -> TaskStatus | None:
    """The last word of an earlier start."""
    try:
        return decode(TaskStatus, read_json(path))
    except ValueError:
        return None


def _all_stored(said: TaskStatus) -> bool:
    """Whether nothing is left that another start could make right."""
    manifest = read_json(Path(said.shard) / ".eagle3" / "manifest.json") or {}
    return bool(manifest.get("complete")) and said.extract is not None and said.extract.failed == 0


def _print(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)  # noqa: T201 - the task's log


def free_port() -> int:
    """Several tasks may share a node: each takes a port that the kernel says is free, and that SGLang can take as well."""
    for _ in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= _LAST_PORT:
            return port
    raise _Failed(f"None of {_TRIES} ports of this node was one up to {_LAST_PORT}, as SGLang needs.", EXIT_SERVER)


def _adopt_orphans() -> None:
    """Detached jobs become children of this task instead of init's: Slurm ends them with it, whatever way it tracks processes."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(argv: list[str]) -> int:
    """Run the task that ``SLURM_ARRAY_TASK_ID`` (or a second argument) names."""
    if not 1 <= len(argv) <= 2:
        _print("Usage: python -m eagle3_remote.array.task ARRAY_FOLDER [INDEX]")
        return 2
    folder = ArrayFolder(Path(os.path.abspath(argv[0])))
    given = argv[1] if len(argv) == 2 else os.environ.get("SLURM_ARRAY_TASK_ID", "")
    try:
        spec = folder.spec()
        index = int(given)
        if not 0 <= index < spec.tasks:
            raise ValueError(f"task {index} of {spec.tasks}")
    except ValueError as error:
        _print(f"This is no task of an array in {folder.root}: {error}.")
        return EXIT_NOT_FIT
    folder.home(index).mkdir(parents=True, exist_ok=True)
    os.environ["EAGLE3_HOME"] = str(folder.home(index))  # where a server's key is looked for, by its extraction as well
    _adopt_orphans()
    task = Task(folder, spec, index, Path(__file__).resolve().parents[2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, task.ask)
    code = task.run()
    if code == EXIT_STOPPED and task.requeue and os.environ.get("SLURM_ARRAY_JOB_ID"):
        try:
            slurm.requeue(os.environ["SLURM_ARRAY_JOB_ID"], index)
        except slurm.SlurmError as error:
            _print(f"The task could not be put back into the queue: {error}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
