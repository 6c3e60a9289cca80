"""Real SGLang servers for the tests: started in a process group of their own, stopped with it, nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from eagle3_remote.array import task

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "patch" / "eagle3_patch" / "entry"
TESTBED = Path(install.__file__).parent
START_LIMIT = 180.0
STOP_LIMIT = 5.0
"""0.5.9 waits for ever for requests that were aborted in the queue."""


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    dump_dir: Path
    log: Path
    process: subprocess.Popen[bytes]

    def generate(self, rid: str | None, ids: Sequence[int], new_tokens: int = 0, **more: Any) -> dict[str, Any]:
        """One request, as an extraction sends it."""
        sampling = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": list(ids), "sampling_params": sampling, **more} | ({} if rid is None else {"rid": rid})
        answer: dict[str, Any] = json.loads(self.post("/generate", body))
        return answer

    def post(self, path: str, body: Mapping[str, Any], timeout: float = 300) -> bytes:
        """POST JSON and return the answer's bytes."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            got: bytes = answer.read()
            return got

    def get(self, path: str) -> int:
        """GET and return the status."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            answer.read()
            status: int = answer.status
            return status

    def folder(self, rid: str) -> Path:
        """Wait until the request has ended in the dump, well or not, and return its folder."""
        folder = self.dump_dir / layout.folder_name(rid)
        wait_for(lambda: (folder / layout.DONE_FILE).exists() or (folder / layout.ERROR_FILE).exists(), folder)
        return folder

    def markers(self, kind: str = layout.MARKER_READY) -> list[dict[str, Any]]:
        """What the ranks said in lines of this kind."""
        return [
            json.loads(line.removeprefix(kind))
            for line in self.log.read_text(errors="replace").splitlines()
            if line.startswith(kind)
        ]

    def refused(self) -> str:
        """Wait for the server to exit by itself, and return the reason it gave."""
        try:
            code = self.process.wait(timeout=200)
        finally:
            stop(self)
        text = self.log.read_text(errors="replace")
        assert code != 0, text[-2000:]
        assert "The server is fired up" not in text
        reasons = self.markers(layout.MARKER_REFUSED)
        assert reasons, text[-3000:]
        reason: str = reasons[0]["reason"]
        return reason


def wait_for(condition: Any, what: object, seconds: float = 30.0) -> None:
    """Poll until `condition()` holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on now, and that SGLang can take."""
    return task.free_port()


def environment(bed: install.TestBed, dump_dir: Path | None, extra: Mapping[str, str], before: Sequence[Path]) -> dict:
    """The server's environment: the box's own, and on top what a patched server gets."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("EAGLE3_", "SGLANG_", "PYTHON"))}
    env |= bed.env
    paths = [str(ENTRY), *map(str, before), bed.env["PYTHONPATH"]]
    env["PYTHONPATH"] = os.pathsep.join(paths)
    if dump_dir is not None:
        env[layout.ENV_DUMP_DIR] = str(dump_dir)
    return env | extra


def launch(
    bed: install.TestBed,
    model: Path,
    work: Path,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    patched: bool = True,
    before: Sequence[Path] = (),
    port: int = 0,
) -> Server:
    """Start a server without waiting for it, at a free port or `port`. `before` lies on its PYTHONPATH between the patch and the
    stand-ins."""
    work.mkdir(parents=True, exist_ok=True)
    dump_dir, log, port = work / "dump", work / "server.log", port or free_port()
    argv = [str(bed.python), "-m", "sglang.launch_server", "--model-path", str(model), "--host", "127.0.0.1"]
    argv += ["--port", str(port), *bed.server_args, *args]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(bed, dump_dir if patched else None, env or {}, before),
            cwd=work,
            start_new_session=True,
        )
    return Server(f"http://127.0.0.1:{port}", dump_dir, log, process)


@contextlib.contextmanager
def running(bed: install.TestBed, model: Path, work: Path, *args: str, **options: Any) -> Iterator[Server]:
    """A healthy server; its whole process group is gone afterwards."""
    server = launch(bed, model, work, args, **options)
    try:
        _wait_healthy(server)
        yield server
    finally:
        stop(server)


class Relay:
    """Servers of one module, used in their order: while one is used, the next one starts."""

    def __init__(self, *starts: Callable[[], Server]) -> None:
        self._starts = starts
        self._launched: dict[int, Server] = {}

    @contextlib.contextmanager
    def use(self, index: int) -> Iterator[Server]:
        """A healthy server; its whole process group is gone afterwards."""
        server = self._launch(index)
        try:
            _wait_healthy(server)
            if index + 1 < len(self._starts):
                self._launch(index + 1)
            yield server
        finally:
            del self._launched[index]
            stop(server)

    def _launch(self, index: int) -> Server:
        if index not in self._launched:
            self._launched[index] = self._starts[index]()
        return self._launched[index]

    def close(self) -> None:
        """Stop what was started and not used."""
        for server in self._launched.values():
            stop(server)


def _wait_healthy(server: Server) -> None:
    end = time.monotonic() + START_LIMIT
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            if server.get("/health") == 200:
                return
        if server.process.poll() is not None or time.monotonic() > end:
            tail = server.log.read_text(errors="replace")[-4000:]
            raise AssertionError(f"the server did not come up (exit code {server.process.poll()})\n{tail}")
        time.sleep(0.2)


def stop(server: Server) -> None:
    """End the server's process group, politely first, and see that nothing of it is left."""
    group = server.process.pid
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + STOP_LIMIT
    while _alive(group) and time.monotonic() < end:
        server.process.poll()
        time.sleep(0.05)
    if _alive(group):
        os.killpg(group, signal.SIGKILL)
    server.process.wait(timeout=10)
    wait_for(lambda: not _alive(group), f"the end of process group {group}")


def _alive(group: int) -> bool:
    """Whether any process of the group is more than a zombie."""
    for pid in members(group):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return True
    return False


def members(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[2]) == group:
                found.append(int(name))
    return found


def command_line(pid: int) -> str:
    """What a process calls itself; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def recorder(records: Path, **switches: str) -> tuple[list[Path], dict[str, str]]:
    """The path entry and the environment that bring the tests' own observer into every process of a server."""
    env = {"RECORDER_DIR": str(records), "RECORDER_NEXT": str(install.STUBS / "sitecustomize.py"), **switches}
    return [Path(__file__).parent / "recorder"], env


def modules_of(server: Server) -> list[dict[str, str]]:
    """What every Python process of a server with the recorder has imported: {module: file}."""
    records = server.log.parent / "records"
    (records / "ask").touch()
    processes = members(server.process.pid)

    def answers() -> list[Path]:
        return [path for pid in processes if (path := records / f"modules.{pid}.json").exists()]

    wait_for(lambda: len(answers()) == len(processes), f"the modules of {processes}")
    return [json.loads(path.read_text()) for path in answers()]
