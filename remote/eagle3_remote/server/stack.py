"""What every scheduler and worker of the server does right now: by py-spy where it is there and permitted, else by /proc.

Looks only. py-spy is told not to pause the process (``--nonblocking``): a dump that is being written is not disturbed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from eagle3_remote.job import jobs
from eagle3_remote.protocol import ProcessStack, StackReport
from eagle3_remote.rpc import Refused
from eagle3_remote.server import processes
from eagle3_remote.server.processes import Process

TIMEOUT = 20.0
"""Seconds for py-spy to read one process: the symbols of torch are large."""
SAMPLE = 0.5
"""Seconds over which CPU time is measured."""
MAX_THREADS = 12
"""Threads of one process that are shown by /proc, the busiest first."""
MAX_LINES = 200
_SHOWN = ("main", "scheduler", "detokenizer", "data_parallel_controller", "tokenizer_worker", "detokenizer_router")
_CALLS = {
    "x86_64": {0: "read", 1: "write", 7: "poll", 17: "pread64", 23: "select", 24: "sched_yield", 35: "nanosleep",
               45: "recvfrom", 47: "recvmsg", 61: "wait4", 74: "fsync", 202: "futex", 230: "clock_nanosleep",
               232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 16: "ioctl"},
    "aarch64": {63: "read", 64: "write", 73: "ppoll", 72: "pselect6", 67: "pread64", 82: "fsync", 98: "futex",
                101: "nanosleep", 115: "clock_nanosleep", 22: "epoll_pwait", 95: "waitid", 260: "wait4", 29: "ioctl",
                124: "sched_yield", 207: "recvfrom", 212: "recvmsg"},
}  # fmt: skip
"""Numbers of the system calls that a waiting thread is found in, by machine."""


def report(job: jobs.Job) -> StackReport:
    """Look at all of the job's processes.

    Raises:
        Refused: none of them lives.
    """
    before = processes.look(job)
    if not before.alive:
        raise Refused(f"Server {job.id} has no living process: there is nothing to look at. See its log.")
    threads = {one.pid: _threads(one.pid) for one in before.alive}
    begun = time.monotonic()
    time.sleep(SAMPLE)
    after = processes.look(job)
    took = time.monotonic() - begun
    busy = processes.working(before.alive, after.alive, took)
    old = {(one.pid, one.start_time): one.cpu for one in before.alive}
    shown = [one for one in after.alive if one.role in _SHOWN or one in busy]
    tool = _py_spy(str(job.spec["message"].get("python", "")))

    def one_stack(one: Process) -> ProcessStack:
        how, lines = "/proc", _by_proc(one.pid, threads.get(one.pid, {}), took)
        if tool is not None:
            spied, said = _by_py_spy(tool, one.pid)
            how, lines = ("py-spy", said) if spied else (how, (*said, *lines))
        return ProcessStack(
            pid=one.pid,
            name=" ".join(filter(None, (one.role if one.role != "helper" else one.title[:60], one.rank))),
            state=processes.verb(one, one in busy),
            cpu_percent=100 * (one.cpu - old.get((one.pid, one.start_time), one.cpu)) / took,
            threads=len(threads.get(one.pid, {})),
            how=how,
            lines=lines[:MAX_LINES],
        )

    with ThreadPoolExecutor(max_workers=4) as pool:
        stacks = tuple(pool.map(one_stack, sorted(shown, key=_order)))
    return StackReport(job.id, _sentence(after, stacks, tool), stacks)


def _order(one: Process) -> tuple[int, str, int]:
    return (_SHOWN.index(one.role) if one.role in _SHOWN else len(_SHOWN), one.rank, one.pid)


def _sentence(now: processes.Look, stacks: tuple[ProcessStack, ...], tool: str | None) -> str:
    words = f"{len(stacks)} processes of the server were looked at"
    if tool is None:
        words += "; py-spy is not there (pip install py-spy in the server's environment shows Python lines)"
    elif any(one.how != "py-spy" for one in stacks):
        words += "; py-spy may not look into all of them (it needs root, or kernel.yama.ptrace_scope 0)"
    dead = ", ".join(one.name for one in now.dead)
    return f"{words}. Dead: {dead}." if dead else f"{words}."


def _py_spy(python: str) -> str | None:
    """py-spy beside the server's Python (SGLang brings it), else in PATH."""
    beside = os.path.join(os.path.dirname(python), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def _by_py_spy(tool: str, pid: int) -> tuple[bool, tuple[str, ...]]:
    """(whether it could, what it said or why not)."""
    try:
        done = subprocess.run(
            [tool, "dump", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, (f"py-spy gave no answer in {TIMEOUT:.0f} s",)
    except OSError as error:
        return False, (f"py-spy cannot be started: {error.strerror}",)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode == 0 and lines:
        return True, tuple(line.rstrip() for line in lines)
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
    return False, (f"py-spy could not look: {last}",)


def _threads(pid: int) -> dict[int, int]:
    """CPU ticks of each thread."""
    found = {}
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return {}
    for name in names:
        fields = _read(f"/proc/{pid}/task/{name}/stat").rpartition(")")[2].split()
        if len(fields) > 12:
            found[int(name)] = int(fields[11]) + int(fields[12])
    return found


def _by_proc(pid: int, before: dict[int, int], seconds: float) -> tuple[str, ...]:
    """Each thread in one line, the busiest first: name, state, CPU, system call and place in the kernel."""
    ticks = os.sysconf("SC_CLK_TCK")
    rows = []
    for tid, now in _threads(pid).items():
        stat = _read(f"/proc/{pid}/task/{tid}/stat")
        state = (stat.rpartition(")")[2].split() or ["?"])[0]
        cpu = 100 * (now - before.get(tid, now)) / ticks / seconds
        call = _call(_read(f"/proc/{pid}/task/{tid}/syscall"))
        place = _read(f"/proc/{pid}/task/{tid}/wchan").strip().strip("0")
        where = " in ".join(filter(None, (call, place))) or "running"
        rows.append(
            (
                -cpu,
                tid != pid,
                tid,
                f"thread {tid} {_read(f'/proc/{pid}/task/{tid}/comm').strip()}: {state}, {cpu:.0f} % CPU, {where}",
            )
        )
    rows.sort()
    lines = [row[-1] for row in rows[:MAX_THREADS]]
    if len(rows) > MAX_THREADS:
        lines.append(f"and {len(rows) - MAX_THREADS} more threads")
    return tuple(lines)


def _call(text: str) -> str:
    """The system call that ``/proc/<pid>/task/<tid>/syscall`` names; empty while it computes or may not be seen."""
    number = text.split(" ", 1)[0].strip()
    if not number.isdigit():
        return ""
    return _CALLS.get(os.uname().machine, {}).get(int(number), f"system call {number}")


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
