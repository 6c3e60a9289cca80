"""Write prepared, already tokenised samples, as a person brings them to an extraction. Standard library only.

    python make_data.py OUT.jsonl [--samples 64] [--vocab 1024] [--seed 0] [--shortest 20] [--longest 600] [--ids]

One JSON object a line: ``input_ids`` and ``loss_mask`` of one length, 0 for the prompt part, 1 for the answer; the same
arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

SPECIAL_IDS = 3
"""The first ids are padding, start and end; samples begin with the start (1) and use none of them elsewhere."""


def samples(count: int, vocab: int, seed: int, shortest: int, longest: int, ids: bool) -> list[dict[str, Any]]:
    """`count` samples with lengths drawn evenly from ``shortest..longest``, both ends present where there are two."""
    draw = random.Random(seed)
    lengths = [draw.randint(shortest, longest) for _ in range(count)]
    if count >= 2:
        lengths[0], lengths[1] = shortest, longest
        draw.shuffle(lengths)
    made = []
    for index, length in enumerate(lengths):
        prompt = draw.randint(1, max(1, length - 1))
        sample: dict[str, Any] = {
            "input_ids": [1] + [draw.randrange(SPECIAL_IDS, vocab) for _ in range(length - 1)],
            "loss_mask": [0] * prompt + [1] * (length - prompt),
        }
        made.append(({"id": f"sample-{index:05d}"} if ids else {}) | sample)
    return made


def write(out: Path, rows: list[dict[str, Any]]) -> None:
    """Write one object a line, whole or not at all."""
    temporary = out.with_name(out.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    os.replace(temporary, out)


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shortest", type=int, default=20)
    parser.add_argument("--longest", type=int, default=600)
    parser.add_argument("--ids", action="store_true", help="give every sample an id of its own")
    args = parser.parse_args()
    if args.samples < 1 or not 1 <= args.shortest <= args.longest or args.vocab <= SPECIAL_IDS:
        parser.error("--samples at least 1, 1 <= --shortest <= --longest, --vocab above 3")
    rows = samples(args.samples, args.vocab, args.seed, args.shortest, args.longest, args.ids)
    write(args.out, rows)
    print(f"{args.out}: {len(rows)} samples, {sum(len(row['input_ids']) for row in rows)} tokens")  # noqa: T201


if __name__ == "__main__":
    main()
