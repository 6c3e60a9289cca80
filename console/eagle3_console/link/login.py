"""One login: what asyncssh asks while a connection is made, answered from keys, the prompter and known_hosts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from eagle3_console.link.base import Prompter
from eagle3_console.link.errors import KeyUnusable
from eagle3_console.link.failures import Attempt
from eagle3_console.link.hostkeys import HostKeyCheck
from eagle3_console.link.keys import KeyRing
from eagle3_console.printable import plain

DEAD_AFTER = 20
"""Seconds without a sign from the box's network after which a connection is given up."""
SILENT_LOGIN = 60
"""Seconds that a box may be silent during a login in which nobody else is waited for: with dead name servers or a directory that
hangs, sshd takes half a minute to answer."""
_PASSWORD_TRIES = 3
_BANNER = 300
"""Characters of a banner that are told."""


def read_password(path: Path) -> str:
    """The first line of a password file.

    Raises:
        KeyUnusable: it cannot be read, or others may read it too.
    """
    try:
        if path.stat().st_mode & 0o077 and path.is_file():
            raise KeyUnusable(f"The password file {path} can be read by others. Protect it with: chmod 600 '{path}'")
        return path.read_text().split("\n", 1)[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise KeyUnusable(f"The password file {path} cannot be read: {error}. Check the path.") from None


def _watch_over(opened: socket.socket | None) -> None:
    """Let the kernel see a dead network after `DEAD_AFTER`, also during the login, which SSH's own keepalive does not cover."""
    if opened is None or opened.family not in (socket.AF_INET, socket.AF_INET6):
        return  # a proxy command, or another connection's channel
    wishes = {
        "TCP_KEEPIDLE": DEAD_AFTER // 4,
        "TCP_KEEPALIVE": DEAD_AFTER // 4,  # what macOS calls it
        "TCP_KEEPINTVL": DEAD_AFTER // 4,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": DEAD_AFTER * 1000,
    }
    with contextlib.suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wishes.items():
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Login(asyncssh.SSHClient):
    """asyncssh's view of us. It also keeps the record from which a refusal is explained.

    Args:
        who: ``user@host``, for the password prompt.
        password: given beforehand; used once, then the prompter is asked.
    """

    def __init__(self, who: str, check: HostKeyCheck, keys: KeyRing, prompter: Prompter, password: str | None) -> None:
        self._who = who
        self._check = check
        self._keys = keys
        self._prompter = prompter
        self._password = password
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connected = False
        self._passwords = 0
        self._challenges = 0
        self._declined: list[str] = []
        """Ways in which somebody was asked and did not answer."""
        self._expired = False
        self._offered: tuple[str, ...] = ()
        self._asking: asyncio.Task[Any] | None = None
        self.authenticating = asyncio.Event()
        self.signs_unasked = False
        self.asks_first = True
        """See `unasked`."""
        self._key_first: bool | None = None
        """Whether a key was shown before the box was asked anything; `None`: nothing was yet."""
        self._box_since: float | None = None
        """Since when nobody but the box is waited for; `None`: a person, a phone or an agent may be."""
        self._box_said = ""
        """The end of its banner."""
        self.lost: Exception | None = None
        """Why the connection ended; `None` while it stands and after a clean end."""

    def attempt(self, base: Attempt, **changes: Any) -> Attempt:
        """`base` with what is known now."""
        tried = list(self._keys.tried)
        for count, name in ((self._passwords, "password"), (self._challenges, "keyboard-interactive")):
            if count:
                tried.append(name if count == 1 else f"{name} ({count} times)")
        tried += [f"{name} (no answer)" for name in self._declined]
        known = {
            "connected": self._connected,
            "authenticating": self.authenticating.is_set(),
            "tried": tuple(tried),
            "offered": self._offered,
            "expired": self._expired,
            "box_said": self._box_said,
            "host_key_error": self._check.error(base.address),
        }
        return dataclasses.replace(base, **{**known, **changes})

    def trusted_keys(self, host: str, addr: str, port: int | None) -> Any:
        """asyncssh's ``known_hosts``."""
        return self._check.trusted(host, addr, port)

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn
        self._connected = True
        _watch_over(conn.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._check.check(host, port, key)

    def begin_auth(self, username: str) -> None:
        self.authenticating.set()
        self._box_since = None if self._box_said else time.monotonic()

    def overdue(self) -> bool:
        """Whether the box has said nothing for `SILENT_LOGIN` though only it is waited for.

        The kernel sees a dead network only as far as the next machine: not behind a jump host or a proxy. What a password or
        a question sets going on the box may take its time, and so may what a banner asks of a person.
        """
        return self._box_since is not None and time.monotonic() - self._box_since > SILENT_LOGIN

    def auth_banner_received(self, msg: str, lang: str) -> None:
        words = [word for line in msg.splitlines() for word in plain(line).split()]
        self._box_said = " ".join(words)[-_BANNER:]
        self._box_since = None

    async def key_first(self) -> bool:
        """Whether the login begins with a key; once."""
        self._key_first = self._key_first is None and await self._keys.first_is_open()
        return self._key_first

    @property
    def showed_key(self) -> bool:
        """Whether the login began with a key, and the box was asked nothing since."""
        return bool(self._key_first)

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        if not self.asks_first:
            self._note_offer()
        key = await self._keys.next()
        self.signs_unasked = self._keys.unasked
        if key is not None and self.signs_unasked and not self._box_said:
            self._box_since = time.monotonic()
        return key

    async def password_auth_requested(self) -> str | None:
        self._note_offer()
        if self._password is not None:
            password, self._password = self._password, None
        elif "password" in self._declined or self._passwords >= _PASSWORD_TRIES:
            return None
        else:
            again = " (the last one was wrong)" if self._passwords else ""
            answer = await self._prompter.password(f"Password for {self._who}{again}: ")
            if answer is None:
                self._declined.append("password")
                return None
            password = answer
        self._passwords += 1
        return password

    def password_change_requested(self, prompt: str, lang: str) -> Any:
        self._expired = True
        return NotImplemented

    def kbdint_auth_requested(self) -> str | None:
        self._note_offer()
        return None if "keyboard-interactive" in self._declined or self._challenges >= _PASSWORD_TRIES else ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        if not prompts:
            return []
        if self._password is not None and len(prompts) == 1 and not prompts[0][1]:
            password, self._password = self._password, None
            self._challenges += 1
            return [password]
        answers = await self._prompter.challenge(name or f"Login on {self._who}", instructions, prompts)
        if answers is None:
            self._declined.append("keyboard-interactive")
            return None
        self._challenges += 1
        return answers

    def _note_offer(self) -> None:
        self._box_since = None  # it answered
        if self._connection is not None:
            new = [name for name in self._connection.get_server_auth_methods() if name not in self._offered]
            self._offered = (*self._offered, *new)
