"""Runs in an SGLang environment (torch): the start-up check on made-up ranks that exchange their shares as real ones do.

    python selfcheck_cases.py RELEASE

Prints {case: [what each rank's check ended with: its report, or why it refused]}.
"""

import json
import sys
import threading

sys.path.insert(0, sys.argv[1])

import torch

from eagle3_patch import selfcheck

ROWS, HIDDEN, NAMES = 100, 16, ("boundary 2", "boundary 4", "the final state")


def norm(x):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)


def states(dtype=torch.float32, rows=ROWS):
    """What every rank has on a good server: captured states, the stream before the norm, and after it."""
    draw = torch.Generator().manual_seed(0)
    columns = [torch.randn(rows, HIDDEN, generator=draw).to(dtype) for _ in range(3)]
    return columns, columns[2], norm(columns[2])


def ranks_end(*give, rows=ROWS):
    """Run one thread a rank, each with its own states; none of them may wait for ever."""
    shares, barrier = [None] * len(give), threading.Barrier(len(give), timeout=20)
    ends = [None] * len(give)

    def run(rank):
        def gather(share):
            shares[rank] = share
            barrier.wait()
            return list(shares)

        try:
            ends[rank] = vars(selfcheck.check(give[rank], norm, NAMES, rows, gather))
        except selfcheck.Wrong as error:
            ends[rank] = str(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(give))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def changed(**how):
    """A rank with one thing wrong."""
    columns, before, after = states(how.get("dtype", torch.float32))
    columns, after = [column.clone() for column in columns], after.clone()
    if "partial" in how:
        columns[how["partial"]] *= 0.5
    if "noise" in how:
        columns[0] *= 1 + how["noise"]
    if "nan" in how:
        columns[how["nan"]][ROWS - 1, 3] = float("nan")
    if "after" in how:
        after *= how["after"]
    if "missing" in how:
        columns.pop()
    if "raises" in how:
        raise RuntimeError(how["raises"])
    return columns, before, after


def half(**how):
    return lambda: changed(dtype=torch.bfloat16, **how)


def full(**how):
    return lambda: changed(**how)


CASES = {
    "one good rank": ranks_end(full()),
    "two equal ranks": ranks_end(full(), full()),
    "two ranks equal up to the last place of bfloat16": ranks_end(half(), half(noise=2.0**-8)),
    "the last place of float32 differs": ranks_end(full(), full(noise=1e-6)),
    "a partial sum on one rank": ranks_end(full(), full(partial=1)),
    "a partial sum in bfloat16": ranks_end(half(), half(partial=1), half()),
    "not finite": ranks_end(full(), full(nan=0)),
    "another norm": ranks_end(full(after=1.01)),
    "a layer missing": ranks_end(full(missing=True)),
    "a failure on one rank": ranks_end(full(), full(raises="no such hook")),
    "fewer rows than computed": ranks_end(full(), rows=ROWS + 1),
    "rows of different batches": ranks_end(full(), lambda: states(rows=ROWS // 4)),
}
picked = [selfcheck.picked(1), selfcheck.picked(5000)]
print(json.dumps(CASES | {"picked": picked}))  # noqa: T201
