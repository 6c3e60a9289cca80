"""A real Slurm of one node on this machine: munged, slurmctld and slurmd as children, with a configuration of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.box.client import until
from tests.patch.servers import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
_CONF = """\
ClusterName=eagle3
SlurmctldHost={name}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
KillWait=20
MinJobAge=300
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
NodeName={name} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000
PartitionName=all Nodes={name} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing() -> list[str]:
    """What is not there to start it with."""
    lacking = [name for name in PROGRAMS if _which(name) is None]
    return lacking if os.getuid() == 0 else [*lacking, "the rights of root"]


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextlib.contextmanager
def running(root: Path) -> Iterator[dict[str, str]]:
    """A cluster whose node is idle; yields the environment in which Slurm's programs find it."""
    name = socket.gethostname().partition(".")[0]
    for folder in ("munge", "state", "spool"):
        (root / folder).mkdir(mode=0o700)
    (root / "munge" / "key").write_bytes(os.urandom(128))
    (root / "munge" / "key").chmod(0o600)
    conf = root / "slurm.conf"
    conf.write_text(_CONF.format(name=name, root=root, controller=free_port(), daemon=free_port()))
    env = {"SLURM_CONF": str(conf)}
    munge = root / "munge"
    words = [f"--{key}={munge / value}" for key, value in _MUNGE.items()]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(root, env, "munged", "--foreground", "--force", *words))
        until(lambda: (munge / "socket").exists())
        started.append(_start(root, env, "slurmctld", "-D", "-f", str(conf), "-c"))
        started.append(_start(root, env, "slurmd", "-D", "-f", str(conf), "-N", name))
        until(lambda: _ask(env, "sinfo", "-h", "-o", "%t").strip() == "idle", every=0.2)
        yield env
        _ask(env, "scancel", "--full", "--signal=KILL", "--user=root")
    finally:
        for process in reversed(started):
            _end(process)


_MUNGE = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def _start(root: Path, env: dict[str, str], name: str, *args: str) -> subprocess.Popen[bytes]:
    program = _which(name)
    assert program is not None
    with (root / f"{name}.out").open("ab") as out:
        return subprocess.Popen(
            [program, *args],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **env},
            start_new_session=True,
        )


def _ask(env: dict[str, str], *argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)
    return done.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
