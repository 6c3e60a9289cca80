"""Hold every row of a dump against what an observer saved of SGLang's own capture, bit for bit. Runs in an SGLang
environment, knows both from their files alone.

    python same_bits.py SAMPLES.json DUMP_DIR RECORDS FINAL

Prints {"requests", "rows", "different": [rid, ...]}. A request is found in the records by its ids and positions.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file


def dumped(folder):
    """``[tokens, states, hidden]`` of either layout, and the ids where the layout has them."""
    if (folder / "states.safetensors").exists():
        file = load_file(folder / "states.safetensors")
        return file["hidden_states"], file["token_ids"].tolist()
    names = [*sorted(folder.glob("aux_*.pt")), folder / "final.pt"]
    return torch.stack([torch.load(name) for name in names], 1), None


def pieces(records):
    """Every request's share of every recorded prefill: (first position, ids, states)."""
    for path in sorted(records.glob("forward.*.pt")):
        record = torch.load(path)
        start = 0
        for length in record["lengths"].tolist():
            rows = slice(start, start + length)
            yield record["positions"][rows].tolist(), record["ids"][rows].tolist(), record, rows
            start += length


def main(samples_file, dump_dir, records, final):
    """Compare and print."""
    samples = json.loads(Path(samples_file).read_text())
    found = {rid: {} for rid in samples}
    for positions, ids, record, rows in pieces(Path(records)):
        for rid, prompt in samples.items():
            if ids == prompt[positions[0] : positions[0] + len(ids)]:
                states = torch.cat([record["aux"][rows], record[final][rows].unsqueeze(1)], 1)
                found[rid].update(zip(positions, states, strict=True))
    different, total = [], 0
    for rid, prompt in samples.items():
        got, ids = dumped(Path(dump_dir) / f"req_{rid}")
        total += len(got)
        whole = sorted(found[rid]) == list(range(len(prompt)))
        want = torch.stack([found[rid][position] for position in range(len(prompt))]) if whole else None
        if want is None or got.dtype != want.dtype or not torch.equal(got, want) or ids not in (None, prompt):
            different.append(rid)
    print(json.dumps({"requests": len(samples), "rows": total, "different": different}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
