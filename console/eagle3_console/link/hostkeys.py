"""Whether a box is the one it was last time: trust on first use, and never a silent yes.

asyncssh neither asks nor writes known_hosts, and says the same thing of an unknown and of a changed key. So the whole decision is here: the files
are looked up as OpenSSH does it (hashed names, ``[host]:port``, HostKeyAlias without a port, ``@cert-authority``, ``@revoked``).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import fcntl
import hashlib
import hmac
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import asyncssh

from eagle3_console.link.errors import HostKeyChanged, HostKeyError, HostKeyRevoked, HostKeyUnknown

SSH_PORT = 22


class Verdict(enum.Enum):
    """What the known keys say about the key that a box shows."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    NOT_PINNED = "not-pinned"


@dataclasses.dataclass(frozen=True)
class Known:
    """What the known_hosts files hold about one name."""

    keys: tuple[asyncssh.SSHKey, ...] = ()
    authorities: tuple[asyncssh.SSHKey, ...] = ()
    revoked: tuple[asyncssh.SSHKey, ...] = ()
    file: Path | None = None
    """The first file with a key for the name: where a wrong one is to be removed."""


def entry_name(host: str, port: int, alias: str | None) -> str:
    """The name of a box in known_hosts: an alias stands alone, another port than 22 is part of the name."""
    if alias:
        return alias
    host = host.lower()
    return host if port == SSH_PORT else f"[{host}]:{port}"


def look_up(files: Sequence[Path], host: str, port: int, alias: str | None = None) -> Known:
    """Everything stored about a box. Lines that cannot be read are skipped, as OpenSSH does; so are missing files.

    A key stored for the plain host name is also good for another port (OpenSSH does so), but a different one there proves nothing.
    """
    known = _look_up(files, entry_name(host, port, alias))
    if known.keys or known.authorities or alias or port == SSH_PORT:
        return known
    plain = _look_up(files, host.lower())
    return Known((), plain.authorities, (*known.revoked, *plain.revoked), None)


def plain_keys(files: Sequence[Path], host: str, port: int, alias: str | None = None) -> tuple[asyncssh.SSHKey, ...]:
    """Keys stored for the name without its port, which are trusted on any port that has no entry of its own."""
    if alias or port == SSH_PORT or _look_up(files, entry_name(host, port, None)).keys:
        return ()
    return _look_up(files, host.lower()).keys


def remember(file: Path, name: str, key: asyncssh.SSHKey) -> None:
    """Append a key to a known_hosts file: locked, 0600 in a 0700 directory where they are new, hashed if the file's entries are.

    Raises:
        OSError: it cannot be written, or is not a regular file.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{file} is not a regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        present = _read_all(descriptor)
        if key in _look_up_text(present.decode(errors="replace"), name).keys:
            return  # another console was faster
        hashed = any(line.startswith(b"|1|") for line in present.splitlines())
        public = key.export_public_key("openssh").split()
        line = b" ".join([(_hashed(name) if hashed else name).encode(), public[0], public[1]]) + b"\n"
        os.write(descriptor, (b"\n" if present and not present.endswith(b"\n") else b"") + line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HostKeyCheck:
    """The decision for one box, fed by the key exchange; it says no first and is asked why afterwards.

    Args:
        files: known_hosts files, the user's first.
        alias: HostKeyAlias of the configuration.
        pin: ``SHA256:…``: the only key to accept, whatever is stored (a revoked one stays refused).
    """

    def __init__(self, files: Sequence[Path], alias: str | None, pin: str = "") -> None:
        self._files = tuple(files)
        self._alias = alias
        self._pin = pin
        self._accepted: set[asyncssh.SSHKey] = set()
        self.known = Known()
        self.shown: asyncssh.SSHKey | None = None
        self.verdict: Verdict | None = None
        self.host, self.port = "", SSH_PORT

    @property
    def name(self) -> str:
        """The box's name in known_hosts."""
        return entry_name(self.host, self.port, self._alias)

    def trusted(
        self, host: str, addr: str, port: int | None
    ) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
        """asyncssh's lookup: host keys, authorities, revoked keys. No host keys, so that each one comes to `check`."""
        self.known = look_up(self._files, host, port or SSH_PORT, self._alias)
        if self._pin or not self.known.authorities:
            return [], [], []
        return [], list(self.known.authorities), list(self.known.revoked)

    def check(self, host: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Whether `key` may be trusted now; `verdict` and `shown` keep the reason."""
        self.host, self.port, self.shown = host, port, key
        self.verdict = self._judge(key)
        return self.verdict is Verdict.TRUSTED

    def accept(self, key: asyncssh.SSHKey) -> None:
        """Trust exactly this key from now on: a person, or an option, said so."""
        self._accepted.add(key)

    def preferred_algorithms(self, host: str, port: int) -> list[str]:
        """Algorithms of the stored keys, so that the box shows a key that can be compared."""
        names: list[str] = []
        for key in (
            *look_up(self._files, host, port, self._alias).keys,
            *plain_keys(self._files, host, port, self._alias),
        ):
            names += [algorithm.decode() for algorithm in key.sig_algorithms if algorithm.decode() not in names]
        return names

    def has_authorities(self, host: str, port: int) -> bool:
        """Whether host certificates are worth asking for."""
        return not self._pin and bool(look_up(self._files, host, port, self._alias).authorities)

    def error(self, address: str) -> HostKeyError | None:
        """Why the key was refused, as a sentence; `None` if it was not."""
        if self.shown is None or self.verdict in (None, Verdict.TRUSTED):
            return None
        shown = f"{self.shown.get_fingerprint()} ({algorithm_name(self.shown)})"
        if self.verdict is Verdict.REVOKED:
            return HostKeyRevoked(
                f"{address} shows a host key that is marked as revoked in known_hosts: {shown}. "
                "The connection was refused and nothing was sent. Ask whoever runs the box for its new key."
            )
        if self.verdict is Verdict.NOT_PINNED:
            return HostKeyChanged(
                f"{address} shows the host key {shown}, but --host-key asks for {self._pin}. "
                "The connection was refused and nothing was sent. Check the fingerprint with whoever runs the box."
            )
        if self.verdict is Verdict.CHANGED:
            stored = ", ".join(f"{key.get_fingerprint()} ({algorithm_name(key)})" for key in self.known.keys)
            file = self.known.file or Path("~/.ssh/known_hosts")
            return HostKeyChanged(
                f"The host key of {address} has changed: stored is {stored}, but the box shows {shown}. Either the box was set up anew, "
                "or somebody sits in between: the connection was refused and nothing was sent. If whoever runs the box confirms the new "
                f"fingerprint, remove the old key with: ssh-keygen -R '{self.name}' -f '{file}'"
            )
        return HostKeyUnknown(
            f"The host key of {address} is not known here: {shown}. Nobody confirmed it, so nothing was sent. Compare the fingerprint with "
            f"the box's (there: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then connect once from a terminal and answer yes, or give "
            f"--host-key {self.shown.get_fingerprint()}, or --accept-new-host-key to trust it unseen."
        )

    def _judge(self, key: asyncssh.SSHKey) -> Verdict:
        self.known = look_up(self._files, self.host, self.port, self._alias)
        if key in self.known.revoked:
            return Verdict.REVOKED
        if self._pin:
            return Verdict.TRUSTED if same_fingerprint(key.get_fingerprint(), self._pin) else Verdict.NOT_PINNED
        if key in self._accepted or key in self.known.keys:
            return Verdict.TRUSTED
        if key in plain_keys(self._files, self.host, self.port, self._alias):
            return Verdict.TRUSTED
        return Verdict.CHANGED if self.known.keys else Verdict.UNKNOWN


def same_fingerprint(one: str, other: str) -> bool:
    """Compare two ``SHA256:…`` fingerprints; padding and a missing prefix do not matter."""
    return _bare(one) == _bare(other)


def algorithm_name(key: asyncssh.SSHKey) -> str:
    """The key's type as ssh-keygen -l names it: ``ED25519``, ``RSA``, ``ECDSA``."""
    name = key.get_algorithm().removeprefix("sk-").removeprefix("ssh-")
    return "ECDSA" if name.startswith("ecdsa") else name.partition("@")[0].upper()


def _bare(fingerprint: str) -> str:
    return fingerprint.strip().removeprefix("SHA256:").rstrip("=")


def _look_up(files: Sequence[Path], name: str) -> Known:
    found = Known()
    for file in files:
        with contextlib.suppress(OSError):
            here = _look_up_text(file.read_text(errors="replace"), name)
            found = Known(
                (*found.keys, *here.keys),
                (*found.authorities, *here.authorities),
                (*found.revoked, *here.revoked),
                found.file or (file if here.keys else None),
            )
    return found


def _look_up_text(text: str, name: str) -> Known:
    hosts = asyncssh.SSHKnownHosts()
    for line in _candidates(text, name):
        with contextlib.suppress(ValueError):  # a damaged line is none of ours to judge
            hosts.load(line)
    keys, authorities, revoked, *_ = hosts.match(name, "", None)
    return Known(tuple(keys), tuple(authorities), tuple(revoked))


def _candidates(text: str, name: str) -> Iterable[str]:
    """The lines that can be about `name`: plain ones of other hosts are left out, since reading a key costs time."""
    for line in text.splitlines():
        words = line.split(None, 2)
        if len(words) < 2 or words[0].startswith("#"):
            continue
        pattern = words[1] if words[0].startswith("@") else words[0]
        if any(sign in pattern for sign in "|*?!/") or name in pattern.split(","):
            yield line


def _hashed(name: str) -> str:
    salt = os.urandom(hashlib.sha1().digest_size)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _read_all(descriptor: int) -> bytes:
    parts = []
    os.lseek(descriptor, 0, os.SEEK_SET)
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)
