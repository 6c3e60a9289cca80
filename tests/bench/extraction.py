"""A whole extraction against what its parts can do: prefill of the unpatched server, and the disk. Standard library only.

    python3 extraction.py --python PYTHON --shape v2-lite --work DIR --out DIR [--pythonpath A:B] [--rounds 3] [--json OUT]

The interpreter needs SGLang for the servers, and httpx, numpy and pyarrow for the extraction. Servers with the patch off, on, and
captured the hand-made way are started one after the other and stay up. Every round takes the same samples (lengths as in a real
extraction) through all three: the unpatched server with ``--concurrency`` requests in flight; the extraction as a person runs it by
hand, until every row is durable in ``--out`` and journalled; and, with fewer samples, the hand-made way: one at a time, ``torch.save``
inside the forward, files copied to ``--out``. The disk's limit is what threads write and sync there.

Prints one JSON object; ``ratios`` has what counts. Exit code 1 where a server did not come up, a sample is missing or wrong, or the
dataset does not verify.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import prefill  # noqa: E402
import shapes  # noqa: E402

ROOT = HERE.parents[1]
DISK_THREADS, DISK_PIECE = 8, 64 << 20


def disk_limit(out: Path, size: int = 8 << 30) -> float:
    """GB/s that threads write into new files of 128 MiB in `out` and sync."""
    piece = os.urandom(1 << 20) * (DISK_PIECE >> 20)
    folder = out / f"limit-{os.getpid()}"
    folder.mkdir()

    def one(number: int) -> None:
        with open(folder / str(number), "xb", buffering=0) as file:
            file.write(piece)
            file.write(piece)
            os.fsync(file.fileno())

    count = size // (2 * DISK_PIECE)
    begin = time.perf_counter()
    with ThreadPoolExecutor(DISK_THREADS) as pool:
        list(pool.map(one, range(count)))
    taken = time.perf_counter() - begin
    shutil.rmtree(folder)
    return count * 2 * DISK_PIECE / 1e9 / taken


def environment(args: argparse.Namespace) -> dict[str, str]:
    """What the extraction's own processes are started with."""
    paths = [str(ROOT / "remote"), str(ROOT / "patch"), *filter(None, [args.pythonpath])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def extract(
    server: prefill.Server,
    args: argparse.Namespace,
    model: Path,
    data: Path,
    samples: Sequence[Sequence[int]],
    label: str,
) -> dict[str, Any]:
    """One extraction by hand, and a look at what it left.

    Raises:
        RuntimeError: a sample is missing, or the dataset does not verify.
    """
    out = args.out / f"bench-{os.getpid()}-{label}"
    words = ["--server-url", f"http://127.0.0.1:{server.port}", "--prepared-data", data, "--output-dir", out]
    words += ["--hs-dump-dir", server.dump_dir, "--model", model]
    words += ["--tokens-in-flight", str(args.tokens_in_flight)] + ([] if args.probe else ["--no-probe"])
    argv = [args.python, "-m", "eagle3_remote.extract", *map(str, words)]
    if args.no_arrow:
        code = (
            "import sys; from eagle3_remote.extract import __main__ as m; m.NEEDED = (); sys.exit(m.main(sys.argv[1:]))"
        )
        argv[1:3] = ["-c", code]
    begin = time.perf_counter()
    log = args.work / f"extract-{label}.log"
    with log.open("wb") as file:
        code = subprocess.run(argv, stdout=file, stderr=subprocess.STDOUT, env=environment(args)).returncode
    whole = time.perf_counter() - begin
    try:
        with sqlite3.connect(out / ".eagle3/journal.sqlite3") as journal:
            asked = "SELECT count(*), total(bytes) FROM samples WHERE state = 'stored'"
            stored, size = journal.execute(asked).fetchone()
            flow = json.loads(journal.execute("SELECT value FROM meta WHERE key = 'flow'").fetchone()[0])
    except (sqlite3.Error, TypeError):
        stored, size, flow = 0, 0.0, {}
    files = len(list((out / "hidden_states").glob("hs_*.safetensors")))
    if (code and not args.no_arrow) or not stored == files == len(samples):
        tail = log.read_text(errors="replace")[-4000:]
        raise RuntimeError(f"the extraction stored {stored} of {len(samples)} samples and exited with {code}\n{tail}")
    found = {
        "mode": "extraction",
        "tokens_per_s": round(flow["tokens"] / flow["seconds"]),
        "seconds": round(flow["seconds"], 3),
        "seconds_with_start_and_end": round(whole, 3),
        "cores": round(flow["cpu_seconds"] / flow["seconds"], 2),
        "GB_per_s": round(size / 1e9 / flow["seconds"], 3),
    }
    if not args.no_arrow:
        code = "import sys; from eagle3_remote.extract.verify import main; sys.exit(main(sys.argv[1:]))"
        done = subprocess.run(
            [args.python, "-c", code, str(out)], capture_output=True, text=True, env=environment(args)
        )
        report = (
            json.loads(done.stdout) if done.returncode in (0, 7) else {"ok": False, "problems": done.stderr[-2000:]}
        )
        if not report["ok"]:
            raise RuntimeError(f"the dataset does not verify: {report['problems']}")
        found["verify_GB_per_s"] = round(report["bytes"] / 1e9 / report["seconds"], 3)
    shutil.rmtree(out)
    return found


def by_hand(
    server: prefill.Server, args: argparse.Namespace, samples: Sequence[list[int]], label: str
) -> dict[str, Any]:
    """The hand-made way: send one, wait for its files, copy them, delete them, send the next.

    Raises:
        RuntimeError: a request failed, or its files did not come.
    """
    out = args.out / f"bench-{os.getpid()}-handmade-{label}"
    out.mkdir()
    begin = time.perf_counter()
    for number, ids in enumerate(samples):
        rid = f"e3-hand-{label}-{number}"
        folder = server.dump_dir / f"req_{rid}"
        prefill.send(server.port, [(rid, ids)], 1)
        while not (folder / "done").exists():
            if time.perf_counter() - begin > prefill.ROUND_LIMIT:
                raise RuntimeError(f"{folder} did not come")
            time.sleep(0.002)
        shutil.copytree(folder, out / str(number))
        shutil.rmtree(folder)
    taken = time.perf_counter() - begin
    shutil.rmtree(out)
    return {"mode": "handmade", "tokens_per_s": round(sum(map(len, samples)) / taken), "seconds": round(taken, 3)}


def summary(rounds: Sequence[Mapping[str, Any]], disk: float, token_bytes: int) -> dict[str, Any]:
    """Medians and the two ratios that count."""
    median = {
        mode: statistics.median(one["tokens_per_s"] for one in rounds if one["mode"] == mode)
        for mode in dict.fromkeys(one["mode"] for one in rounds)
    }
    carried = round(disk * 1e9 / token_bytes)
    ratios = {}
    if "off" in median:
        limit = min(median["off"], carried)
        ratios["extraction / min(unpatched prefill, disk)"] = round(median["extraction"] / limit, 3)
    if "handmade" in median:
        ratios["extraction / handmade"] = round(median["extraction"] / median["handmade"], 2)
    return {"median_tokens_per_s": median, "disk_tokens_per_s": carried, "ratios": ratios}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Start, measure, stop."""
    model = args.model or shapes.write(args.shape, args.work / f"model-{args.shape}")
    config = json.loads((model / "config.json").read_text())
    samples = prefill.prompts(args.samples, config["vocab_size"], args.longest)
    data = args.work / "tokenized_data.jsonl"
    data.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))
    disks = [disk_limit(args.out)]
    result: dict[str, Any] = {
        "shape": str(args.model or args.shape),
        "samples": len(samples),
        "tokens": sum(map(len, samples)),
        "concurrency": args.concurrency,
        "tokens_in_flight": args.tokens_in_flight,
        "rounds": [],
    }
    servers: dict[str, prefill.Server] = {}
    try:
        for mode in args.modes:
            servers[mode] = prefill.launch(mode, args, model)
            prefill.measure(servers[mode], samples[:64], args.concurrency, f"warm-{mode}")
        for number in range(args.rounds):
            for mode, server in servers.items():
                if mode == "off":
                    found = prefill.measure(server, samples, args.concurrency, f"{number}-off")
                elif mode == "on":
                    found = extract(server, args, model, data, samples, str(number))
                else:
                    found = by_hand(server, args, samples[: args.handmade_samples], str(number))
                prefill.say(f"round {number + 1} of {args.rounds}: {json.dumps(found)}")
                result["rounds"].append({"round": number} | found)
            disks.append(disk_limit(args.out))
    finally:
        for server in servers.values():
            prefill.stop(server)
    token_bytes = 4 * config["hidden_size"] * 2
    result["disk_GB_per_s"] = [round(one, 3) for one in disks]
    return result | summary(result["rounds"], statistics.median(disks), token_bytes)


def main() -> int:
    """Read the command line and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prefill.add_server_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, help="the file system that datasets are written to")
    parser.add_argument("--modes", nargs="+", choices=prefill.MODES, default=prefill.MODES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--handmade-samples", type=int, default=64)
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--concurrency", type=int, default=32, help="requests in flight at the unpatched server")
    parser.add_argument("--tokens-in-flight", type=int, default=0, help="of the extraction (default: its own)")
    parser.add_argument(
        "--probe", action="store_true", help="let the extraction probe first; dummy weights have no lm_head file"
    )
    parser.add_argument(
        "--no-arrow",
        action="store_true",
        help="where pyarrow is missing: leave out the end of the extraction, and verify",
    )
    args = parser.parse_args()
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    args.out, args.work = args.out.resolve(), args.work.resolve()
    return prefill.print_result(run, args)


if __name__ == "__main__":
    sys.exit(main())
