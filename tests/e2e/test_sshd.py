"""The whole job against a real OpenSSH server, as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from eagle3_console.demo.testbed import install
from tests.e2e.conftest import console, free_port, make
from tests.link.sshd import SshdBox, ordinary_user, require, running_sshd, tool

SAMPLES = 24

_OPEN_ROOT = """
set -e
mount --bind "$1" "$2"
mount -t tmpfs -o mode=755 tmpfs "$1"
shift 2
while [ "$1" != -- ]; do
  mkdir -p "$2"
  mount --bind "$1" "$2"
  shift 2
done
shift
exec "$@"
"""


def seen_by_others(path: Path) -> bool:
    """Whether an ordinary user may walk to `path`."""
    return all(parent.stat().st_mode & 0o001 for parent in [path, *path.parents] if parent.is_dir())


@contextlib.contextmanager
def in_reach(bed: install.TestBed, scratch: Path) -> Iterator[list[str]]:
    """Words in front of sshd under which an ordinary user reaches the test bed and its Python.

    Where they lie in root's own home, sshd gets a view of the file system in which that home holds these two alone and is
    open; nothing is changed outside of that view.
    """
    needed = [bed.python.parent.parent, Path(os.path.realpath(bed.python)).parent.parent]
    if all(seen_by_others(path) for path in needed):
        yield []
        return
    home = Path.home()
    assert all(path.is_relative_to(home) for path in needed), needed
    real = scratch / "home-as-it-is"
    real.mkdir()
    pairs = [str(part) for path in needed for part in (real / path.relative_to(home), path)]
    yield [tool("unshare"), "--mount", "--propagation", "private", "/bin/sh", "-c", _OPEN_ROOT, "sh", str(home), str(real), *pairs, "--"]  # fmt: skip


def whole_job(box: SshdBox, home: Path, bed: install.TestBed, stubs: Path) -> None:
    """run, then what a second console sees, then stop."""
    login = ["box", "--ssh-config", str(box.config_file), "--box-dir", str(home / "our files")]
    env = {**bed.env, "PYTHONPATH": str(stubs)}
    out = home / "data set"
    words = [
        *login,
        f"--python={bed.python}",
        f"--model={home / 'model'}",
        f"--data={home / 'tokenized_data.jsonl'}",
        f"--out={out}",
        f"--port={free_port()}",
        *(f"--server-arg={arg}" for arg in bed.server_args),
        *(f"--server-env={key}={value}" for key, value in env.items()),
    ]
    try:
        ran = console("run", *words, "--json")
        assert ran.code == 0, ran.err
        assert (ran.json["extract"]["stored"], ran.json["verify"]["ok"]) == (SAMPLES, True)
        assert ran.json["probe"]["dumped"] == 19
        files = list((out / "hidden_states").glob("hs_*.safetensors"))
        assert len(files) == SAMPLES
        assert {path.stat().st_uid for path in files} == {home.stat().st_uid}

        status = console("server", "status", *login, "--json")
        assert status.json["phase"] in ("ready", "busy")
        report = console("report", *login)
        assert report.code == 0, report.err
        assert f"{SAMPLES} stored" in report.out
        log = console("server", "log", *login, "-n", "0")
        assert "eagle3-patch ready" in log.out
    finally:
        stopped = console("server", "stop", *login, "--json")
    assert stopped.code == 0, stopped.err
    assert stopped.json["leftovers"] == []
    assert console("server", "status", *login, "--json").json["phase"] == "exited"


def prepare(bed: install.TestBed, home: Path) -> Path:
    """Model, data and stand-ins in the home of the box; where the stand-ins are."""
    make(bed, "make_model.py", "llama", home / "model")
    make(bed, "make_data.py", home / "tokenized_data.jsonl", "--samples", str(SAMPLES))
    shutil.copytree(bed.stubs, home / "stubs")
    return home / "stubs"


def test_as_myself(tmp_path: Path, bed: install.TestBed) -> None:
    home = tmp_path / "work"
    home.mkdir()
    stubs = prepare(bed, home)
    with running_sshd(getpass.getuser(), tmp_path / "ssh") as box:
        whole_job(box, home, bed, stubs)


def test_as_an_ordinary_user(tmp_path: Path, bed: install.TestBed) -> None:
    require(os.geteuid() == 0, "only root can make a user for the test")
    with ordinary_user() as account, in_reach(bed, tmp_path) as prefix:
        home = account.home / "work"
        home.mkdir()
        stubs = prepare(bed, home)
        shutil.chown(home, account.uid, account.uid)
        for path in home.rglob("*"):
            shutil.chown(path, account.uid, account.uid)
        with running_sshd(account.name, tmp_path / "ssh", prefix=prefix) as box:
            whole_job(box, home, bed, stubs)
