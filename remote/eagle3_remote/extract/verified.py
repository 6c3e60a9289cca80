"""Whether a dataset was checked since it was finished: a fact beside its manifest, written by the check itself. Standard library alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.protocol import Verified, VerifyReport, decode, encode

_FILE = "verified.json"


def keep(ours: str, manifest: dict[str, Any], report: VerifyReport) -> str:
    """Write down what the check of a finished dataset came to; `ours` is its hidden folder. Why that could not be, or nothing:
    a dataset that may not be written, or that has no space, is checked all the same.
    """
    fact = Verified(time.time(), report.ok, report.samples, report.problem_count)
    text = json.dumps({"of": manifest.get("written_at"), "verified": encode(fact)})
    try:
        write_atomic(Path(ours, _FILE), text.encode())
    except OSError as error:
        return f"{Path(ours, _FILE)} cannot be written: {error.strerror}"
    return ""


def read(root: str) -> Verified | None:
    """The newest check of the dataset as it is now; `None`: it was never checked, or was written since."""
    ours = Path(root, ".eagle3")
    kept, manifest = read_json(ours / _FILE), read_json(ours / "manifest.json")
    if kept is None or manifest is None or kept.get("of") != manifest.get("written_at"):
        return None
    try:
        return decode(Verified, kept.get("verified"))
    except ValueError:
        return None
