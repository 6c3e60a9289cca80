"""The way into a Python process: the environment's own sitecustomize runs as if ours were not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_patch import layout
from tests.patch.servers import ENTRY

REPORT = (
    "import sys; m = sys.modules.get('sitecustomize'); print(getattr(m, '__file__', None), getattr(m, 'WHO', None))"
)


def python(
    *paths: Path | str, code: str = REPORT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with `paths` as its PYTHONPATH."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "EAGLE3", "SGLANG"))}
    clean |= {"PYTHONPATH": os.pathsep.join(map(str, paths))} | (env or {})
    return subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)


def write(folder: Path, text: str, name: str = "sitecustomize.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def test_the_next_one_on_the_path_runs_in_our_place(tmp_path: Path) -> None:
    theirs = write(tmp_path, "WHO = 'theirs'\n")
    done = python(ENTRY, theirs)
    assert done.stdout.split() == [str(theirs / "sitecustomize.py"), "theirs"]
    assert done.stderr == ""


def test_one_that_is_a_package_runs_with_its_relative_imports(tmp_path: Path) -> None:
    write(tmp_path, "from .other import WHO\n", "sitecustomize/__init__.py")
    write(tmp_path, "WHO = 'package'\n", "sitecustomize/other.py")
    assert python(ENTRY, tmp_path).stdout.split()[1] == "package"


def test_without_another_nothing_happens(tmp_path: Path) -> None:
    done = python(ENTRY, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_that_fails_is_named_and_the_process_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "raise RuntimeError('their own fault')\n")
    done = python(ENTRY, tmp_path)
    assert done.returncode == 0
    assert str(tmp_path / "sitecustomize.py") in done.stderr
    assert "RuntimeError: their own fault" in done.stderr


def test_ours_twice_and_through_a_symbolic_link_does_not_chain_to_itself(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(ENTRY)
    theirs = write(tmp_path / "theirs", "WHO = 'theirs'\nprint('once')\n")
    assert python(ENTRY, link, ENTRY, theirs).stdout.split()[::2] == ["once", "theirs"]


def test_a_child_process_chains_as_well(tmp_path: Path) -> None:
    write(tmp_path, "WHO = 'theirs'\n")
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {REPORT!r}], check=True)"
    assert python(ENTRY, tmp_path, code=code).stdout.split()[1] == "theirs"


LOADED = "import sys; print(sorted(name for name in sys.modules if name.startswith(('eagle3', 'torch', 'sglang'))))"


def test_unset_nothing_of_ours_is_imported() -> None:
    done = python(ENTRY, code=LOADED, env={layout.ENV_DUMP_DIR: ""})
    assert done.stdout.splitlines() == ["[]"]


def test_set_the_package_is_that_of_the_release_and_the_path_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "VERSION = 'installed elsewhere'\n", "eagle3_patch/__init__.py")
    path = "print([entry for entry in sys.path if entry])"
    code = f"import sys, eagle3_patch; print(eagle3_patch.__file__); {path}"
    done = python(ENTRY, tmp_path, code=code, env={layout.ENV_DUMP_DIR: "/somewhere"})
    plain = python(ENTRY, tmp_path, code=f"import sys; {path}")
    assert done.stdout.splitlines() == [str(ENTRY.parent / "__init__.py"), plain.stdout.strip()]


@pytest.mark.parametrize("name", [layout.ENV_DUMP_DIR, layout.ENV_DUMP_DIR_OLD])
def test_set_only_the_watcher_is_imported(name: str) -> None:
    done = python(ENTRY, code=LOADED, env={name: "/somewhere"})
    found = ["eagle3_patch", "eagle3_patch.config", "eagle3_patch.hooks", "eagle3_patch.layout", "eagle3_patch.markers"]
    assert done.stdout.splitlines() == [str(found)]


def test_the_entry_knows_the_names_of_the_layout() -> None:
    code = "import sitecustomize; print(*sitecustomize.DUMP_VARIABLES)"
    assert python(ENTRY, code=code).stdout.split() == [layout.ENV_DUMP_DIR, layout.ENV_DUMP_DIR_OLD]


def test_a_release_that_does_not_load_ends_the_process_with_the_refusal(tmp_path: Path) -> None:
    entry = write(tmp_path / "eagle3_patch" / "entry", (ENTRY / "sitecustomize.py").read_text())
    write(tmp_path / "eagle3_patch", "", "__init__.py")
    write(tmp_path / "eagle3_patch", "raise ImportError('cut off in the middle')\n", "hooks.py")
    done = python(entry, code="print('served')", env={layout.ENV_DUMP_DIR: "/somewhere"})
    assert done.returncode == 3
    assert "served" not in done.stdout
    assert layout.MARKER_REFUSED in done.stdout
    assert "cut off in the middle" in done.stdout


def test_two_finders_on_one_module_do_not_recurse(tmp_path: Path) -> None:
    """Another tool's post-import finder delegates to ours while ours delegates to it."""
    write(
        tmp_path,
        "from eagle3_patch import hooks\nhooks.TARGETS['victim'] = 'none'\nhooks.apply = print\nhooks.install()\n",
    )
    write(tmp_path, "VALUE = 1\n", "victim.py")
    code = "import victim; print(victim.VALUE)"
    done = python(ENTRY, tmp_path, code=code, env={layout.ENV_DUMP_DIR: "/somewhere", "PYTHONSAFEPATH": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1"
    assert done.stdout.count("<module 'victim'") >= 1
