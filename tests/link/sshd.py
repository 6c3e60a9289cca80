"""A real OpenSSH server on loopback, with keys, configuration and port of its own, as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_SBIN = "/usr/sbin:/usr/local/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_START_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class SshdBox:
    """A running sshd and everything that is needed to log in to it."""

    host: str
    port: int
    user: str
    identity_file: Path
    known_hosts_line: str
    config_file: Path
    """A client configuration in which ``box`` is this server, with known hosts and key."""
    known_hosts: Path
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    def drop(self) -> None:
        """Kill the server's side of every connection with SIGKILL; what runs on the box, and the listener, go on."""
        for pid in _sshd_children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        """Kill the listener and every connection, as a power failure would. Idempotent."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)  # no new connection while we look
            self.drop()
            self.process.kill()
        self.process.wait()


@dataclasses.dataclass(frozen=True)
class Account:
    """An ordinary user of this machine."""

    name: str
    home: Path
    uid: int


def require(there: object, reason: str) -> None:
    """Skip with the reason on a person's machine; under CI a missing tool is a failure."""
    if there:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have this: {reason}")
    pytest.skip(reason)


def tool(name: str) -> str:
    """Absolute path of a program, also from the sbin directories."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":" + _SBIN)
    require(path, f"{name} is not installed")
    assert path is not None
    return path


@contextlib.contextmanager
def ordinary_user(shell: str = "/bin/bash", password: str = "") -> Iterator[Account]:
    """An account made for the test and removed after it. Needs root."""
    require(os.geteuid() == 0, "only root can make a user for the test")
    name = f"e3t{secrets.token_hex(4)}"
    # '*' is no password at all; '!' would lock the account, and sshd refuses those
    subprocess.run([tool("useradd"), "-m", "-p", "*", "-s", shell, name], check=True, capture_output=True)
    entry = pwd.getpwnam(name)
    try:
        if password:
            subprocess.run([tool("chpasswd")], input=f"{name}:{password}".encode(), check=True, capture_output=True)
        yield Account(name, Path(entry.pw_dir), entry.pw_uid)
    finally:
        _remove(name, entry.pw_uid)


@contextlib.contextmanager
def running_sshd(
    user: str, tmp_path: Path, config: str = "", key: str = "ed25519", prefix: Sequence[str] = ()
) -> Iterator[SshdBox]:
    """A server that lets `user` in with a key of its own.

    Args:
        user: an account of this machine; without root only one's own.
        tmp_path: for the client's files.
        config: more lines for sshd_config; they win over ours.
        key: type of the host key.
        prefix: words in front of sshd that end in running it, such as ``unshare``.
    """
    sshd = tool("sshd")
    root = os.geteuid() == 0
    require(root or user == getpass.getuser(), "only root can let other users in")
    if root:
        Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    tmp_path.mkdir(parents=True, exist_ok=True)
    identity = new_key(tmp_path / "id_ed25519", "ed25519")
    # sshd reads authorized_keys as the user, who cannot look into pytest's own directory
    with tempfile.TemporaryDirectory(prefix="eagle3-sshd-") as name:
        there = Path(name)
        there.chmod(0o755)
        host_key = new_key(there / "host_key", key)
        authorized = there / "authorized_keys"
        authorized.write_text(identity.with_suffix(".pub").read_text())
        authorized.chmod(0o644)
        log = tmp_path / "sshd.log"
        process, port = _start([*prefix, sshd], there, log, config, authorized, host_key)
        public = host_key.with_suffix(".pub").read_text().split()
        line = f"[127.0.0.1]:{port} {public[0]} {public[1]}\n"
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(line)
        client = tmp_path / "ssh_config"
        client.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {identity}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {known_hosts}\n"
        )
        box = SshdBox("127.0.0.1", port, user, identity, line, client, known_hosts, log, process)
        try:
            yield box
        finally:
            box.cut()


def _start(
    sshd: list[str], there: Path, log: Path, config: str, authorized: Path, host_key: Path
) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(5):  # the free port may be taken by somebody else meanwhile
        port = _free_port()
        file = there / "sshd_config"
        file.write_text(
            f"{config}\nPort {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nAuthorizedKeysFile {authorized}\n"
            f"PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nUseDNS no\nLogLevel VERBOSE\nMaxStartups 100\n"
        )
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*sshd, "-D", "-e", "-f", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        if _answers(process, port):
            return process, port
        process.kill()
        process.wait()
    pytest.fail(f"sshd did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            return probe.recv(4) == b"SSH-"
        time.sleep(0.02)
    return False


def new_key(path: Path, kind: str = "ed25519") -> Path:
    """A key pair without passphrase at `path` and ``path.pub``, unless it is there."""
    if not path.exists():
        words = [tool("ssh-keygen"), "-q", "-t", kind, "-N", "", "-C", "test", "-f", str(path)]
        subprocess.run(words, check=True, capture_output=True)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _sshd_children(root: int) -> list[int]:
    """Processes named sshd below `root`. Each connection has one or two, in sessions of their own."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            if "(sshd" in name:
                parents[int(entry.name)] = int(rest.split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _remove(name: str, uid: int) -> None:
    """Remove an account that was made for the test, and what still runs as it; userdel refuses while anything does."""
    until = time.monotonic() + _START_SECONDS
    while True:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if entry.stat().st_uid == uid:
                    os.kill(int(entry.name), signal.SIGKILL)
        done = subprocess.run([tool("userdel"), "-r", name], capture_output=True, text=True)
        if name not in (entry.pw_name for entry in pwd.getpwall()):
            return
        assert time.monotonic() < until, done.stderr
        time.sleep(0.05)
