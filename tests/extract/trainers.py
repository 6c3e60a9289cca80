"""The trainers whose own loaders read what we write, from the package index, beside the SGLang test beds.

One environment that borrows torch, transformers and numpy from the newest test bed, and a folder for each trainer's own
code, which is installed without its dependencies: they would bring another torch, vLLM's client side and more.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from eagle3_console.demo.testbed import install

SHARED = ("datasets==5.2.0", "pydantic-settings==2.16.3", "omegaconf==2.4.0", "pulp==3.3.2", "scipy==1.17.1")
"""What the loaders' modules import and a test bed has not."""
TRAINERS = {
    "speculators-0.3.0": (
        "speculators==0.3.0",
        # it knows transformers before 5
        *("transformers==4.57.6", "huggingface-hub==0.36.0", "tokenizers==0.22.2"),
    ),
    "speculators-0.5.0": ("speculators==0.5.0",),
    "speculators-0.7.0.2": ("speculators==0.7.0.2",),
    "speculators-0.9.0": ("speculators==0.9.0", "hs-connectors==0.9.0"),
    "specforge-0.2.0": ("specforge==0.2.0",),
    "modelopt-0.47.0": ("nvidia-modelopt==0.47.0",),
}
_BROKEN = ("torchvision",)
"""Not borrowed: without a GPU's operators it does not import, and transformers would try."""


@dataclasses.dataclass(frozen=True)
class Trainer:
    """One trainer's Python and where its code lies."""

    python: Path
    folder: Path

    def run(self, code: str, *words: str | Path, timeout: float = 240) -> str:
        """Run `code` with `words` as its arguments; what it printed.

        Raises:
            AssertionError: it failed; the text ends with its last words.
        """
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env |= {"PYTHONPATH": str(self.folder), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        argv = [str(self.python), "-W", "ignore", "-c", code, *map(str, words)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


def trainer(name: str) -> Trainer:
    """The trainer `name`, one of `TRAINERS`; all are installed at the first call.

    Raises:
        AssertionError: pip failed; the text ends with its last lines.
    """
    bed = install.ensure(install.VERSIONS[-1])
    recipe = repr((SHARED, TRAINERS, str(bed.python)))
    home = bed.python.parents[2] / f"trainers-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _install(home, bed.python)
    return Trainer(home / "bin" / "python", home / name)


def _install(home: Path, bed: Path) -> None:
    if home.exists():  # half made
        shutil.rmtree(home)
    _step(bed, "-m", "venv", "--without-pip", home)
    (site,) = home.glob("lib/python3*/site-packages")
    (borrowed,) = bed.parents[1].glob("lib/python3*/site-packages")
    links = home / "borrowed"
    links.mkdir()
    for entry in borrowed.iterdir():
        if not entry.name.startswith(_BROKEN):
            (links / entry.name).symlink_to(entry)
    # by path and not as links in `site`: pip then never touches what is borrowed
    (site / "borrowed.pth").write_text(f"{links}\n")
    pip = (
        bed,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "--python",
        home / "bin" / "python",
        "install",
    )
    _step(*pip, *SHARED)
    for name, packages in TRAINERS.items():
        _step(*pip, "--no-deps", "--target", home / name, *packages)
    (home / "complete").touch()


def _step(*argv: str | Path) -> None:
    words = [str(word) for word in argv]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(words)} failed:\n{done.stdout[-2000:]}"
