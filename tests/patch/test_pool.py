"""The bound on memory: waits only while waiting can help, and holds whatever is taken in whatever order."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_console.demo.testbed import install
from eagle3_patch import pool
from eagle3_patch.pool import Pool
from tests.patch.servers import ENTRY

MB = 1024**2


def memory(size: int, slab: int) -> Sequence[memoryview]:
    segment = memoryview(bytearray(size))
    return [segment[start : start + slab] for start in range(0, size, slab)]


@pytest.fixture
def small() -> Pool[memoryview]:
    """64 slabs of 64 KiB."""
    return Pool(64 * 64 * 1024, memory)


def take(some: Pool[memoryview], count: int, patience: float = 3600) -> list[memoryview]:
    slabs = some.take(count, patience)
    assert slabs is not None
    return slabs


def test_more_than_all_of_it_is_refused_at_once(small: Pool[memoryview]) -> None:
    assert small.take(65, patience=3600) is None


def test_held_by_unfinished_requests_alone_nothing_is_waited_for(small: Pool[memoryview]) -> None:
    held = take(small, 60)
    assert small.take(8, patience=3600) is None
    small.drop(held)
    assert len(take(small, 64)) == 64


def test_what_a_writer_gives_back_lets_a_waiting_forward_go_on(small: Pool[memoryview]) -> None:
    held = take(small, 60)
    small.move(60)
    got: list[list[memoryview] | None] = []
    waiting = threading.Thread(target=lambda: got.append(small.take(8, patience=60)))
    waiting.start()
    small.written(held)
    waiting.join(30)
    assert [len(slabs) for slabs in got if slabs is not None] == [8]
    assert small.taken == 8 * small.slab_bytes


def test_patience_ends(small: Pool[memoryview]) -> None:
    take(small, 60)
    small.move(60)
    assert small.take(8, patience=0.01) is None
    assert small.taken == 60 * small.slab_bytes


@pytest.mark.parametrize("limit", [1, 15, 1000, 330_000, 3 * MB, 100 * MB, 700 * MB + 5])
def test_a_limit_that_is_no_power_of_two_is_never_passed(limit: int) -> None:
    sizes: list[int] = []

    def make(size: int, slab: int) -> Sequence[int]:
        sizes.append(size)
        return range(size // slab)

    whole: Pool[int] = Pool(limit, make)
    assert whole.take(whole.limit // whole.slab_bytes, 0) is not None
    assert sum(sizes) == whole.made == whole.limit <= limit
    assert all(size & (size - 1) == 0 for size in sizes)  # PyTorch's pinned allocator would round up
    assert limit - whole.limit < whole.slab_bytes


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_is_taken_and_given_back_is_within_the_limit_and_nobody_elses(data: st.DataObject) -> None:
    small = Pool(data.draw(st.integers(1, 4 * MB)), memory)
    held: list[tuple[list[memoryview], bool]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if held and data.draw(st.booleans()):
            slabs, moved = held.pop(data.draw(st.integers(0, len(held) - 1)))
            (small.written if moved else small.drop)(slabs)
            continue
        count = data.draw(st.integers(1, 90))
        asked = small.take(count, patience=0)
        room = small.limit - sum(len(slabs) for slabs, _ in held) * small.slab_bytes
        assert (asked is None) == (count * small.slab_bytes > room)
        if asked is not None:
            moved = data.draw(st.booleans())
            if moved:
                small.move(len(asked))
            held.append((asked, moved))
        assert small.made <= small.limit
        mine = [slab for slabs, _ in held for slab in slabs]
        assert small.taken == len(mine) * small.slab_bytes
        assert len({id(slab) for slab in mine}) == len(mine)


def test_large_pools_grow_by_segments() -> None:
    sizes: list[int] = []

    def make(size: int, slab: int) -> Sequence[int]:
        sizes.append(size)
        return range(size // slab)

    large: Pool[int] = Pool(8 * 1024 * MB, make)
    assert large.take(1, 0) is not None
    assert (large.slab_bytes, sizes) == (pool.SLAB_BYTES, [pool.SEGMENT_BYTES])


CAPTURE_FAILS = """
import json, os, sys, types
sys.path.insert(0, sys.argv[1])
import torch
from eagle3_patch import capture, config, layout

taps = types.SimpleNamespace(hidden_size=64, columns=lambda hidden, aux: [hidden] * 4)
settings = config.read_settings({"EAGLE3_DUMP_DIR": sys.argv[2]})
captured = capture.Capture(settings, taps, {"layout": "safetensors"}, torch.device("cpu"))

class Request:
    def __init__(self, rid):
        self.rid, self.origin_input_ids = rid, list(range(5000))

    def finished(self):
        return False

def no_memory(*args, **named):
    raise RuntimeError("CUDA out of memory")

taken = []
for owner, name in ((torch, "stack"), (torch.Tensor, "copy_")):
    real = getattr(owner, name)
    request = Request(f"{layout.RID_PREFIX}r-{name}-1")
    captured.begin(types.SimpleNamespace(reqs=[request], prefix_lens=[0], extend_lens=[5000]), None)
    setattr(owner, name, no_memory)
    captured.collect(torch.arange(5000), torch.zeros(5000, 64), None, None)
    setattr(owner, name, real)
    captured.end()
    taken.append([captured._pool.made > 0, captured._pool.taken])
with open(os.path.join(sys.argv[2], "taken"), "w") as file:
    json.dump(taken, file)
"""


def test_a_capture_that_fails_gives_its_slabs_back(tmp_path: Path) -> None:
    python = install.ensure(install.VERSIONS[0]).python
    command = [str(python), "-c", CAPTURE_FAILS, str(ENTRY.parents[1]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "taken").read_text()) == [[True, 0]] * 2
