"""Extraction jobs as the agent starts them: processes of the box's Python that are given a run directory."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eagle3_remote.protocol import ExtractReport, ExtractSpec, ExtractState, ExtractStatus, VerifyReport, decode, encode

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / "remote"), str(ROOT / "patch")]
CODE = f"import sys; sys.path[:0] = {PATHS!r}; from eagle3_remote.extract.{{module}} import main; "
TUNED = (
    "from eagle3_remote.extract.policy import Tuning; sys.exit(max(main([d], Tuning({tuning})) for d in sys.argv[1:]))"
)
PLAIN = "sys.exit(main(sys.argv[1:]))"
QUICK = "server_wait=30.0, poll=0.05, commit_every=0.02"
"""For the stand-in: looks again sooner, as patient as ever with requests."""
IMPATIENT = QUICK + ", min_timeout=3.0, dump_timeout=3.0"
"""For a stand-in that never answers."""


def prepare(run_dir: Path, spec: ExtractSpec) -> Path:
    """A run directory with its spec."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "spec.json").write_text(json.dumps({"message": encode(spec)}))
    return run_dir


def start(python: Path, *run_dirs: Path, tuning: str | None = None, before: str = "") -> subprocess.Popen[bytes]:
    """Start the job; several run directories are done one after another in one process. The log goes to the first's out.log.

    `before` is run first.
    """
    code = CODE.format(module="__main__") + before + (PLAIN if tuning is None else TUNED.format(tuning=tuning))
    with (run_dirs[0] / "out.log").open("ab") as log:
        argv = [str(python), "-u", "-c", code, *map(str, run_dirs)]
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def run(python: Path, *run_dirs: Path, tuning: str | None = None) -> int:
    """Run to the end; returns the (largest) exit code."""
    with start(python, *run_dirs, tuning=tuning) as process:
        return process.wait(timeout=120)


def status(run_dir: Path) -> ExtractStatus:
    """progress.json as it is now."""
    return decode(ExtractStatus, json.loads((run_dir / "progress.json").read_text()))


def wait_until(
    run_dir: Path, holds: Callable[[ExtractStatus], bool], process: subprocess.Popen[bytes]
) -> ExtractStatus:
    """Poll progress.json until `holds`, while the job runs."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if (run_dir / "progress.json").exists() and holds(now := status(run_dir)):
            return now
        assert process.poll() is None, (run_dir / "out.log").read_text()
        time.sleep(0.02)
    raise AssertionError(f"never came: {status(run_dir)}")


def verify(python: Path, dataset: Path, server: str = "", dump_dir: Path | None = None) -> VerifyReport:
    """What `verify` prints of a dataset."""
    words = ["--server", server, "--dump-dir", str(dump_dir)] if server else []
    return decode(VerifyReport, _printed(python, "verify", dataset, *words))


def report(python: Path, run_dir: Path) -> ExtractReport:
    """What `report` prints of a run."""
    return decode(ExtractReport, _printed(python, "report", run_dir))


def _printed(python: Path, module: str, path: Path, *words: str) -> Any:
    code = CODE.format(module=module) + PLAIN
    done = subprocess.run([str(python), "-c", code, str(path), *words], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return json.loads(done.stdout)


def is_finished(now: ExtractStatus) -> bool:
    return now.state is ExtractState.FINISHED


@contextlib.contextmanager
def running(python: Path, run_dir: Path, tuning: str = QUICK, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A job that does not outlive a test that failed."""
    process = start(python, run_dir, tuning=tuning, before=before)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
