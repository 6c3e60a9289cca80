"""Looks at the box and prints what it sees as one JSON line. Self-contained: it is piped into ``PY - '<query>'`` before
anything of ours is on the box, so it imports nothing of ours and runs on Python 3.8 and newer.

``argv[1]`` is a JSON `DoctorQuery` (see the protocol package); printed are a sentinel line and a `Facts`-shaped object. It only
looks: nothing is written, no package is imported, nothing is judged.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import pwd
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SENTINEL = "EAGLE3-DOCTOR"
NEEDED = ("torch", "safetensors", "httpx", "pyarrow", "numpy")
MAX_PYTHONS = 40
LOOK_TIMEOUT = 20.0
"""Seconds for one interpreter to say what is installed (a cold network file system is slow)."""
SMI_TIMEOUT = 5.0

_ASK = """
import importlib.metadata as m, importlib.util as u, json, sys
try: v = m.version("sglang")
except Exception: v = ""
missing = [n for n in %r if u.find_spec(n) is None]
print("EAGLE3-ASK" + json.dumps([".".join(map(str, sys.version_info[:3])), v, missing, sys.prefix]))
"""

PLACES = (
    ("~/venv", "~/.venv", "~/env", "~/venvs/*", "~/.venvs/*", "~/*/.venv", "~/*/venv", "~/*"),
    ("/venv", "/venvs/*", "/opt/venv", "/opt/*", "/opt/*/venv", "/root/*", "/root/*/.venv", "/workspace/*"),
    ("/workspace/*/.venv", "/sgl-workspace/*", "/sgl-workspace/*/.venv", "/usr/local"),
)
CONDA = ("~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba", "/opt/conda", "/opt/miniconda3")


def look(query: dict[str, Any]) -> dict[str, Any]:
    """Everything that `query` (a dict shaped like DoctorQuery) asks for, shaped like Facts."""
    pythons, looked_in = find_pythons(query.get("python") or "")
    data, out, dump = query.get("data") or "", query.get("out") or "", query.get("dump_dir") or ""
    shm = _space("/dev/shm")
    return {
        "host": socket.gethostname(),
        "user": user_name(os.getuid()),
        "system": platform.system() + " " + platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "clock": time.time(),
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
        "pythons": pythons,
        "looked_in": looked_in,
        "gauges": gauges({"output": out, "dump": dump or "/dev/shm", "home": "~"}),
        "shm_total": shm[1],
        "shm_free": shm[0],
        "model": model_fact(query["model"]) if query.get("model") else None,
        "data": path_fact(data) if data else None,
        "out": path_fact(out) if out else None,
        "dump": path_fact(dump) if dump else None,
        "port": port_fact(query["port"]) if query.get("port") else None,
    }


# -- Pythons --------------------------------------------------------------------------------------------------------


def find_pythons(given: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(facts of every interpreter worth naming, places that were looked at). The given one is always named."""
    candidates, looked_in = _candidates(given)
    with ThreadPoolExecutor(max_workers=8) as pool:
        facts = list(pool.map(lambda one: _ask(one[0], one[1]), candidates))
    seen, kept = set(), []
    for fact, prefix in facts:
        named = fact["found_by"] in ("--python", "running server", "VIRTUAL_ENV")
        if (prefix and prefix in seen) or (not named and not fact["sglang"]):
            continue
        seen.add(prefix)
        kept.append(fact)
    return kept, looked_in


def python_fact(path: str) -> dict[str, Any]:
    """One interpreter, shaped like PythonFact."""
    return _ask(os.path.expanduser(path), "--python")[0]


def _candidates(given: str) -> tuple[list[tuple[str, str]], list[str]]:
    found: list[tuple[str, str, str]] = []
    looked_in: list[str] = []

    def add(path: str, how: str) -> None:
        key = os.path.join(os.path.realpath(os.path.dirname(path)), "python")
        if os.access(path, os.X_OK) and all(key != old[2] for old in found) and len(found) < MAX_PYTHONS:
            found.append((path, how, key))

    if given:
        looked_in.append("--python " + given)
        path = os.path.expanduser(given)
        found.append((path, "--python", os.path.join(os.path.realpath(os.path.dirname(path)), "python")))
    for path in running_servers():
        add(path, "running server")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        looked_in.append("$" + name)
        if os.environ.get(name):
            add(os.path.join(os.environ[name], "bin", "python"), name if name == "VIRTUAL_ENV" else "conda")
    listed = os.path.expanduser("~/.conda/environments.txt")
    for root in CONDA:
        looked_in.append(root)
        root = os.path.expanduser(root)
        for env in [root, *sorted(glob.glob(os.path.join(glob.escape(root), "envs", "*")))]:
            add(os.path.join(env, "bin", "python"), "conda")
    for env in _text(listed).splitlines():
        add(os.path.join(env.strip(), "bin", "python"), "conda")
    for pattern in [one for group in PLACES for one in group]:
        looked_in.append(pattern)
        for env in sorted(glob.glob(os.path.expanduser(pattern))):
            add(os.path.join(env, "bin", "python"), env)
    looked_in.append("PATH")
    for name in ("python", "python3"):
        add(shutil.which(name) or "", "PATH")
    return [(path, how) for path, how, _ in found], looked_in


def running_servers() -> list[str]:
    """Interpreters of SGLang servers that run on this box, whoever started them (as far as /proc shows)."""
    found: list[str] = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        line = " ".join(words)
        if "sglang.launch_server" not in line and "sglang serve" not in line and "/sglang/launch_server" not in line:
            continue
        for word in words[:2]:  # "python -m ..." or "python .../bin/sglang serve"
            if os.path.basename(word).startswith("python") and os.path.isabs(word):
                found.append(word)
            elif os.path.isabs(word) and os.path.basename(word) == "sglang":
                found.append(os.path.join(os.path.dirname(word), "python"))
    return found


def _ask(path: str, found_by: str) -> tuple[dict[str, Any], str]:
    fact: dict[str, Any] = {"path": path, "found_by": found_by, "version": "", "sglang": "", "missing": [], "error": ""}
    try:
        done = subprocess.run(
            [path, "-c", _ASK % (NEEDED,)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        fact["error"] = f"gave no answer in {LOOK_TIMEOUT:.0f} s"
        return fact, ""
    except OSError as error:
        fact["error"] = error.strerror or str(error)
        return fact, ""
    text = done.stdout.decode("utf-8", "replace")
    for line in text.splitlines():
        if "EAGLE3-ASK" in line:
            fact["version"], fact["sglang"], fact["missing"], prefix = json.loads(line.partition("EAGLE3-ASK")[2])
            return fact, prefix
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
    fact["error"] = f"exited with {done.returncode}: {last[:300]}"
    return fact, ""


# -- the model, paths, the port ---------------------------------------------------------------------------------------


def model_fact(path: str) -> dict[str, Any]:
    """What config.json in the directory `path` says, shaped like ModelFact."""
    path = os.path.abspath(os.path.expanduser(path))
    fact: dict[str, Any] = {
        "path": path,
        "exists": os.path.isdir(path),
        "architecture": "",
        "num_layers": 0,
        "hidden_size": 0,
    }
    fact.update({"vocab_size": 0, "context_len": 0, "dtype": "", "weight_files": 0, "weight_bytes": 0, "error": ""})
    if not fact["exists"]:
        fact["error"] = "there is no such directory"
        return fact
    try:
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
        both = dict(config, **text)
        fact["architecture"] = str((config.get("architectures") or [""])[0])
        fact["num_layers"] = int(both.get("num_hidden_layers") or 0)
        fact["hidden_size"] = int(both.get("hidden_size") or 0)
        fact["vocab_size"] = int(both.get("vocab_size") or 0)
        fact["context_len"] = int(both.get("max_position_embeddings") or 0)
        fact["dtype"] = str(both.get("torch_dtype") or both.get("dtype") or config.get("torch_dtype") or "")
    except FileNotFoundError:
        fact["error"] = "config.json is missing"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        fact["error"] = f"config.json cannot be read: {error}"
    try:
        for entry in os.scandir(path):
            if entry.name.endswith((".safetensors", ".bin", ".pt", ".gguf")) and entry.is_file():
                fact["weight_files"] += 1
                fact["weight_bytes"] += entry.stat().st_size
    except OSError as error:
        fact["error"] = fact["error"] or f"the directory cannot be read: {error.strerror}"
    return fact


def path_fact(path: str) -> dict[str, Any]:
    """A file or directory that is, or is to be, there; shaped like PathFact. Looks only, leaves nothing behind."""
    path = os.path.abspath(os.path.expanduser(path))
    parent = os.path.dirname(path)
    fact: dict[str, Any] = {"path": path, "exists": False, "is_dir": False, "size": 0, "writable": False, "error": ""}
    fact["parent_exists"] = os.path.isdir(parent)
    try:
        stat = os.stat(path)
        fact["exists"], fact["is_dir"], fact["size"] = True, os.path.isdir(path), stat.st_size
        if not fact["is_dir"] and not os.access(path, os.R_OK):
            fact["error"] = "it may not be read by this user"
    except FileNotFoundError:
        pass
    except OSError as error:
        fact["error"] = error.strerror or str(error)
    target = path if fact["exists"] else parent
    fact["writable"] = os.access(target, os.W_OK | os.X_OK if os.path.isdir(target) else os.W_OK)
    fact["free"], fact["total"] = _space(_nearest(path))
    return fact


def port_fact(port: int) -> dict[str, Any]:
    """Whether a TCP port can be bound, and who listens on it; shaped like PortFact."""
    free = True
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((host, port))
        except OSError as error:
            free = free and error.errno not in (98, 13)  # EADDRINUSE, EACCES; no IPv6 at all is no obstacle
    holder, job = ("", "") if free else _holder(port)
    return {"port": port, "free": free, "holder": holder, "job": job}


def _holder(port: int) -> tuple[str, str]:
    """Who listens on a port, in words, and the id of our job where it is one."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _text(table).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    for pid in _pids():
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") in inodes:
                    return describe(pid), job_of(pid)
        except OSError:
            continue
    return "a process of another user or container" if inodes else "nobody that /proc shows", ""


def job_of(pid: int) -> str:
    """The id of the job of ours that a process belongs to, by its environment; empty: none, or it cannot be seen."""
    for entry in _text(f"/proc/{pid}/environ").split("\0"):
        name, _, value = entry.partition("=")
        if name == "EAGLE3_JOB":
            return value
    return ""


def describe(pid: int) -> str:
    """``pid N (user, command line)`` of one process."""
    line = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    try:
        owner = user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        owner = "?"
    comm = _text(f"/proc/{pid}/comm")
    return f"pid {pid} (user {owner}, {line[:200] or comm})"


# -- gauges -----------------------------------------------------------------------------------------------------------


def gauges(paths: dict[str, str], with_gpus: bool = True) -> dict[str, Any]:
    """The box itself, shaped like Gauges. `paths`: label -> path; a path to be made counts for its file system."""
    memory: dict[str, int] = {}
    for line in _text("/proc/meminfo").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            memory[words[0].rstrip(":")] = int(words[1]) * 1024
    return {
        "host": socket.gethostname(),
        "cpus": os.cpu_count() or 0,
        "load1": os.getloadavg()[0],
        "ram_total": memory.get("MemTotal", 0),
        "ram_available": memory.get("MemAvailable", 0),
        "mounts": [mount(label, path) for label, path in paths.items() if path],
        "gpus": gpus() if with_gpus else [],
    }


def mount(label: str, path: str) -> dict[str, Any]:
    """The file system that takes (or would take) `path`, shaped like Mount."""
    path = os.path.abspath(os.path.expanduser(path))
    free, total = _space(_nearest(path))
    try:
        stat = os.statvfs(_nearest(path))
        inodes = stat.f_favail if stat.f_files else None  # some file systems (btrfs) count none
    except OSError:
        inodes = None
    return {"label": label, "path": path, "total": total, "free": free, "inodes_free": inodes}


def gpus() -> list[dict[str, Any]]:
    """Rows of nvidia-smi; none where it is missing, fails or hangs."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    fields = "index,name,memory.used,memory.total,utilization.gpu,temperature.gpu"
    try:
        done = subprocess.run(
            [tool, "--query-gpu=" + fields, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SMI_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 6 and words[0].isdigit():
            used, total, busy, heat = (int(word) if word.isdigit() else None for word in words[2:])
            row: dict[str, Any] = {"index": int(words[0]), "name": words[1], "utilisation": busy, "temperature": heat}
            row["memory_used"] = (used or 0) * 1024 * 1024
            row["memory_total"] = (total or 0) * 1024 * 1024
            rows.append(row)
    return rows


# -- small things -----------------------------------------------------------------------------------------------------


def user_name(uid: int) -> str:
    """The name of a user id; the number where it has none (containers)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _space(path: str) -> tuple[int, int]:
    """(bytes free for this user, bytes in all) of the file system of `path`; zeros where it cannot be asked."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return 0, 0
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _nearest(path: str) -> str:
    while path != "/" and not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def main() -> None:
    """Print the facts for the query in ``argv[1]``."""
    query = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    sys.stdout.write("\n" + SENTINEL + "\n" + json.dumps(look(query)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
