"""An environment with the newest speculators, made once and kept beside the SGLang test beds."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "reference" / "requirements-speculators.txt"
PACKAGES = ("speculators==0.9.0", "hs-connectors==0.9.0")


def python() -> Path:
    """The environment's Python, installed at the first call.

    Raises:
        AssertionError: pip failed; the text ends with its last lines.
    """
    recipe = REQUIREMENTS.read_text() + repr((PACKAGES, sys.version_info[:2]))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eagle3-console" / "testbeds"
    home = cache / f"speculators-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _install(home)
    return home / "bin" / "python"


def _install(home: Path) -> None:
    if home.exists():  # half made
        shutil.rmtree(home)
    _step(sys.executable, "-m", "venv", str(home))
    pip = (str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install")
    # an index without CPU builds gives the CUDA build, of several GB: it serves as well
    _step(*pip, "-r", str(REQUIREMENTS))
    _step(*pip, "--no-deps", *PACKAGES)
    (home / "complete").touch()


def _step(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(argv)} failed:\n{done.stdout[-2000:]}"
