"""The rate that a forecast measured is there for the next set-up."""

from __future__ import annotations

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


@pytest.mark.parametrize("text", ["", "[1]", '{"/m/a": 3}', '{"/m/a": {"samples": "x"}}'])
def test_a_file_that_is_damaged_is_none_and_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "smoke.json").write_text(text)
    assert rates.kept(tmp_path, "/m/a") == SmokeRate()
    rates.keep(tmp_path, "/m/a", forecast(32, 100.0))
    assert rates.kept(tmp_path, "/m/a") == SmokeRate(32, 100.0)


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
