"""Wishes for a running extraction reach its run directory, whichever console sends them. The job is any process of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eagle3_remote.extract import control
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import E_PARAMS, E_REFUSED, ControlReport, ExtractSpec, ExtractWish, encode
from tests.box.client import Answered, agent


def test_pause_resume_and_budget_outlive_the_console(release: Path, home: Path) -> None:
    spec = encode(ExtractSpec(data="/d", out="/o"))
    with agent(release, home) as first:
        with pytest.raises(Answered, match="No extraction is running on this box") as none:
            first.call("extract.control", **encode(ExtractWish("pause")))
        assert none.value.code == E_REFUSED
        argv = [sys.executable, "-c", "import time; time.sleep(60)"]
        job = jobs.start(home, release, jobs.new_id("extract"), argv, {}, spec)
        report = first.ask(ControlReport, "extract.control", **encode(ExtractWish("pause")))
        assert report.job == job.id
        assert "nothing more is sent." in report.sentence
        first.kill()
    assert control.read(str(job.run_dir)) == control.Wishes(paused=True)
    with agent(release, home) as second:
        second.call("extract.control", **encode(ExtractWish("budget", 65536)))
        second.call("extract.control", **encode(ExtractWish("resume", job=job.id)))
        assert control.read(str(job.run_dir)) == control.Wishes(resumes=1, tokens_in_flight=65536)
        for wrong in (ExtractWish("dance"), ExtractWish("budget", -1)):
            with pytest.raises(Answered, match="can pause, resume or get a budget") as refused:
                second.call("extract.control", **encode(wrong))
            assert refused.value.code == E_REFUSED
        with pytest.raises(Answered) as broken:
            second.call("extract.control", action=3)
        assert broken.value.code == E_PARAMS
        stopping.stop(job, grace=0.5, term=0.5)
        with pytest.raises(Answered, match="does not run any more"):
            second.call("extract.control", **encode(ExtractWish("pause", job=job.id)))


def test_a_broken_wish_is_none(tmp_path: Path) -> None:
    assert control.read(str(tmp_path)) == control.Wishes()
    (tmp_path / control.CONTROL_FILE).write_text("{")
    assert control.read(str(tmp_path)) == control.Wishes()
    assert control.pause(str(tmp_path)).paused
    assert not control.resume(str(tmp_path)).paused
