"""Memory and speed of `verify` by the number of files: a dataset of very small ones, many names of one file.

PYTHONPATH=.:remote:patch BOX_PYTHON tests/bench/verify_memory.py [--rows 100000 400000] [--work DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from eagle3_remote.extract import arrow, spool, verify
from eagle3_remote.extract.dataset import Dataset, write_json
from eagle3_remote.extract.records import StoredFile
from tests.extract import made

IDS = list(range(1, 21))
_LINKS = 50_000
"""Names of one file: ext4 allows 65,000."""


def make(root: Path, rows: int) -> Dataset:
    """A complete dataset of so many rows, all alike."""
    data = root.with_suffix(".jsonl")
    data.write_text((json.dumps({"input_ids": IDS}) + "\n") * rows)
    dataset, journal = made.journal_of(root, data)
    raw = made.states_bytes(IDS)
    for row in range(rows):
        path = Path(dataset.states, f"hs_{row}.safetensors")
        if row % _LINKS == 0:
            path.write_bytes(raw)
            first = path
        else:
            os.link(first, path)
    journal.put("identity", {"boundaries": [2, 4, 5], "final": "pre", "model": "", "data": "", "max_seq_len": 0})
    journal.set_stored(StoredFile(row + 1, row, len(raw), zlib.crc32(raw), 0.0) for row in range(rows))
    facts = {"boundaries": [2, 4, 5], "hidden_size": made.HIDDEN, "dtype": "bfloat16", "final": "pre", "max_seq_len": 0}
    write_json(dataset.manifest, {**facts, "complete": True, "model": {"fingerprint": ""}, "data": {"blake2b": ""}})
    arrow.write(dataset, (spool.read(dataset.spool, entry) for entry in journal.stored()), "0" * 16)
    journal.close()
    return dataset


def measure(root: str) -> None:
    """Check one dataset in this process and print what it took."""
    began = time.monotonic()
    report = verify.verify(root)
    seconds = time.monotonic() - began
    # of this program alone; ru_maxrss would begin with that of the process that started it
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024
    rate = report.samples / seconds
    sys.stdout.write(f"{report.samples} rows, {report.problem_count} problems: {peak} MiB, {rate:.0f} files/s\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 400_000])
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(args.one)
        return
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        for rows in args.rows:
            dataset = make(Path(work) / str(rows), rows)
            subprocess.run([sys.executable, __file__, "--one", dataset.root], check=True)


if __name__ == "__main__":
    main()
