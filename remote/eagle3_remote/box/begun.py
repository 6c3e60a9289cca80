"""A dataset of ours at the output of a run that is being set up. Looks only: nothing is written, made or locked."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle3_remote.extract import place, shards
from eagle3_remote.files import locked, read_json
from eagle3_remote.protocol import DatasetLook, ModelLook

_COUNTS = """SELECT total(state = 'stored'), count(*), total(state != 'rejected'),
    total((state != 'rejected') * max(tokens, full_tokens)), min(CASE WHEN state NOT IN ('stored', 'rejected') THEN line END)
    FROM samples"""


def dataset(path: str, model: ModelLook | None) -> DatasetLook:
    """What is known of the dataset at `path`, compared with `model`."""
    manifest = read_json(Path(path) / place.MANIFEST) or {}
    meta, (stored, total, samples, tokens, first_open) = _journal(os.path.join(path, place.JOURNAL))
    kept, reading = meta.get("identity", {}), meta.get("reading", {})
    fingerprint = kept.get("model")
    same_model = None if model is None or not (model.fingerprint and fingerprint) else model.fingerprint == fingerprint
    in_order = kept.get("shuffle") is None and kept.get("shard") == str(shards.WHOLE)
    number = int(reading.get("number", 0)) if in_order else 0
    whole = bool(in_order and reading.get("ended"))
    return DatasetLook(
        model=str(manifest.get("model", {}).get("path", "")),
        same_model=same_model,
        data=str(manifest.get("data", {}).get("path", "")),
        boundaries=tuple(int(one) for one in kept.get("boundaries", ())),
        final=str(kept.get("final", "")),
        max_seq_len=int(kept.get("max_seq_len") or 0),
        stored=stored,
        total=total,
        complete=bool(manifest.get("complete")),
        writing=locked(os.path.join(path, place.LOCK)),
        input=str(kept.get("data") or ""),
        settled=(first_open - 1 if first_open else number) if number else 0,
        lines=number if whole else 0,
        samples=samples if whole else 0,
        tokens=tokens if whole else 0,
    )


def _journal(path: str) -> tuple[Mapping[str, dict[str, Any]], tuple[int, int, int, int, int]]:
    """(facts by name, (stored, all, not refused, their tokens uncut, the first line that is still to be done))."""
    # immutable: nothing is made beside it and no lock is waited for; somebody may be writing it, then the figures are about right
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            rows = db.execute("SELECT key, value FROM meta WHERE key IN ('identity', 'reading')").fetchall()
            counts = db.execute(_COUNTS).fetchone()
        said = {str(key): json.loads(value) for key, value in rows}
        stored, total, samples, tokens, first = (int(one or 0) for one in counts)
        return {key: one for key, one in said.items() if isinstance(one, dict)}, (stored, total, samples, tokens, first)
    except (sqlite3.Error, ValueError):
        return {}, (0, 0, 0, 0, 0)
