"""Prefill speed with the patch off, with the patch on, and captured the hand-made way. Standard library only.

    python3 prefill.py --python PYTHON --shape v2-lite --work DIR [--pythonpath A:B] [--rounds 5] [--json OUT]

Three servers are started one after the other on one GPU and stay up; the rounds alternate between them, so that whatever
the machine does in between meets all three. Every round sends the same prompts, with lengths as in a real extraction
(log-normal, median about 1267, 99 to 4096). The clock of a round stops when every request is answered **and** every
dump is complete. Complete dumps are deleted at once, as an extraction does. A GPU needs room for the weights three times.

Prints one JSON object: each round's tokens/s, the medians, their ratios, bytes and the machine's limits. Exit code 1 where
a server did not come up or a request or dump went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import random
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import shapes  # noqa: E402

ENTRY = HERE.parents[1] / "patch" / "eagle3_patch" / "entry"
MODES = ("off", "on", "handmade")
START_LIMIT = 330.0
ROUND_LIMIT = 150.0
GPU_ARGS = (
    "--load-format dummy --skip-tokenizer-init --attention-backend triton --disable-cuda-graph --disable-radix-cache "
    "--grammar-backend none --chunked-prefill-size 8192 --max-total-tokens 163840 --mem-fraction-static 0.85 "
    "--max-running-requests 64"
)


@dataclasses.dataclass(frozen=True)
class Server:
    """A server of ours, in a process group of its own."""

    mode: str
    port: int
    dump_dir: Path
    log: Path
    process: subprocess.Popen[bytes]


@dataclasses.dataclass
class Swept:
    """What has come out complete so far; the folders are deleted."""

    done: int = 0
    failed: int = 0
    size: int = 0


def say(text: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")
    sys.stderr.flush()


def prompts(count: int, vocab: int, longest: int, seed: int = 7, length: int | None = None) -> list[list[int]]:
    """The same prompts at every call: of one length, or of those of a real extraction."""
    draw = random.Random(seed)
    if length is not None:
        lengths = [length] * count
    else:
        lengths = [min(longest, max(min(99, longest), int(draw.lognormvariate(7.14, 0.8)))) for _ in range(count)]
    return [[draw.randrange(5, vocab - 5) for _ in range(length)] for length in lengths]


def environment(mode: str, pythonpath: str, dump_dir: Path, extra: Sequence[str]) -> dict[str, str]:
    """What a server of this mode is started with."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("EAGLE3_", "HANDMADE_"))}
    env |= {"SGLANG_ENABLE_JIT_DEEPGEMM": "0", "HF_HUB_OFFLINE": "1"} | dict(pair.split("=", 1) for pair in extra)
    before = {"off": (), "on": (ENTRY,), "handmade": (HERE / "handmade",)}[mode]
    env["PYTHONPATH"] = os.pathsep.join([*map(str, before), *filter(None, [pythonpath])])
    env |= {"off": {}, "on": {"EAGLE3_DUMP_DIR": str(dump_dir)}, "handmade": {"HANDMADE_DIR": str(dump_dir)}}[mode]
    return env


def launch(mode: str, args: argparse.Namespace, model: Path) -> Server:
    """Start a server and wait until it is healthy.

    Raises:
        RuntimeError: it exited or took too long; the message ends with its log.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dump_dir, log = args.dump_root / f"bench-{os.getpid()}-{mode}", args.work / f"{mode}.log"
    dump_dir.mkdir(parents=True)
    argv = [args.python, "-m", "sglang.launch_server", "--model-path", str(model), "--host", "127.0.0.1"]
    argv += ["--port", str(port), *shlex.split(args.server_args)]
    say(f"starting: {mode}")
    with log.open("wb") as out:
        env = environment(mode, args.pythonpath, dump_dir, args.env)
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
    server, end = Server(mode, port, dump_dir, log, process), time.monotonic() + START_LIMIT
    while not healthy(port):
        if process.poll() is not None or time.monotonic() > end:
            tail = log.read_text(errors="replace")[-6000:]
            stop(server)
            raise RuntimeError(f"{mode}: the server did not come up (exit code {process.poll()})\n{tail}")
        time.sleep(0.5)
    return server


def healthy(port: int) -> bool:
    """Whether the server answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def stop(server: Server) -> None:
    """End the group that `launch` started, and remove its dump."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    shutil.rmtree(server.dump_dir, ignore_errors=True)


@contextlib.contextmanager
def sweeping(dump_dir: Path) -> Iterator[Swept]:
    """Count and delete complete requests until left."""
    swept, leave = Swept(), threading.Event()

    def sweep() -> None:
        while not leave.is_set():
            for folder in list(dump_dir.glob("req_*")):
                if (folder / "done").exists():
                    swept.size += sum(file.stat().st_size for file in folder.iterdir())
                    shutil.rmtree(folder)
                    swept.done += 1
                elif (folder / "error.json").exists():
                    say((folder / "error.json").read_text())
                    shutil.rmtree(folder)
                    swept.failed += 1
            leave.wait(0.01)

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield swept
    finally:
        leave.set()
        thread.join()


def send(port: int, jobs: Sequence[tuple[str, list[int]]], concurrency: int, new_tokens: int = 0) -> None:
    """Send every prompt, `concurrency` in flight, and check every answer.

    Raises:
        RuntimeError: an answer is not 200, or tells of another number of tokens or of a cached one.
    """
    local = threading.local()

    def one(job: tuple[str, list[int]]) -> None:
        rid, ids = job
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ROUND_LIMIT)
        sampling = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        body = json.dumps({"rid": rid, "input_ids": ids, "sampling_params": sampling})
        local.connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
        answer = local.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{rid}: HTTP {answer.status}: {text[:300]!r}")
        meta = json.loads(text)["meta_info"]
        if (meta["prompt_tokens"], meta["cached_tokens"]) != (len(ids), 0):
            raise RuntimeError(f"{rid}: {len(ids)} tokens were sent, the server tells of {meta}")

    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(one, jobs))


def wait_until_done(dump_dir: Path, count: int) -> None:
    """Wait for that many complete requests.

    Raises:
        RuntimeError: they did not come.
    """
    end = time.monotonic() + ROUND_LIMIT
    while len(list(dump_dir.glob("req_*/done"))) < count:
        if time.monotonic() > end or list(dump_dir.glob("req_*/error.json")):
            raise RuntimeError(f"{dump_dir} has {sorted(path.name for path in dump_dir.glob('req_*/*'))}")
        time.sleep(0.01)


def measure(server: Server, samples: Sequence[list[int]], concurrency: int, label: str) -> dict[str, Any]:
    """One round.

    Raises:
        RuntimeError: a request failed, or a dump is not complete.
    """
    jobs = [(f"e3-bench-{label}-{index}", ids) for index, ids in enumerate(samples)]
    tokens = sum(map(len, samples))
    with sweeping(server.dump_dir) as swept:
        begin = time.perf_counter()
        send(server.port, jobs, concurrency)
        answered = time.perf_counter() - begin
        while server.mode != "off" and swept.done + swept.failed < len(jobs):
            if time.perf_counter() - begin > ROUND_LIMIT:
                break
            time.sleep(0.002)
        written = time.perf_counter() - begin
    if server.mode != "off" and (swept.done, swept.failed) != (len(jobs), 0):
        raise RuntimeError(f"{server.mode}: {swept.done} of {len(jobs)} dumps are complete, {swept.failed} failed")
    return {
        "mode": server.mode,
        "tokens_per_s": round(tokens / written),
        "tokens_per_s_answered": round(tokens / answered),
        "seconds": round(written, 3),
        "dump_GB_per_s": round(swept.size / 1e9 / written, 3),
        "gpu_mib_in_use": gpu_memory(),
    }


def gpu_memory() -> int | None:
    """MiB in use on the first GPU, by all processes; `None` without one."""
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None


def summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians and ratios."""
    median = {
        mode: statistics.median(r["tokens_per_s"] for r in rounds if r["mode"] == mode)
        for mode in dict.fromkeys(r["mode"] for r in rounds)
    }
    ratios = {
        f"on/{other}": round(median["on"] / median[other], 3)
        for other in ("off", "handmade")
        if "on" in median and other in median
    }
    return {"median_tokens_per_s": median, "ratios": ratios}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Start, measure, stop."""
    model = args.model or shapes.write(args.shape, args.work / f"model-{args.shape}")
    config = json.loads((model / "config.json").read_text())
    samples = prompts(args.samples, config["vocab_size"], args.longest)
    result: dict[str, Any] = {
        "shape": str(args.model or args.shape),
        "hidden_size": config["hidden_size"],
        "samples": len(samples),
        "tokens": sum(map(len, samples)),
        "concurrency": args.concurrency,
        "gpu_mib_after_start": {},
        "rounds": [],
    }
    say("measuring the machine's limits")
    ask = [args.python, str(HERE / "limits.py"), str(args.dump_root)]
    result["limits_GB_per_s"] = json.loads(subprocess.run(ask, check=True, capture_output=True, text=True).stdout)
    servers: list[Server] = []
    try:
        for mode in args.modes:
            servers.append(launch(mode, args, model))
            measure(servers[-1], samples, args.concurrency, f"warm-{mode}")
            result["gpu_mib_after_start"][mode] = gpu_memory()
        for number in range(args.rounds):
            for server in servers:
                found = measure(server, samples, args.concurrency, f"{number}-{server.mode}")
                say(f"round {number + 1} of {args.rounds}: {json.dumps(found)}")
                result["rounds"].append({"round": number} | found)
    finally:
        for server in servers:
            stop(server)
    return result | summary(result["rounds"])


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """What every measurement with servers asks for."""
    parser.add_argument("--python", default=sys.executable, help="an interpreter with SGLang")
    parser.add_argument("--pythonpath", default="", help="what else that interpreter needs on PYTHONPATH")
    parser.add_argument("--shape", choices=shapes.SHAPES, default="v2-lite")
    parser.add_argument("--model", type=Path, help="a model folder, instead of a shape")
    parser.add_argument("--work", type=Path, required=True, help="a folder for logs and the model's config.json")
    parser.add_argument("--dump-root", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--server-args", default=GPU_ARGS)
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", type=Path, help="where the result is written as well")


def print_result(measure: Callable[[argparse.Namespace], dict[str, Any]], args: argparse.Namespace) -> int:
    """Measure and print it, into the file that is named as well; the exit code."""
    try:
        result = measure(args)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if args.json:
        args.json.write_text(text + "\n")
    return 0


def main() -> int:
    """Read the command line and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_server_arguments(parser)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--concurrency", type=int, default=32)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    return print_result(run, args)


if __name__ == "__main__":
    sys.exit(main())
