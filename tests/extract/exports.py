"""Exports as the agent starts them: processes of the box's Python that are given run directories."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from eagle3_remote.protocol import ExportSpec, WorkStatus, decode, encode
from tests.extract.jobs import PATHS

CODE = (
    f"import sys; sys.path[:0] = {PATHS!r}; from eagle3_remote.export.__main__ import main; "
    "sys.exit(max(main([d]) for d in sys.argv[1:]))"
)


def prepare(run_dir: Path, spec: ExportSpec) -> Path:
    """A run directory with its spec."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "spec.json").write_text(json.dumps({"message": encode(spec)}))
    return run_dir


def run(python: Path, *run_dirs: Path) -> subprocess.CompletedProcess[str]:
    """Run the exports one after another in one process; the exit code is the largest."""
    argv = [str(python), "-u", "-c", CODE, *map(str, run_dirs)]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)


def status(run_dir: Path) -> WorkStatus:
    """progress.json as it is now."""
    return decode(WorkStatus, json.loads((run_dir / "progress.json").read_text()))


def refused(python: Path, run_dir: Path, spec: ExportSpec) -> str:
    """The sentence with which an export is refused."""
    done = run(python, prepare(run_dir, spec))
    assert done.returncode == 5, done.stdout + done.stderr
    return status(run_dir).sentence
