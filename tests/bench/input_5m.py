"""An input of five million samples: seconds until the first is sent, and the memory of the extraction while it reads them all.

The extraction is the real job; the server is the stand-in of the tests, for what is measured here is the driver. Then it is stopped and
started again, which must not read anything anew.

    python tests/bench/input_5m.py --python BOX_PYTHON [--lines 5000000] [--tokens 60] [--no-rest] [--out DIR] [--seconds 1800] [--work DIR]
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from eagle3_remote.protocol import ExtractSpec
from tests.extract import jobs
from tests.extract.standin import StandIn, standin

NO_REST = "import eagle3_remote.extract.reading as reading; reading._REST = 0.0; "


def make(path: Path, lines: int, tokens: int) -> None:
    """Samples of `tokens` ids on average, drawn from 10,000 different ones (so most repeat)."""
    rng = random.Random(1)
    texts = []
    for number in range(10_000):
        count = rng.randint(1, 2 * tokens - 1)
        ids = [rng.randrange(1000) for _ in range(count)]
        texts.append(json.dumps({"input_ids": ids, "loss_mask": [1] * count})[:-1] + f', "id": "{number}-')
    with path.open("w") as file:
        for number in range(lines):
            file.write(f'{rng.choice(texts)}{number}"}}\n')


def memory(pid: int) -> dict[str, int]:
    """MB of a process: resident, of which its own (not pages of files), and the most so far."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) // 1000 for name in ("VmRSS", "RssAnon", "VmHWM")}


def run(python: Path, run_dir: Path, server: StandIn, seconds: float, no_rest: bool) -> dict[str, object]:
    """One start: when the first sample was sent, memory then and later, and whether all was read in the time."""
    server.prompts.clear()
    began = time.monotonic()
    first = read = 0.0
    most = {"VmRSS": 0, "RssAnon": 0, "VmHWM": 0}
    code = jobs.CODE.format(module="__main__") + (NO_REST if no_rest else "") + jobs.PLAIN
    with (
        (run_dir / "out.log").open("ab") as log,
        subprocess.Popen([str(python), "-u", "-c", code, str(run_dir)], stdout=log, stderr=log) as process,
    ):
        try:
            while time.monotonic() - began < seconds and not read:
                time.sleep(0.02 if not first else 0.5)
                assert process.poll() is None, (run_dir / "out.log").read_text()
                now = memory(process.pid)
                if not first and server.prompts:
                    first = time.monotonic() - began
                    at_first = now
                most = {name: max(most[name], now[name]) for name in most}
                if first and (run_dir / "progress.json").exists() and jobs.status(run_dir).total_final:
                    read = time.monotonic() - began
            status = jobs.status(run_dir)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
    return {
        "first_sample_sent_s": round(first, 2),
        "all_read_s": round(read, 1),
        "samples_read": status.total,
        "stored_meanwhile": status.stored,
        "MB_at_first_sample": at_first,
        "MB_most": most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--out", type=Path, help="go on with this dataset, and keep it; default: a new one, started twice"
    )
    parser.add_argument("--no-rest", action="store_true", help="read on at full speed while far ahead of sending")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Path(folder)
        data = args.work / f"input_{args.lines}_{args.tokens}.jsonl"
        if not data.exists():
            make(data, args.lines, args.tokens)
        sys.stdout.write(
            json.dumps({"input": str(data), "GB": round(data.stat().st_size / 1e9, 2), "lines": args.lines}) + "\n"
        )
        with standin(work) as server:
            spec = ExtractSpec(
                data=str(data),
                out=str(args.out or work / "out"),
                server_url=server.url,
                dump_dir=str(server.dump_dir),
                model=str(server.model),
            )
            run_dir = jobs.prepare(work / "run", spec)
            for name in ("new", "resumed") if args.out is None else ("goes on",):
                sys.stdout.write(
                    json.dumps({name: run(args.python, run_dir, server, args.seconds, args.no_rest)}) + "\n"
                )
                sys.stdout.flush()
            sizes = {path.name: path.stat().st_size // 1_000_000 for path in (Path(spec.out) / ".eagle3").iterdir()}
            sys.stdout.write(json.dumps({"MB in .eagle3": sizes}) + "\n")


if __name__ == "__main__":
    main()
