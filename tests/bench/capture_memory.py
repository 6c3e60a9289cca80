"""Peak GPU and pinned memory of the patch's capture, on a GPU, without a server: PYTHONPATH=patch python3 capture_memory.py

Prefills of 8192 rows at hidden 7168 and four states go through `Capture` as fast as the GPU makes them, while a sweeper takes
the dumps away. Prints one JSON object. Exit code 1 where the GPU held more than `BATCHES_IN_COPY` batches of packed rows, the
host more than the budget, or a row is not the one that was captured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
import types
from pathlib import Path

import torch
from safetensors.torch import load_file

from eagle3_patch.capture import BATCHES_IN_COPY, Capture
from eagle3_patch.config import Settings

ROWS, HIDDEN, STATES, REQUESTS = 8192, 7168, 4, 6


class Req:
    """What the capture reads of SGLang's request."""

    def __init__(self, rid: str, ids: list[int]) -> None:
        self.rid, self.origin_input_ids = rid, ids

    def finished(self) -> bool:
        """Never."""
        return False


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump-dir", type=Path, default=Path("/dev/shm/eagle3-capture-memory"))
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--budget", type=int, default=2 * 1024**3)
    args = parser.parse_args()
    args.dump_dir.mkdir(parents=True)
    taps = types.SimpleNamespace(hidden_size=HIDDEN, columns=lambda hidden, aux: [*aux, hidden])
    settings = Settings(str(args.dump_dir), (2, 4, 5), "pre", "safetensors", "e3-", args.budget, 0)
    facts = {"boundaries": [2, 4, 5], "final": "pre", "layout": "safetensors"}
    capture = Capture(settings, taps, facts, torch.device("cuda"))  # type: ignore[arg-type]
    columns = [torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(STATES)]
    ids = torch.arange(ROWS, device="cuda")
    # every row's first value says which column it is of, and its second to fourth which row
    for number, column in enumerate(columns):
        column[:, 0] = number
        column[:, 1], column[:, 2] = ids // 128, ids % 128
    cuts = [ROWS * n // REQUESTS for n in range(REQUESTS + 1)]
    wrong: list[str] = []
    seen, leave = [0], threading.Event()

    def sweep() -> None:
        while not leave.is_set() or any(args.dump_dir.glob("req_*")):
            for folder in list(args.dump_dir.glob("req_*")):
                if (folder / "error.json").exists():
                    wrong.append((folder / "error.json").read_text())
                elif (folder / "done").exists():
                    check(folder, wrong)
                    seen[0] += 1
                else:
                    continue
                shutil.rmtree(folder)
            time.sleep(0.005)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    begin, held = time.perf_counter(), 0
    for batch in range(args.batches):
        requests = [Req(f"e3-{batch}-{cuts[n]}-{n}", list(range(cuts[n], cuts[n + 1]))) for n in range(REQUESTS)]
        lengths = [len(request.origin_input_ids) for request in requests]
        batch_ = types.SimpleNamespace(reqs=requests, prefix_lens=[0] * REQUESTS, extend_lens=lengths)
        capture.begin(batch_, types.SimpleNamespace(waiting_queue=[], chunked_req=None))
        capture.collect(ids, columns[-1], columns[:-1], None)
        capture.end()
        held = max(held, capture._pool.taken)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - base
    while capture._pool.taken:
        time.sleep(0.01)
    seconds = time.perf_counter() - begin
    leave.set()
    sweeper.join()
    batch_bytes = ROWS * (STATES * HIDDEN * 2 + 8)
    result = {
        "batch_bytes": batch_bytes,
        "gpu_peak_bytes": peak,
        "gpu_peak_batches": round(peak / batch_bytes, 3),
        "pinned_budget": args.budget,
        "pinned_bytes": capture._pool.made,
        "pinned_peak_in_use": held,
        "dumps": seen[0],
        "GB_per_s": round(args.batches * batch_bytes / 1e9 / seconds, 2),
        "wrong": wrong[:3],
    }
    sys.stdout.write(json.dumps(result) + "\n")
    args.dump_dir.rmdir()
    slack = 4 * 1024**2
    good = peak <= BATCHES_IN_COPY * batch_bytes + slack and capture._pool.made <= args.budget
    return int(not good or bool(wrong) or seen[0] != args.batches * REQUESTS)


def check(folder: Path, wrong: list[str]) -> None:
    """Some rows of a dump against the columns that it was taken from."""
    first = int(folder.name.split("-")[2])
    loaded = load_file(folder / "states.safetensors")
    states, own = loaded["hidden_states"], loaded["token_ids"]
    positions = torch.arange(first, first + len(own))
    if not torch.equal(own, positions):
        wrong.append(f"{folder.name}: other ids")
    expected = torch.stack([positions // 128, positions % 128], dim=1).to(torch.bfloat16)
    for number, column in enumerate(states.unbind(1)):
        if not (column[:, 0] == number).all() or not torch.equal(column[:, 1:3], expected):
            wrong += [f"{folder.name}: other rows in column {number}"]


if __name__ == "__main__":
    sys.exit(main())
