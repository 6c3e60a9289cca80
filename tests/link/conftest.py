"""Boxes that the link tests connect to."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.link.route import SshOptions
from tests.link.sshd import SshdBox, running_sshd


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tester's own ~/.ssh and agent play no part."""
    home = tmp_path / "laptop home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def ssh_dir(_no_home: None) -> Path:
    """The laptop's ~/.ssh."""
    path = Path("~/.ssh").expanduser()
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdBox]:
    """A real sshd that lets the tester in with a key."""
    with running_sshd(getpass.getuser(), tmp_path_factory.mktemp("box")) as running:
        yield running


def options_for(box: SshdBox, **changed: object) -> SshOptions:
    """Options that log in without a question, without the tester's configuration."""
    given: dict[str, object] = {
        "config_files": (),
        "identity_files": (box.identity_file,),
        "known_hosts": box.known_hosts,
        **changed,
    }
    return SshOptions(**given)  # type: ignore[arg-type]
