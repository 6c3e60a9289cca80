"""manifest.json: what somebody needs to use the dataset, or to make it again."""

from __future__ import annotations

import glob
import json
import os
import time
from typing import Any

from eagle3_remote import __version__
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.plan import Plan

FORMAT = 1


def server_launch(run_dir: str, dump_dir: str) -> tuple[list[str], dict[str, str]]:
    """(argv, env) of the server job beside this run that writes to `dump_dir`; empty where there is none."""
    for path in sorted(
        glob.glob(os.path.join(os.path.dirname(os.path.abspath(run_dir)), "server-*", "spec.json")), reverse=True
    ):
        try:
            with open(path, encoding="utf-8") as file:
                job = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(job, dict) and job.get("dump_dir") == dump_dir:
            return list(job.get("argv", [])), dict(job.get("env", {}))
    return [], {}


def build(plan: Plan, journal: Journal, run_dir: str, complete: bool) -> dict[str, Any]:
    """The manifest of the dataset as it is now."""
    counts, kept = journal.counts(), journal.get("identity") or {}
    dump = journal.get("dump") or {}
    argv, env = server_launch(run_dir, plan.spec.dump_dir)
    return {
        "format": FORMAT,
        "complete": complete,
        "extraction_version": __version__,
        "boundaries": list(plan.boundaries),
        "boundary_means": "decoder layers already done; 0 = embeddings; the last layer entry is the final state",
        "final": plan.spec.final,
        "final_means": "pre = before the model's final norm, post = after it",
        "num_layers": plan.model.num_layers,
        "hidden_size": plan.model.hidden_size,
        "dtype": journal.get("dtype"),
        "model": {
            "path": plan.model.path,
            "architecture": plan.model.architecture,
            "fingerprint": plan.model.fingerprint,
        },
        "data": {"path": os.path.abspath(plan.spec.data), "blake2b": kept.get("data"), "limit": plan.spec.limit},
        "max_seq_len": plan.spec.max_seq_len,
        "server": {
            "sglang_version": dump.get("sglang_version") or plan.server.version,
            "patch_version": dump.get("patch_version"),
            "model_class": dump.get("model_class"),
            "chunked_prefill_size": plan.server.chunk,
            "argv": argv,
            "env": env,
        },
        "counts": {
            "samples": counts.total,
            "stored": counts.stored,
            "rejected": counts.rejected,
            "failed": counts.failed,
            "cut": counts.cut,
            "without_loss_mask": counts.no_mask,
            "duplicates": journal.get("duplicates") or {},
            "tokens": counts.tokens_stored,
            "bytes": counts.bytes_stored,
        },
        "begun_at": journal.get("begun_at"),
        "written_at": time.time(),
        "per_sample": "journal.sqlite3, table samples: tokens, bytes, crc32 and line of every row",
    }
