"""Rows of a server with two tensor-parallel ranks against those of one with a single rank, on a machine with two GPUs.

    python3 two_ranks.py --python PYTHON --work DIR [--pythonpath A:B] [--data-parallel] [--json OUT]

The servers run one after the other, with the same random weights of DeepSeek-V2-Lite's shape. Every prompt is sent alone, so that a
batch is known to be below or above 2048 tokens, where SGLang's fused all-reduce changes sides. The fused all-reduce itself
stays off, as SGLang's own flags have it (it may use NVLink multicast). With ``--data-parallel`` the two ranks have
data-parallel attention: each computes, and writes, the requests that it is given.

Prints, for each boundary and the final state, the relative L2 difference of a row: median, 99th percentile and largest, for
small and large batches, which ranks wrote, and beside it the same between two runs of the single rank: what bfloat16 and the
kernels alone do. Exit code 1 where a median is above `TOLERANCE`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prefill
import shapes

TOLERANCE = 0.05
"""Relative L2 of a row, at the median. One rank's partial sum differs by about 1."""
DATA_PARALLEL = "--dp-size 2 --enable-dp-attention"
LENGTHS = (28, 99, 700, 1500, 2047, 2049, 3000, 4096)
COMPARE = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file
one, other, out = Path(sys.argv[1]), Path(sys.argv[2]), {}
writers = sorted({json.loads(path.read_text())["tp_rank"] for path in other.glob("req_*/meta.json")})
for size in ("small", "large"):
    rows = []
    for folder in sorted(one.glob("req_*")):
        a, b = (load_file(root / folder.name / "states.safetensors") for root in (one, other))
        assert torch.equal(a["token_ids"], b["token_ids"])
        if (len(a["token_ids"]) > 2048) == (size == "large"):
            a, b = a["hidden_states"].double(), b["hidden_states"].double()
            rows.append((a - b).norm(dim=-1) / a.norm(dim=-1))
    rows = torch.cat(rows)
    names = json.loads((folder / "meta.json").read_text())["boundaries"] + ["final"]
    out[size] = {
        str(name): {"median": c.median().item(), "p99": c.quantile(0.99).item(), "largest": c.max().item()}
        for name, c in zip(names, rows.unbind(1))
    }
    out[size]["rows"] = len(rows)
print(json.dumps(out | {"writers": writers}))
"""


def dump(args: argparse.Namespace, model: Path, label: str, ranks: str) -> Path:
    """Start a server with these arguments more, have every prompt dumped, stop it; returns the dumps."""
    config = json.loads((model / "config.json").read_text())
    keep: Path = args.dump_root / f"two-ranks-{label}"
    own = argparse.Namespace(**vars(args) | {"work": args.work / label})
    own.work.mkdir(parents=True, exist_ok=True)
    own.server_args = f"{args.server_args} {ranks}"
    server = prefill.launch("on", own, model)
    try:
        for index, length in enumerate(LENGTHS):
            ids = prefill.prompts(1, config["vocab_size"], 4096, seed=index, length=length)
            prefill.send(server.port, [(f"e3-two-{index}", *ids)], 1)
        prefill.wait_until_done(server.dump_dir, len(LENGTHS))
        server.dump_dir.rename(keep)
    finally:
        prefill.stop(server)
    for line in server.log.read_text(errors="replace").splitlines():
        if line.startswith("eagle3-patch"):
            prefill.say(line)
    return keep


def main() -> int:
    """Read the command line and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prefill.add_server_arguments(parser)
    parser.add_argument("--data-parallel", action="store_true")
    parser.set_defaults(shape="small")
    args = parser.parse_args()
    args.server_args = args.server_args.replace("--load-format dummy ", "")
    model = args.model or shapes.write(args.shape, args.work / "model")
    if not args.model:
        subprocess.run([args.python, str(prefill.HERE / "checkpoint.py"), str(model)], check=True)
    two_ranks = f"--tp-size 2 {DATA_PARALLEL if args.data_parallel else ''}"
    one, two = dump(args, model, "one", ""), dump(args, model, "two", two_ranks)
    others = {"one_rank_and_two": two}
    if not args.data_parallel:
        others["one_rank_twice"] = dump(args, model, "again", "")
    result: dict[str, Any] = {}
    for name, other in others.items():
        done = subprocess.run([args.python, "-c", COMPARE, str(one), str(other)], capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(done.stderr)
            return 1
        result[name] = json.loads(done.stdout)
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if args.json:
        args.json.write_text(text + "\n")
    found = result["one_rank_and_two"]
    medians = [state["median"] for size in ("small", "large") for key, state in found[size].items() if key != "rows"]
    wrong = found["writers"] != ([0, 1] if args.data_parallel else [0])
    return int(wrong or not max(medians) <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
