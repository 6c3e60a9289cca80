"""Every SGLang release that the patch is tried on: laid over a test bed, unpacked once, kept beside the test beds."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import subprocess
from pathlib import Path

from eagle3_console.demo.testbed import install

_TRANSFORMERS = ("transformers==5.12.1", "tokenizers==0.22.2")
RELEASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "0.5.4.post3": ("0.5.9", ()),
    "0.5.6.post2": ("0.5.9", ()),
    "0.5.8.post1": ("0.5.9", ()),
    "0.5.9": ("0.5.9", ()),
    "0.5.10.post1": ("0.5.23", _TRANSFORMERS),
    "0.5.13.post1": ("0.5.23", _TRANSFORMERS),
    "0.5.16": ("0.5.23", _TRANSFORMERS),
    "0.5.20": ("0.5.23", _TRANSFORMERS),
    "0.5.23": ("0.5.23", ()),
}
"""Release -> the test bed that has its dependencies, and what it needs in another version than that one has."""


def ensure(release: str) -> install.TestBed:
    """The test bed of one release.

    Raises:
        AssertionError: pip failed; the text ends with its last lines.
    """
    base, others = RELEASES[release]
    bed = install.ensure(base)
    if release == base:
        return bed
    overlays = [_overlay(bed, (f"sglang=={release}",)), *([_overlay(bed, others)] if others else [])]
    # the stand-ins stay first: what is really installed wins over them by itself
    path = os.pathsep.join([bed.env["PYTHONPATH"], *map(str, overlays)])
    return dataclasses.replace(bed, version=release, env=bed.env | {"PYTHONPATH": path})


def _overlay(bed: install.TestBed, packages: tuple[str, ...]) -> Path:
    """A folder with these packages and no others, for the front of a path."""
    cache = bed.python.parents[2]
    folder = cache / ("over-" + "-".join(package.replace("==", "-") for package in packages))
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        new = folder.with_name(f"{folder.name}.{os.getpid()}.new")
        pip = [str(bed.python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        done = subprocess.run(
            [*pip, "--no-deps", "--no-compile", "--target", str(new), *packages], capture_output=True, text=True
        )
        assert done.returncode == 0, f"pip could not fetch {packages}:\n{done.stderr[-2000:]}"
        new.rename(folder)
    return folder
