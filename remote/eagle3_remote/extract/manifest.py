"""manifest.json: what somebody needs to use the dataset, or to make it again."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from eagle3_remote import __version__
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.plan import Plan
from eagle3_remote.protocol.secret import hide_argv, hide_env

FORMAT = 1


def server_launch(run_dir: str) -> tuple[list[str], dict[str, str]]:
    """(argv, env) of the server that this run was started on, as its spec.json tells; empty where it does not.

    A dataset is handed on: the values of variables that are named like secrets (``HF_TOKEN``) are left out.
    """
    try:
        with open(os.path.join(run_dir, "spec.json"), encoding="utf-8") as file:
            spec = json.load(file)
    except (OSError, ValueError):
        return [], {}
    return list(hide_argv(spec.get("server_argv", []))), hide_env(spec.get("server_env", {}))


def build(plan: Plan, journal: Journal, run_dir: str, complete: bool) -> dict[str, Any]:
    """The manifest of the dataset as it is now."""
    counts, kept = journal.counts(), journal.get("identity") or {}
    dump, reading = journal.get("dump") or {}, journal.reading()
    argv, env = server_launch(run_dir)
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
            "vocab_size": plan.model.vocab_size,
            "fingerprint": plan.model.fingerprint,
        },
        "data": {
            "path": os.path.abspath(plan.spec.data),
            "kind": plan.source.kind,
            "blake2b": kept.get("data"),
            "blake2b_means": "of sizes and sampled bytes of the files: head, tail and 64 blocks between",
            "limit": plan.spec.limit,
            "shuffle": plan.spec.shuffle,
            "shard": str(plan.order.shard),
            "duplicates": plan.order.duplicates,
        },
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
            "duplicates": {"input_ids": reading.same_ids, "id": reading.same_name},
            "tokens": counts.tokens_stored,
            "bytes": counts.bytes_stored,
        },
        "begun_at": journal.get("begun_at"),
        "written_at": time.time(),
        "per_sample": "journal.sqlite3, table samples: tokens, bytes, crc32 and line of every row",
    }
