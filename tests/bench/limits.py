"""limits.py DUMP_DIR: what the machine can do at most, as one JSON line. Runs in an environment with torch and CUDA.

Pinned device-to-host copies in GB/s, and writes of one thread into DUMP_DIR in GB/s (1e9 bytes).
"""

import json
import os
import sys
import time

import torch

SIZE = 2 << 30


def device_to_host() -> float:
    """The best of three copies of 2 GiB into pinned memory."""
    source = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    target = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
    best = 0.0
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        best = max(best, SIZE / 1e9 / (time.perf_counter() - begin))
    return best


def file_write(folder: str) -> float:
    """2 GiB into a new file, in pieces of 64 MiB."""
    piece, path = os.urandom(1 << 20) * 64, os.path.join(folder, f"limits.{os.getpid()}")
    begin = time.perf_counter()
    with open(path, "xb", buffering=0) as file:
        for _ in range(SIZE // len(piece)):
            file.write(piece)
    taken = time.perf_counter() - begin
    os.unlink(path)
    return SIZE / 1e9 / taken


if __name__ == "__main__":
    found = {"file_write_one_thread": round(file_write(sys.argv[1]), 2)}
    if torch.cuda.is_available():
        found["pinned_device_to_host"] = round(device_to_host(), 1)
    sys.stdout.write(json.dumps(found) + "\n")
