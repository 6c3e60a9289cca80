"""The built wheel, installed where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

_MEASURE = """
import resource, subprocess, sys
subprocess.run([sys.argv[1], *sys.argv[2:]], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
"""
_LOADED = """
import sys
from eagle3_console import cli
try:
    cli.main([sys.argv[1]])
except SystemExit:
    pass
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
    pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, timeout=300)
    return home / "bin"


def test_wheel_carries_the_three_packages_and_the_test_bed(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"eagle3_console/cli.py", "eagle3_remote/agent.py", "eagle3_remote/extract/__main__.py"} <= names
    assert {"eagle3_patch/layout.py", "eagle3_patch/entry/sitecustomize.py"} <= names
    assert any(name.startswith("eagle3_console/demo/testbed/requirements-") for name in names)
    assert "eagle3_console/demo/testbed/stubs/sitecustomize.py" in names
    assert "eagle3_console/recording/demo.ndjson.gz" in names
    # at the top of site-packages it would run in every Python of that environment
    assert "sitecustomize.py" not in names


def test_installed_console_is_light_and_quick(venv: Path) -> None:
    for word in ("--version", "--help"):
        told = subprocess.run([venv / "eagle3-console", word], capture_output=True, text=True, check=True, timeout=60)
        assert told.stdout.startswith("eagle3-console " if word == "--version" else "usage: eagle3-console")
        loaded = subprocess.run([venv / "python", "-c", _LOADED, word], capture_output=True, text=True, check=True)
        assert not {"textual", "torch", "asyncssh", "httpx", "plotext"} & set(loaded.stdout.splitlines()[-1].split())
        argv = [str(venv / "python"), "-c", _MEASURE, str(venv / "eagle3-console"), word]
        seconds = min(float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout) for _ in range(3))
        assert seconds < 0.3, f"{word} took {seconds:.2f} s of CPU"


def test_base_install_brings_nothing_heavy(venv: Path) -> None:
    listed = subprocess.run([venv / "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True)
    packages = {line.split("==")[0].lower() for line in listed.stdout.splitlines()}
    assert {"textual", "asyncssh", "bcrypt", "httpx", "plotext", "psutil"} <= packages
    assert not {"torch", "sglang", "safetensors", "numpy", "transformers"} & packages


def test_installed_console_can_upload_its_box_side(venv: Path, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    first, second = (
        subprocess.run(
            [venv / "eagle3-console", "deploy", "local", "--python", venv / "python"],
            capture_output=True, text=True, env=env, timeout=60,
        )
        for _ in range(2)
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    assert not first.stdout.endswith(": 0 bytes uploaded\n")
    assert second.stdout.endswith(": 0 bytes uploaded\n")
    release = Path(first.stdout.rsplit(":", 1)[0])
    assert (release / "eagle3_patch" / "entry" / "sitecustomize.py").is_file()


def test_installed_console_shows_a_real_run_without_a_box(venv: Path) -> None:
    told = subprocess.run([venv / "eagle3-console", "replay"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    assert "recorded: SGLang 0.5.17 on one H200, " in told.stderr
    assert "extract: done: Finished: 1499 stored, 1 rejected, 0 failed." in told.stderr
