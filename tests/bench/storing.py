"""How fast complete dumps become stored files: check, copy, fsync, name, journal, delete. No server, no GPU.

    PYTHONPATH=.:remote:patch PYTHON tests/bench/storing.py --dumps /dev/shm --out DIR [--samples 24] [--tokens 1700] [--hidden 7168]

PYTHON needs numpy. Every round makes real dump folders and lets the extraction's own `Storer` take them; in between the same bytes are
written and synced by as many threads with nothing looked at, which is what the disk can do. Prints one JSON object: GB/s (1e9 bytes),
cores used, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy

from eagle3_patch import layout
from eagle3_remote.extract import collect
from eagle3_remote.extract.checks import DumpCheck, Expected
from eagle3_remote.extract.dataset import Dataset
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.extract.records import SENT
from eagle3_remote.extract.scan import Norms
from eagle3_remote.extract.storing import Dump, Storer
from eagle3_remote.protocol import ExtractSpec
from tests.extract.made import journal_of, plan_of, write_data

BOUNDARIES = (2, 4, 5)


def write_dumps(dumps: Path, samples: int, tokens: int, hidden: int) -> None:
    """Complete dumps of bf16 rows, as the patch leaves them."""
    draw = numpy.random.default_rng(0)
    rows = (draw.standard_normal((tokens, 4, hidden), dtype=numpy.float32).view("<u4") >> 16).astype("<u2")
    for row in range(samples):
        folder = dumps / layout.folder_name(f"{layout.RID_PREFIX}b-{row}")
        folder.mkdir(parents=True)
        ids = array.array("q", sample_ids(row, tokens))
        size = tokens * 4 * hidden * 2
        header = {
            "token_ids": {"dtype": "I64", "shape": [tokens], "data_offsets": [0, tokens * 8]},
            "hidden_states": {
                "dtype": "BF16",
                "shape": [tokens, 4, hidden],
                "data_offsets": [tokens * 8, tokens * 8 + size],
            },
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / layout.STATES_FILE).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + ids.tobytes())
            rows.tofile(file)
        (folder / layout.META_FILE).write_text(json.dumps({"boundaries": BOUNDARIES, "final": "pre"}))
        (folder / layout.DONE_FILE).touch()


def sample_ids(row: int, tokens: int) -> list[int]:
    return [(row + at) % 900 for at in range(tokens)]


def store(work: Path, dumps: Path, samples: int, tokens: int, hidden: int, threads: int) -> None:
    """Everything that an extraction does with them, from the complete dump to the deleted one."""
    data = work / "data.jsonl"
    write_data(data, [sample_ids(row, tokens) for row in range(samples)])
    dataset, journal = journal_of(work / "out", data)
    try:
        asyncio.run(_store(dataset, journal, dumps, hidden, threads))
        assert sum(1 for _ in journal.stored()) == samples
    finally:
        journal.close()


async def _store(dataset: Dataset, journal: Journal, dumps: Path, hidden: int, threads: int) -> None:
    reporter = Reporter(dataset.ours, ExtractSpec(data="", out=""))
    storer = Storer(plan_of(dataset, dumps), journal, reporter, Tuning(threads=threads))
    rename, norms = collect.can_rename(str(dumps), dataset.states), Norms()
    expected = Expected(BOUNDARIES, "pre", hidden, "bfloat16")
    commits = asyncio.create_task(storer.commit_until_closed())

    async def one(entry: Any) -> None:
        journal.set_state(entry.line, SENT)
        folder = dumps / layout.folder_name(f"{layout.RID_PREFIX}b-{entry.row}")
        ids = array.array("q", sample_ids(entry.row, entry.tokens))
        await storer.stage(Dump(entry, str(folder), rename, lambda: None), DumpCheck(expected, ids, norms))

    await asyncio.gather(*(one(entry) for entry in journal.waiting(100_000)))
    storer.closing = True
    await commits
    await storer.commit()
    storer.shutdown()


def write_plainly(work: Path, dumps: Path, threads: int) -> None:
    """The same bytes, written and synced with nothing looked at."""

    def one(folder: Path) -> None:
        with (folder / layout.STATES_FILE).open("rb") as source, (work / folder.name).open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
        shutil.rmtree(folder)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, dumps.iterdir()))


def measure(work: Callable[[], None], size: int) -> dict[str, float]:
    """GB/s and cores."""
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"GB_per_s": round(size / 1e9 / seconds, 3), "cores": round(cpu / seconds, 2)}


def main() -> int:
    """Read the command line and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=1700)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--threads", type=int, default=Tuning.threads)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    size = args.samples * args.tokens * (8 * args.hidden + 8)
    rounds: dict[str, list[dict[str, float]]] = {"stored": [], "written_plainly": []}
    for _ in range(args.rounds):
        for name, found in rounds.items():
            with tempfile.TemporaryDirectory(dir=args.dumps) as near, tempfile.TemporaryDirectory(dir=args.out) as far:
                dumps, work = Path(near), Path(far)
                write_dumps(dumps, args.samples, args.tokens, args.hidden)
                os.sync()
                if name == "stored":
                    shape = (args.samples, args.tokens, args.hidden)
                    found.append(measure(lambda d=dumps, w=work, s=shape: store(w, d, *s, args.threads), size))  # type: ignore[misc]
                else:
                    found.append(measure(lambda d=dumps, w=work: write_plainly(w, d, args.threads), size))  # type: ignore[misc]
    median = {name: statistics.median(one["GB_per_s"] for one in found) for name, found in rounds.items()}
    ratio = round(median["stored"] / median["written_plainly"], 3)
    result = {"GB": round(size / 1e9, 2), "threads": args.threads, "rounds": rounds, "median": median, "ratio": ratio}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
