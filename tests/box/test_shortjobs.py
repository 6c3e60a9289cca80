"""A check that was asked for ends with whoever asked: a console that went away, an agent that was killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from eagle3_remote.box import identity
from eagle3_remote.job import jobs
from tests.box.client import agent, make_release, until

ENDLESS = """
import json, os, signal, subprocess, sys, time
def main(argv):
    {first}
    child = subprocess.Popen(["/bin/sleep", "600"])
    with open(argv[0] + "/pids.tmp", "w") as file:
        json.dump([os.getpid(), child.pid], file)
    os.rename(argv[0] + "/pids.tmp", argv[0] + "/pids")
    try:
        while True:
            time.sleep(600)
    finally:
        open(argv[0] + "/taken-back", "w").close()
        child.kill()
        child.wait()
"""
"""Stands in for a check of a dataset of 800 GB, with a process of its own."""


@pytest.mark.parametrize("stubborn", [False, True], ids=["", "stubborn"])
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_check_ends_with_whoever_asked_for_it(killed: bool, stubborn: bool, home: Path, tmp_path: Path) -> None:
    release, dataset = make_release(tmp_path / "release"), tmp_path / "dataset"
    dataset.mkdir()
    first = "signal.signal(signal.SIGINT, signal.SIG_IGN)" if stubborn else "pass"
    (release / "eagle3_remote/extract/verify.py").write_text(ENDLESS.format(first=first))
    lifeline = release / "eagle3_remote/job/lifeline.py"
    lifeline.write_text(lifeline.read_text().replace("GRACE = 10.0", "GRACE = 0.5"))
    # from it the Python to check with is known
    message = {"python": sys.executable, "out": str(dataset)}
    job = jobs.start(home, release, jobs.new_id("extract"), ["/bin/true"], {}, message)
    until(lambda: jobs.exit_code(job) is not None)
    with agent(release, home) as box:
        box.send("verify", dataset=str(dataset))
        until((dataset / "pids").exists)
        pids = set(json.loads((dataset / "pids").read_text()))
        assert pids <= {stat.pid for stat in identity.living()}
        if killed:
            box.kill()
        else:
            box.close()
    until(lambda: not pids & {stat.pid for stat in identity.living()})
    assert (dataset / "taken-back").exists() != stubborn
