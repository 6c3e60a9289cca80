"""Keys to log in with, one after another: the agent's, then key files; a passphrase is asked when the box has said yes to the key."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import asyncssh

from eagle3_console.link.base import Prompter
from eagle3_console.link.errors import KeyUnusable

_DEFAULT_FILES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
_PASSPHRASE_TRIES = 3
_AGENT_TIMEOUT = 10.0


@dataclasses.dataclass(frozen=True)
class KeySources:
    """Where keys come from, as the SSH configuration and the options say."""

    files: tuple[Path, ...]
    agent: str
    """Socket of the agent; empty: none."""
    only_files: bool
    """IdentitiesOnly: of the agent's keys, only those whose file is named too."""
    preferred: bool = True
    """Whether keys are what to log in with first, as far as PreferredAuthentications and PubkeyAuthentication say."""


def default_files() -> tuple[Path, ...]:
    """Key files that exist in ~/.ssh under their usual names."""
    return tuple(path for name in _DEFAULT_FILES if (path := Path("~/.ssh", name).expanduser()).exists())


def require_usable(files: Sequence[Path]) -> None:
    """Check key files that a person named, before anything is sent.

    Raises:
        KeyUnusable: one cannot be read or is no private key. An encrypted one is fine.
    """
    for path in files:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise KeyUnusable(
                f"The key file {path} cannot be read: {error.strerror}. Check the path given with -i."
            ) from None
        if not _is_encrypted(data):
            try:
                asyncssh.import_private_key(data)
            except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
                raise KeyUnusable(
                    f"{path} is no private key that can be used: {error}. Check the path given with -i."
                ) from None


class KeyRing:
    """The keys of one login, in the order ssh tries them, and a record of what was tried."""

    def __init__(self, sources: KeySources, prompter: Prompter) -> None:
        self._sources = sources
        self._prompter = prompter
        self._keys = self._all()
        self._agent: asyncssh.SSHAgentClient | None = None
        self._of_agent: Sequence[asyncssh.SSHKeyPair] | None = None
        """Its keys, once it was asked."""
        self._agent_keys = 0
        self._agent_note = ""
        self._files: dict[Path, str] = {}
        self._open: set[Path] = set()
        """Those without a passphrase."""
        self._asking: asyncio.Task[object] | None = None
        self.unasked = False
        """Whether the key that `next` gave last signs without a passphrase, a touch or anybody's consent."""

    @property
    def tried(self) -> tuple[str, ...]:
        """What was tried, in words."""
        agent = []
        if self._agent_note:
            agent = [self._agent_note]
        elif self._agent_keys:
            agent = [f"the agent ({self._agent_keys} key{'s' if self._agent_keys > 1 else ''})"]
        return (*agent, *(f"{path}{note}" for path, note in self._files.items()))

    async def next(self) -> asyncssh.SSHKeyPair | None:
        """The next key, or `None` at the end."""
        return await anext(self._keys, None)

    async def first_is_open(self) -> bool:
        """Whether `next` will first give the key of a file without a passphrase. Asks nobody but the agent."""
        if not self._sources.preferred or await self._from_agent():
            return False
        for path in self._sources.files:
            with contextlib.suppress(OSError, asyncssh.KeyImportError):
                data = await asyncio.to_thread(path.read_bytes)
                return not _is_encrypted(data) and bool(asyncssh.import_private_key(data))
        return False

    async def close(self) -> None:
        """Let go of the agent and of a question that is still open."""
        if self._asking is not None:
            self._asking.cancel()
        await self._keys.aclose()
        if self._agent is not None:
            self._agent.close()
            with contextlib.suppress(OSError):
                await self._agent.wait_closed()

    async def _all(self) -> AsyncGenerator[asyncssh.SSHKeyPair, None]:
        seen: set[bytes] = set()
        for pair in await self._from_agent():
            self._agent_keys += 1
            seen.add(pair.public_data)
            yield pair
        for path in self._sources.files:
            for pair in await self._from_file(path):
                if pair.public_data not in seen:
                    self._files.setdefault(path, "")
                    seen.add(pair.public_data)
                    self.unasked = path in self._open and not pair.algorithm.startswith(b"sk-")
                    yield pair

    async def _from_agent(self) -> Sequence[asyncssh.SSHKeyPair]:
        if self._of_agent is None:
            self._of_agent = await self._ask_agent()
        return self._of_agent

    async def _ask_agent(self) -> Sequence[asyncssh.SSHKeyPair]:
        if not self._sources.agent:
            return ()
        try:
            async with asyncio.timeout(_AGENT_TIMEOUT):
                self._agent = await asyncssh.connect_agent(self._sources.agent)
                pairs = await self._agent.get_keys()
        except (OSError, ValueError, asyncssh.Error) as error:
            self._agent_note = f"the agent (it does not answer: {error or 'timeout'})"
            return ()
        if self._sources.only_files:
            wanted = {data for path in self._sources.files if (data := _public_data(path)) is not None}
            return [pair for pair in pairs if pair.public_data in wanted]
        return pairs

    async def _from_file(self, path: Path) -> Sequence[asyncssh.SSHKeyPair]:
        loop = asyncio.get_running_loop()
        try:
            data = await asyncio.to_thread(path.read_bytes)
            encrypted = _is_encrypted(data)
            if not encrypted:
                self._open.add(path)
            if encrypted and _public_data(path) is None:
                self._files[path] = ""
                passphrase = await self._ask(str(path))  # only the private half could tell whether the box wants it
                return asyncssh.load_keypairs(asyncssh.import_private_key(data, passphrase))
            # With a passphrase function and a known public half, asyncssh decrypts when it signs: after the box said yes.
            return await asyncio.to_thread(asyncssh.load_keypairs, str(path), self._ask, loop=loop)  # type: ignore[arg-type]
        except FileNotFoundError:
            return ()  # as ssh: a configured file that is not there is skipped
        except OSError as error:
            self._files[path] = f" (cannot be read: {error.strerror})"
        except ValueError as error:
            if not self._files.get(path):
                self._files[path] = f" (cannot be used: {error})"
        return ()

    async def _ask(self, filename: str) -> str:
        """The right passphrase. Raises ValueError, which asyncssh takes as: go on with the next key."""
        path = Path(filename)
        self._asking = asyncio.current_task()
        data = await asyncio.to_thread(path.read_bytes)
        for _ in range(_PASSPHRASE_TRIES):
            passphrase = await self._prompter.passphrase(filename)
            if passphrase is None:
                self._files[path] = " (encrypted, no passphrase was given)"
                raise ValueError("no passphrase")
            with contextlib.suppress(asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                await asyncio.to_thread(asyncssh.import_private_key, data, passphrase)
                return passphrase
        self._files[path] = f" (wrong passphrase, {_PASSPHRASE_TRIES} times)"
        raise ValueError("wrong passphrase")


def agent_socket(configured: object) -> str:
    """The agent's socket from IdentityAgent (`()` where it is not set) and the environment."""
    if configured is None:
        return ""
    if isinstance(configured, str) and configured and configured != "SSH_AUTH_SOCK":
        return str(Path(configured).expanduser())
    return os.environ.get("SSH_AUTH_SOCK", "")


def _is_encrypted(data: bytes) -> bool:
    try:
        asyncssh.import_private_key(data)
    except asyncssh.KeyEncryptionError:
        return True
    except asyncssh.KeyImportError as error:
        return str(error).startswith("Passphrase")
    return False


def _public_data(path: Path) -> bytes | None:
    """The public half beside or inside a key file."""
    for place in (f"{path}.pub", str(path)):
        with contextlib.suppress(OSError, asyncssh.KeyImportError):
            return asyncssh.read_public_key(place).public_data
    return None
