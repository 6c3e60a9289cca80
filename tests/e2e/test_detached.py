"""The laptop owns nothing: what happens on the box when the console dies in the middle of an extraction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.conftest import Box, console, free_port, make

SAMPLES = 700
"""So many that the middle is the middle, on a quick machine too."""


def status(box: Box) -> dict[str, object]:
    ran = console("extract", "status", *box.login, "--json")
    assert ran.code in (0, 7), ran.err
    told: dict[str, object] = ran.json
    return told


def test_killed_console_loses_nothing(box: Box, model: Path) -> None:
    data, out = box.root / "tokenized_data.jsonl", box.root / "dataset"
    make(box.bed, "make_data.py", data, "--samples", str(SAMPLES), "--vocab", "1024")
    words = ["run", *box.login, f"--model={model}", f"--data={data}", f"--out={out}", f"--port={free_port()}", "--json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "eagle3_console", *words, *box.server_words()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    told = []
    for line in running.stderr:
        told.append(line)
        if f" of {SAMPLES:,} stored" in line and " 0 of " not in line:
            break
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    running.stderr.close()

    seen = status(box)
    assert seen["state"] in ("running", "finishing"), "".join(told)
    stored = seen["stored"]
    assert isinstance(stored, int)
    assert 0 < stored < SAMPLES
    # what it says is what lies on the disk, give or take what is being stored at this moment
    assert len(list((out / "hidden_states").glob("hs_*.safetensors"))) >= stored

    deadline = time.monotonic() + 400
    while (seen := status(box))["state"] in ("running", "finishing"):
        assert time.monotonic() < deadline, seen
        time.sleep(1)
    assert seen["state"] == "finished"
    assert (seen["stored"], seen["rejected"], seen["failed"]) == (SAMPLES, 0, 0)
    assert len(list((out / "hidden_states").glob("hs_*.safetensors"))) == SAMPLES

    verified = console("verify", *box.login, "--json")
    assert verified.code == 0, verified.err
    assert verified.json["samples"] == SAMPLES

    again = console("run", *words[1:], *box.server_words())
    assert again.code == 0, again.err
    assert json.loads(again.out)["extract"]["stored"] == SAMPLES
    assert f" 0 of {SAMPLES:,} stored" not in again.err


def test_stopped_extraction_resumes(box: Box, model: Path) -> None:
    data, out = box.root / "tokenized_data.jsonl", box.root / "dataset"
    make(box.bed, "make_data.py", data, "--samples", str(SAMPLES), "--vocab", "1024")
    place = [f"--data={data}", f"--out={out}"]
    started = console("server", "start", *box.login, f"--model={model}", f"--port={free_port()}", *box.server_words())
    assert started.code == 0, started.err
    assert "rows dumped, 0 cached" in started.out  # ready means that its rows were seen
    wrong = console("server", "restart", *box.login, "--server-arg=--no-such-flag")
    assert wrong.code == 5, wrong.err
    assert "has no --no-such-flag" in wrong.err
    assert console("server", "status", *box.login, "--json").json["phase"] in ("ready", "busy")  # nothing was stopped
    assert console("extract", "start", *box.login, *place).code == 0
    deadline = time.monotonic() + 60
    while status(box)["stored"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    stopped = console("extract", "stop", *box.login, "--json")
    assert stopped.code == 0, stopped.err
    seen = status(box)
    assert seen["state"] == "stopped"
    stored = seen["stored"]
    assert isinstance(stored, int)
    assert 0 < stored < SAMPLES
    before = {path.name: os.stat(path).st_ino for path in (out / "hidden_states").glob("hs_*.safetensors")}
    assert len(before) == stored

    resumed = console("extract", "start", *box.login, *place, "--wait", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["stored"] == SAMPLES
    after = {path.name: os.stat(path).st_ino for path in (out / "hidden_states").glob("hs_*.safetensors")}
    assert len(after) == SAMPLES
    assert {name: after[name] for name in before} == before
    assert console("verify", *box.login, f"--out={out}").code == 0
