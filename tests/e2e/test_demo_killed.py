"""A demo that is killed leaves no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from eagle3_console.demo.testbed import install


def living(marker: str) -> list[int]:
    """Processes whose environment or command line names `marker`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(int(entry.name))
    return found


def test_killed_in_the_middle(tmp_path: Path, bed: install.TestBed) -> None:
    # who has a box folder of their own on this machine keeps it: the demo's server is not looked for there
    env = {**os.environ, "TMPDIR": str(tmp_path), "EAGLE3_HOME": str(tmp_path / "theirs")}
    argv = [sys.executable, "-m", "eagle3_console", "demo", "--headless", "--arch", "llama", "--sglang", bed.version]
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "server: initialising" in line:
                break
        (scratch,) = tmp_path.glob("eagle3-demo-*")
        assert len(living(str(scratch))) > 1
        running.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while living(str(scratch)) or scratch.exists():
        assert time.monotonic() < deadline, living(str(scratch))
        time.sleep(0.5)
    assert not (tmp_path / "theirs").exists()
