"""Ends what the demo started, however the demo ends. Run as ``python guardian.py SCRATCH PYTHON``; standard library only.

It waits until its standard input closes, which happens when the demo is done and also when the demo was killed. Then it
asks the agent that was deployed into the embedded box to stop the jobs there, and removes the scratch directory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

_START = "import sys; sys.path.insert(0, sys.argv[1]); from eagle3_remote.agent import main; main()"
_STOP_SECONDS = 180


def stop_jobs(home: Path, python: str) -> None:
    """Stop the extraction and the server of the box whose home is `home`, where there are any."""
    releases = sorted(home.glob(".eagle3-console/releases/*/eagle3_remote"), key=lambda path: path.stat().st_mtime)
    if not releases:
        return
    calls = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {"job": None}})
        for number, method in enumerate(("extract.stop", "server.stop"))
    ]
    agent = subprocess.Popen(
        [python, "-I", "-c", _START, str(releases[-1].parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # an EAGLE3_HOME of the person's own names another box folder
        env={**os.environ, "HOME": str(home), "EAGLE3_HOME": str(home / ".eagle3-console")},
        text=True,
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    with agent, agent.stdin as calling, agent.stdout as answers:
        for call in calls:
            calling.write(call + "\n")
            calling.flush()
            for line in answers:
                if '"id"' in line:  # stopped, or refused because nothing runs
                    break
        calling.close()
        agent.wait(_STOP_SECONDS)


def main(scratch: str, python: str) -> int:
    """Wait, stop, remove."""
    sys.stdin.buffer.read()
    try:
        stop_jobs(Path(scratch) / "home", python)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
