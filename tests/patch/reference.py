"""What the tests hold a server's dump against: Hugging Face transformers, in a process that shares no code with it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch.servers import ROOT, Server

LAYERS = 8
"""Of every tiny model here."""
CHUNK = 64
LENGTHS = (1, 5, 20, 63, 64, 65, 100, 150, 200, 33, 8, 129)
TOLERANCE = 1e-4
"""Relative L2 error of a row. The states of neighbouring boundaries differ by about 1."""
EVERY_BOUNDARY = ",".join(map(str, range(LAYERS + 1)))
FLOAT32 = ("--dtype", "float32", "--disable-radix-cache", "--chunked-prefill-size", str(CHUNK))


def prompts(count: int, seed: int, lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    """Random ids of the given lengths, over and over."""
    draw = random.Random(seed)
    return [[draw.randrange(3, 1024) for _ in range(lengths[n % len(lengths)])] for n in range(count)]


def dump_all(server: Server, samples: dict[str, list[int]]) -> None:
    """Send all at once and wait until each is there complete."""
    with ThreadPoolExecutor(len(samples)) as pool:
        list(pool.map(lambda item: server.generate(*item), samples.items()))
    for rid in samples:
        folder = server.folder(rid)
        assert (folder / layout.DONE_FILE).exists(), (folder / layout.ERROR_FILE).read_text()


class HuggingFace:
    """The process that compares, started once; several threads may ask it."""

    def __init__(self, bed: install.TestBed) -> None:
        self._process = subprocess.Popen(
            [str(bed.python), str(ROOT / "tests" / "reference" / "hf_forward.py")],
            env=os.environ | bed.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lock = threading.Lock()

    def errors(self, model: Path, server: Server, samples: dict[str, list[int]], final: str) -> dict[str, list[float]]:
        """The largest relative error of any row, for each state of each request."""
        ask = {"model": str(model), "samples": samples, "dump_dir": str(server.dump_dir), "final": final}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(ask) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or '{"wrong": "the process has ended"}')
        assert "errors" in answer, answer
        found: dict[str, list[float]] = answer["errors"]
        assert set(found) == set(samples)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def worst(found: dict[str, list[float]]) -> float:
    """The largest of all."""
    return max(max(values) for values in found.values())
