"""The release that goes to the box: our own two packages, addressed by their content."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import zipfile
from functools import cache
from pathlib import Path

PACKAGES = ("eagle3_remote", "eagle3_patch")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time stamp: the same sources give the same bytes


@dataclasses.dataclass(frozen=True)
class Release:
    """A zip of the packages and its sha256, which is also the name of the release on the box."""

    sha256: str
    payload: bytes


@cache
def build() -> Release:
    """Zip the packages of this installation, from a checkout or from an installed wheel alike.

    Raises:
        FileNotFoundError: a package is not installed beside the console.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            root = package_dir(package)
            for path in sorted(root.rglob("*.py")):
                info = zipfile.ZipInfo(f"{package}/{path.relative_to(root).as_posix()}", _EPOCH)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, path.read_bytes())
    payload = buffer.getvalue()
    return Release(hashlib.sha256(payload).hexdigest(), payload)


def package_dir(package: str) -> Path:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"The package {package} is not installed beside the console: install eagle3-console again."
        )
    return Path(spec.origin).parent


def script(name: str) -> str:
    """The source of a self-contained script of `eagle3_remote.box`, to be piped into a Python on the box."""
    return (package_dir("eagle3_remote") / "box" / f"{name}.py").read_text(encoding="utf-8")
