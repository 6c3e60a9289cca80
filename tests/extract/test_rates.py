"""The rate that a forecast measured is there for the next set-up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagle3_remote.extract import extraction, rates
from eagle3_remote.protocol import ExtractSpec, Phase, PlanReport, ServerStatus, SmokeRate, Space, encode

SPACE = Space("/", "xfs", 1, 1, None, 1)


def forecast(samples: int, rate: float) -> PlanReport:
    return PlanReport(1, 1, 1, 1, 0, 1.0, SPACE, SPACE, True, samples, rate)


def test_the_newest_of_each_model_is_kept(tmp_path: Path) -> None:
    rates.keep(tmp_path, "/m/a", forecast(32, 100.0))
    rates.keep(tmp_path, "/m/b", forecast(20, 50.0))
    rates.keep(tmp_path, "/m/a", forecast(32, 200.0))
    rates.keep(tmp_path, "/m/a", forecast(0, 0.0))  # not measured
    assert rates.kept(tmp_path, "/m/a") == SmokeRate(32, 200.0)
    assert rates.kept(tmp_path, "/m/b") == SmokeRate(20, 50.0)
    assert rates.kept(tmp_path, "/m/c") == SmokeRate()


def entry(samples: str, rate: str) -> str:
    return f'{{"/m/a": {{"samples": {samples}, "tokens_per_s": {rate}}}}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '{"/m/a": 3}',
        '{"/m/a": {"samples": "x"}}',
        "[" * 100_000,
        '{"/m/a":' * 100_000,
        *(entry("32", rate) for rate in ("NaN", "Infinity", "-Infinity", "1e999", "-3.0", "0.0", "1" * 400)),
        *(entry(samples, "5.0") for samples in ("0", "-1", "1.5", "true")),
    ],
    ids=lambda text: f"{text[:50]}",
)
def test_a_file_that_is_damaged_is_none_and_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "smoke.json").write_text(text)
    assert rates.kept(tmp_path, "/m/a") == SmokeRate()
    rates.keep(tmp_path, "/m/a", forecast(32, 100.0))
    assert rates.kept(tmp_path, "/m/a") == SmokeRate(32, 100.0)


def test_what_is_damaged_of_one_model_costs_the_others_nothing(tmp_path: Path) -> None:
    good = json.dumps({"samples": 20, "tokens_per_s": 50.0})
    (tmp_path / "smoke.json").write_text(f'{{"/m/a": {{"samples": 1, "tokens_per_s": NaN}}, "/m/b": {good}}}')
    assert rates.kept(tmp_path, "/m/b") == SmokeRate(20, 50.0)
    rates.keep(tmp_path, "/m/c", forecast(32, 100.0))
    assert json.loads((tmp_path / "smoke.json").read_text()).keys() == {"/m/b", "/m/c"}


@pytest.mark.parametrize(("samples", "rate"), [(32, math.nan), (32, math.inf), (32, -1.0), (-1, 100.0)])
def test_a_rate_that_is_none_is_not_kept(tmp_path: Path, samples: int, rate: float) -> None:
    rates.keep(tmp_path, "/m/a", forecast(32, 100.0))
    rates.keep(tmp_path, "/m/a", forecast(samples, rate))
    assert rates.kept(tmp_path, "/m/a") == SmokeRate(32, 100.0)


@pytest.mark.parametrize("kept", ["/m/a", "/m/a/"])
@pytest.mark.parametrize("asked", ["/m/a", "/m/a/", "/m/a//"])
def test_a_folder_is_the_same_with_a_slash_at_its_end(tmp_path: Path, kept: str, asked: str) -> None:
    rates.keep(tmp_path, kept, forecast(32, 100.0))
    assert rates.kept(tmp_path, asked) == SmokeRate(32, 100.0)
    rates.keep(tmp_path, asked, forecast(32, 200.0))
    assert rates.kept(tmp_path, kept) == SmokeRate(32, 200.0)
    (tmp_path / "smoke.json").write_text(json.dumps({kept: encode(SmokeRate(8, 50.0))}))  # by an older release
    assert rates.kept(tmp_path, asked) == SmokeRate(8, 50.0)


def test_a_rate_that_cannot_be_kept_is_no_fault(tmp_path: Path) -> None:
    rates.keep(tmp_path / "gone", "/m/a", forecast(32, 100.0))
    assert rates.kept(tmp_path / "gone", "/m/a") == SmokeRate()


def test_a_forecast_keeps_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast itself, with real requests, is in test_planning; here its answer is a stand-in."""
    control = extraction.ExtractControl(tmp_path, tmp_path)
    fit = SimpleNamespace(model="/m/a")
    monkeypatch.setattr(control, "_fit", lambda *_: fit)
    monkeypatch.setattr(control, "_further", lambda *_: [])
    monkeypatch.setattr(control, "_filled", lambda asked, _: asked)
    monkeypatch.setattr(extraction, "_check_paths", lambda _: None)
    made = encode(forecast(32, 100.0))
    monkeypatch.setattr(extraction.shortjobs, "run", lambda *_, **__: made)
    assert control.plan(ExtractSpec("/d", "/o"), ServerStatus(Phase.READY, "ready")) == made
    assert rates.kept(tmp_path, "/m/a") == SmokeRate(32, 100.0)
