"""The tiny process that starts one job, waits for it, and writes down how it ended.

Started as ``PY -I -c "... from eagle3_remote.job.supervisor import main; main(sys.argv[1:])" RUN_DIR``. It leaves the session it was
started in, holds the lock of the run directory for life, and forwards nothing: whoever wants the job to end signals
the job. Its first process waits until the job runs (or could not be started) and exits 0 (or 1, reason on stderr).

Files written, each by rename: ``pid.json`` (who the job is), ``rc`` (exit code; negative: the signal that ended it).
A server that crashes may be started again in the same run directory (`eagle3_remote.server.watchdog`); ``rc`` comes at the end.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from eagle3_remote.box import identity
from eagle3_remote.files import write_atomic
from eagle3_remote.job import secretfile
from eagle3_remote.job.logcap import LogKeeper, cap_of
from eagle3_remote.server.watchdog import Watchdog, of_run_dir

EXIT_NOT_STARTED = 127
_ANSWERED = -1
"""In place of the answer's pipe once it is closed: its number may be another file's by then."""
_LOCK_TRIES = 100
_TICK = 2.0
"""Seconds between two looks at a server's processes."""
_POLL = 0.5
_RC_TRIES = 60


def main(argv: Sequence[str]) -> NoReturn:
    """Run the job of the run directory that is the first of `argv`."""
    run_dir = Path(argv[0])
    read_end, write_end = os.pipe()
    if os.fork() > 0:
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            answer = pipe.read()
        if answer == b"ok":
            os._exit(0)
        sys.stderr.write(answer.decode("utf-8", "replace") or "the supervisor died before the job was started\n")
        sys.stderr.flush()
        os._exit(1)
    os.close(read_end)
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    os.chdir("/")  # hold no file system but that of the run directory
    try:
        code = _supervise(run_dir, write_end)
    except BaseException as error:
        _answer(write_end, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    os._exit(0 if code is not None else 1)


def _take(lock: int) -> bool:
    """Take the lock for life. Who looks at the job holds it for an instant: try more than once."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def _answer(pipe: int, text: bytes) -> None:
    try:
        os.write(pipe, text)
        os.close(pipe)
    except OSError:
        pass  # already answered, or the starter is gone: the job does not depend on it


def _supervise(run_dir: Path, pipe: int) -> int | None:
    spec: dict[str, Any] = json.loads((run_dir / "spec.json").read_text())
    lock = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _take(lock):
        _answer(pipe, f"job {spec['id']} is already supervised by another process".encode())
        return None
    log = os.open(run_dir / "out.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    _redirect(log)
    # Handlers, not SIG_IGN: an ignored signal would stay ignored in the job. At shutdown the job gets its own TERM;
    # this process stays to write down how it ended.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stay)
    LogKeeper(run_dir, cap_of({**os.environ, **spec["env"]}), folded=spec["kind"] == "server").start()
    watchdog = of_run_dir(run_dir, spec)
    while True:
        try:
            code = _run(run_dir, spec, log, pipe, watchdog)
            pipe = _ANSWERED
            if watchdog is None or code == EXIT_NOT_STARTED or not _again(watchdog, code):
                break
            os.close(log)
            log = os.open(run_dir / "out.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            _redirect(log)
        except Exception as error:
            if watchdog is None or pipe != _ANSWERED:
                raise  # who starts it is told
            _complain(error)
            watchdog.give_up(f"starting it again failed: {type(error).__name__}: {error}")
            break  # how the last incarnation ended is written down
    _write_rc(run_dir, code)
    return code


def _again(watchdog: Watchdog, code: int) -> bool:
    """Wait as long as the watchdog wants; whether the job is to be started again then."""
    wait = watchdog.verdict(code)
    if wait is None:
        return False
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        if not watchdog.still_wanted():
            return False
        time.sleep(_POLL)
    return watchdog.still_wanted() and watchdog.clear()


def _run(run_dir: Path, spec: dict[str, Any], log: int, pipe: int, watchdog: Watchdog | None) -> int:
    """One incarnation of the job, from its start to its exit code."""
    if watchdog is not None:
        watchdog.begin()
    env = dict(os.environ)
    env.update(spec["env"])
    env.update(secretfile.read(run_dir).env)
    env[identity.JOB_ENV] = spec["id"]
    # setproctitle (SGLang names its processes with it) overwrites /proc/<pid>/environ unless told not to.
    env["SPT_NOENV"] = "1"
    try:
        job = subprocess.Popen(
            spec["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=spec["cwd"],
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        reason = f"{spec['argv'][0]} could not be started: {error.strerror}"
        os.write(log, f"{reason}\n".encode())
        if pipe != _ANSWERED:  # who is told that it was not started finds it ended
            _write_rc(run_dir, EXIT_NOT_STARTED)
        _answer(pipe, reason.encode())
        return EXIT_NOT_STARTED
    leader = identity.identify(job.pid)  # exists: nobody but us reaps it
    supervisor = identity.identify(os.getpid())
    if leader is None or supervisor is None:
        job.kill()
        raise RuntimeError("/proc does not show our own processes: is it mounted?")
    record = {
        "boot_id": leader.boot_id,
        "pid": leader.pid,
        "start_time": leader.start_time,
        "pgid": leader.pid,
        "supervisor_pid": supervisor.pid,
        "supervisor_start_time": supervisor.start_time,
        "started_at": time.time(),
    }
    try:
        write_atomic(run_dir / "pid.json", json.dumps(record).encode())
    except OSError:
        os.killpg(job.pid, signal.SIGKILL)  # a job that nobody can find again must not run
        job.wait()
        raise
    _answer(pipe, b"ok")
    if watchdog is None:
        return job.wait()
    watchdog.started()
    while True:
        try:
            return job.wait(_TICK)
        except subprocess.TimeoutExpired:
            try:
                if watchdog.tick():
                    os.killpg(job.pid, signal.SIGKILL)
            except Exception as error:  # a look that fails must not end the job
                _complain(error)


def _complain(error: Exception) -> None:
    os.write(2, f"eagle3: watching this server failed: {type(error).__name__}: {error}\n".encode())


def _write_rc(run_dir: Path, code: int) -> None:
    """Write the exit code; a disk that is full right now may have room in a moment."""
    for _ in range(_RC_TRIES):
        try:
            write_atomic(run_dir / "rc", f"{code}\n".encode())
            return
        except OSError:
            time.sleep(1.0)


def _stay(_number: int, _frame: object) -> None:
    return


def _redirect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
