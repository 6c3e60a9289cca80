"""SGLang servers on this machine that are no jobs of ours: found in the process table, described by what the kernel and
the server itself say. Looks only; nothing is sent but GET requests for settings."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.box import doctor, identity
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs
from eagle3_remote.protocol import ForeignServer, Patched
from eagle3_remote.protocol.secret import hide_argv
from eagle3_remote.server.health import url_of
from eagle3_remote.server.serverinfo import SETTINGS, ask_info, unfit_settings

DEFAULT_PORT = 30000
"""SGLang's own (``server_args.py``, 0.5.4 to 0.5.23)."""
LOOK_EVERY = 10.0
"""Seconds between two looks for a snapshot."""
FIRST_WAIT = 0.5
"""Seconds that the very first snapshot waits for the look, so that who attaches is told the truth at once."""
_MODULES = ("sglang.launch_server", "sglang.srt.entrypoints.http_server")


@dataclasses.dataclass(frozen=True)
class Process:
    """One server process as the kernel shows it."""

    identity: identity.Identity
    uid: int
    parent: int
    words: tuple[str, ...]
    args: tuple[str, ...]
    """What the launcher was given."""
    environ: Mapping[str, str] | None
    """`None`: may not be read by this user."""
    ports: tuple[int, ...] | None
    """TCP ports that it listens on; `None`: may not be seen by this user."""
    log_path: str
    near: bool = True
    """Whether it is in our network namespace; a container may have one of its own, with the same ports in it."""


class ForeignReader:
    """What snapshots show: looked for in the background, the last look is kept."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._looked = threading.Event()
        self._asking = False
        self._asked = float("-inf")
        self._found: tuple[ForeignServer, ...] = ()

    def read(self) -> tuple[ForeignServer, ...]:
        """The last look; looks anew in the background when that is old."""
        with self._lock:
            due = not self._asking and time.monotonic() - self._asked >= LOOK_EVERY
            self._asking = self._asking or due
        if due:
            threading.Thread(target=self._look, name="foreign servers", daemon=True).start()
        self._looked.wait(FIRST_WAIT)
        with self._lock:
            return self._found

    def _look(self) -> None:
        found: tuple[ForeignServer, ...] = ()
        try:
            found = look(self._home)
        finally:
            with self._lock:
                self._found, self._asking, self._asked = found, False, time.monotonic()
            self._looked.set()


def look(home: Path) -> tuple[ForeignServer, ...]:
    """Every SGLang server of any user on this machine, but for the jobs of the box folder `home`; oldest first."""
    ours = {job.id for job in jobs.everything(home, "server")}
    found = [process for process in processes() if _job_id(process) not in ours]
    return tuple(describe(process) for process in sorted(found, key=lambda one: one.identity.start_time))


def processes() -> list[Process]:
    """The processes that launched SGLang servers; the workers that they forked are not named."""
    found = {}
    boot = identity.boot_id()
    for stat in identity.living():
        words = _words(stat.pid)
        args = launcher_args(words)
        if args is None:
            continue
        with contextlib.suppress(OSError):
            found[stat.pid] = Process(
                identity=identity.Identity(boot, stat.pid, stat.start_time),
                uid=os.stat(f"/proc/{stat.pid}").st_uid,
                parent=stat.ppid,
                words=tuple(words),
                args=tuple(args),
                environ=identity.environment(stat.pid),
                ports=listening(stat.pid),
                log_path=_output(stat.pid),
                near=same_network(stat.pid),
            )
    return [one for one in found.values() if one.parent not in found]


def launcher_args(words: Sequence[str]) -> list[str] | None:
    """What follows the launcher in the command line of a server; `None`: it is none.

    ``python -m sglang.launch_server``, ``python .../sglang/launch_server.py`` and ``sglang serve`` (0.5.9 and newer) are
    known. Words inside one argument (``sh -c '...'``) and names of other programs' arguments do not count.
    """
    if not words or not os.path.basename(words[0]).startswith(("python", "sglang")):
        return None
    for place, word in enumerate(words[:-1]):
        if word == "-m" and words[place + 1] in _MODULES:
            return list(words[place + 2 :])
        if os.path.basename(word) == "sglang" and words[place + 1] == "serve" and place <= 3:
            return list(words[place + 2 :])
    for place, word in enumerate(words[:4]):
        if place and word.endswith("sglang/launch_server.py"):
            return list(words[place + 1 :])
    return None


def value_of(args: Sequence[str], *names: str) -> str:
    """The last value given to an option (``--port 1`` or ``--port=1``); empty: not given."""
    found = ""
    for place, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else (args[place + 1] if place + 1 < len(args) else "")
    return found


def describe(process: Process) -> ForeignServer:
    """One server in full; asks it for its settings, a few seconds at most."""
    env = process.environ
    url = _url(process)
    info, why = ask_info(url) if url else ({}, "it listens nowhere yet")
    if not process.near:
        why = "it has a network of its own (a container); name the address under which this box reaches it"
    dump_dir = "" if env is None else env.get(layout.ENV_DUMP_DIR) or env.get(layout.ENV_DUMP_DIR_OLD) or ""
    patched = Patched.UNKNOWN if env is None else Patched.NO
    if env is not None and dump_dir and _patch_on_path(env):
        patched = Patched.YES
    server = ForeignServer(
        pid=process.identity.pid,
        start_time=process.identity.start_time,
        boot_id=process.identity.boot_id,
        user=doctor.user_name(process.uid),
        uptime=identity.age(process.identity),
        url=url,
        argv=hide_argv(process.words),
        answers=bool(info),
        model=str(info.get("model_path") or value_of(process.args, "--model-path", "--model")),
        version=str(info.get("version") or ""),
        settings={name: str(info[name]) for name in SETTINGS if info.get(name) is not None},
        patched=patched,
        dump_dir=dump_dir if patched is Patched.YES else "",
        boundaries="" if env is None else env.get(layout.ENV_BOUNDARIES, ""),
        final="" if env is None else env.get(layout.ENV_FINAL) or ("pre" if patched is Patched.YES else ""),
        log_path=process.log_path,
        job=_job_id(process),
    )
    unfit = (*_unfit(server, env, why), *unfit_settings(info))
    return dataclasses.replace(server, unfit=unfit, sentence=_sentence(server, why))


def _unfit(server: ForeignServer, env: Mapping[str, str] | None, why: str) -> list[str]:
    reasons = []
    if not server.answers:
        reasons.append(f"It does not tell its settings: {why}.")
    if server.patched is Patched.NO:
        reasons.append(
            "It runs without the patch: neither a dump directory nor the patch's entry is in its environment, "
            "so it would dump nothing."
        )
    if env is not None and server.patched is Patched.YES:
        prefix = env.get(layout.ENV_RID_PREFIX) or layout.RID_PREFIX
        if not layout.RID_PREFIX.startswith(prefix):
            reasons.append(f"It dumps only requests whose id begins with {prefix!r}; ours begin with 'e3-'.")
        if (env.get(layout.ENV_LAYOUT) or "safetensors") != "safetensors":
            reasons.append(f"It dumps in the layout {env[layout.ENV_LAYOUT]!r}; an extraction reads 'safetensors'.")
    return reasons


def _sentence(server: ForeignServer, why: str) -> str:
    what = f"SGLang {server.version}" if server.version else "An SGLang server"
    state = "" if server.answers else f" It does not answer: {why}."
    patch = {
        Patched.YES: f"with the patch, dumping into {server.dump_dir}",
        Patched.NO: "without the patch",
        Patched.UNKNOWN: "whether with the patch cannot be seen by this user",
    }[server.patched]
    where = f"at {server.url}" if server.url else "without a port yet"
    return (
        f"{what} of user {server.user} (pid {server.pid}) serves {server.model or 'a model'} {where}, {patch}.{state}"
    )


def _patch_on_path(env: Mapping[str, str]) -> bool:
    return any(one.rstrip("/").endswith("eagle3_patch/entry") for one in env.get("PYTHONPATH", "").split(os.pathsep))


def _job_id(process: Process) -> str:
    return "" if process.environ is None else process.environ.get(identity.JOB_ENV, "")


def _url(process: Process) -> str:
    """Where it is reached: the port it was told, or, where it was told none (a ``--config`` file), one it listens on."""
    if not process.near:
        return ""
    told = value_of(process.args, "--port")
    port = int(told) if told.isdigit() else DEFAULT_PORT
    if process.ports is not None and port not in process.ports:
        if told or not process.ports:
            return ""
        port = process.ports[0]
    return url_of(value_of(process.args, "--host") or "127.0.0.1", port)


# -- the kernel's side ------------------------------------------------------------------------------------------------


def same_network(pid: int) -> bool:
    """Whether a process and this one share a network namespace; taken for granted where that may not be seen."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")
    except OSError:
        return True


def listening(pid: int) -> tuple[int, ...] | None:
    """TCP ports that a process listens on, ascending; `None` where its files may not be seen."""
    sockets = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    except OSError:
        return None
    ports = set()
    for table in ("tcp", "tcp6"):  # its own network namespace's
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if len(words) > 9 and words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    ports.add(int(words[1].rpartition(":")[2], 16))
    return tuple(sorted(ports))


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def _output(pid: int) -> str:
    """The regular file that its standard output goes to."""
    try:
        path = os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return ""
    return path if path.startswith("/") and os.path.isfile(path) else ""


def remember(home: Path, servers: Sequence[ForeignServer]) -> None:
    """Keep which processes were shown, so that a later request to stop one reaches that process and no other."""

    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    shown = {str(one.pid): [one.boot_id, one.start_time] for one in servers}
    write_atomic(home / "foreign-shown.json", json.dumps(shown).encode())


def remembered(home: Path, pid: int) -> identity.Identity | None:
    """The process that was shown under this pid last."""

    entry: Any = (read_json(home / "foreign-shown.json") or {}).get(str(pid))
    try:
        return identity.Identity(str(entry[0]), pid, int(entry[1]))
    except (TypeError, KeyError, IndexError, ValueError):
        return None
