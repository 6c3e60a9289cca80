"""The rates that forecasts measured with real requests, kept for whoever sets up the next run: ``<home>/smoke.json``."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.protocol import PlanReport, SmokeRate, decode, encode


def keep(home: Path, model: str, made: PlanReport) -> None:
    """The newest of each model. One that cannot be kept is no reason to refuse a forecast."""
    if not model or not made.smoke_samples or made.tokens_per_s <= 0:
        return
    rates = {**(read_json(_place(home)) or {}), model: encode(SmokeRate(made.smoke_samples, made.tokens_per_s))}
    with contextlib.suppress(OSError):
        write_atomic(_place(home), json.dumps(rates).encode())


def kept(home: Path, model: str) -> SmokeRate:
    """What was measured last with a model; nothing where it never was, or the file cannot be read."""
    with contextlib.suppress(ValueError):
        return decode(SmokeRate, (read_json(_place(home)) or {}).get(model) or {})
    return SmokeRate()


def _place(home: Path) -> Path:
    return home / "smoke.json"
