"""The rates that forecasts measured with real requests, kept for whoever sets up the next run: ``<home>/smoke.json``."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.protocol import PlanReport, SmokeRate, decode, encode


def keep(home: Path, model: str, made: PlanReport) -> None:
    """The newest of each model. One that cannot be kept is no reason to refuse a forecast."""
    rate = SmokeRate(made.smoke_samples, made.tokens_per_s)
    if not model or not _measured(rate):
        return
    rates = {**_all(home), _name(model): rate}
    with contextlib.suppress(OSError):
        write_atomic(_place(home), json.dumps(encode(rates)).encode())


def kept(home: Path, model: str) -> SmokeRate:
    """What was measured last with a model; nothing where it never was, or the file cannot be read."""
    return _all(home).get(_name(model), SmokeRate())


def _all(home: Path) -> dict[str, SmokeRate]:
    """By model; what makes no sense is left out."""
    rates = {}
    for model, value in (read_json(_place(home)) or {}).items():
        with contextlib.suppress(ValueError):
            rate = decode(SmokeRate, value)
            if _measured(rate):
                rates[_name(model)] = rate
    return rates


def _measured(rate: SmokeRate) -> bool:
    return rate.samples > 0 and 0 < rate.tokens_per_s < math.inf


def _name(model: str) -> str:
    return model.rstrip("/")


def _place(home: Path) -> Path:
    return home / "smoke.json"
