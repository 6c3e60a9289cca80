"""What a person reads when a server did not come up. A stand-in process fails as SGLang does."""

from __future__ import annotations

import sys
from pathlib import Path

from eagle3_console.told import failure_sentence
from eagle3_remote.job import jobs
from eagle3_remote.protocol import JobState, ServerSpec, encode
from eagle3_remote.server.status import StatusReader
from tests.box.client import make_release, until

CAUSE = "ModuleNotFoundError: No module named 'sgl_kernel'"


def test_cause_and_advice_are_said_once_and_where_to_read_on(tmp_path: Path) -> None:
    line = [sys.executable, "-c", "import sgl_kernel"]
    message = encode(ServerSpec(model="/m", python=sys.executable))
    home, release = tmp_path / "box", make_release(tmp_path / "release")
    job = jobs.start(home, release, jobs.new_id("server"), line, {}, message, facts={"dump_dir": ""})
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    status = StatusReader(home).server()
    said = failure_sentence(status)
    assert said.count(CAUSE) == 1
    assert status.log.advice
    assert said.count(status.log.advice) == 1
    assert str(job.log_path) in said
