"""What the SSH configuration says about a box, before anything is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path
from typing import Any

import asyncssh

from eagle3_console.link import target as targets
from eagle3_console.link.errors import ConfigError
from eagle3_console.link.keys import KeySources, agent_socket, default_files
from eagle3_console.link.target import Target

_USER_CONFIG = Path("~/.ssh/config")
_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclasses.dataclass(frozen=True)
class SshOptions:
    """What a person may say about the way to a box; everything else comes from the SSH configuration."""

    config_files: tuple[Path, ...] | None = None
    """`None`: ~/.ssh/config and /etc/ssh/ssh_config where they exist. Empty: no configuration."""
    identity_files: tuple[Path, ...] = ()
    """Private keys to try before the configured ones."""
    known_hosts: Path | None = None
    """Instead of UserKnownHostsFile and the system's files: read, and written to."""
    host_key: str = ""
    """``SHA256:…``: the only host key to accept from the box (jump hosts are checked as always)."""
    accept_new: bool = False
    """Trust and store keys of boxes never seen before. A changed key is refused all the same."""
    connect_timeout: float = 10.0
    """Seconds until the box has to speak SSH; typing passwords does not count."""
    password_file: Path | None = None
    """First line: the password, for machines."""


@dataclasses.dataclass(frozen=True)
class Route:
    """How to reach one box."""

    host: str
    """Name or address to dial, after Hostname."""
    port: int
    user: str
    alias: str | None
    """HostKeyAlias."""
    jump: tuple[Target, ...]
    """ProxyJump, nearest first."""
    proxy_command: str
    """ProxyCommand with its tokens replaced; empty: none, or a jump host goes first."""
    known_hosts: tuple[Path, ...]
    remember_in: Path | None
    """Where a new host key is stored; `None`: UserKnownHostsFile is ``none``."""
    keys: KeySources
    own_algorithms: bool
    """Whether HostKeyAlgorithms is configured."""
    config_files: tuple[Path, ...]
    note: str = ""
    """A sentence worth showing once."""


async def find_route(target: Target, options: SshOptions) -> Route:
    """Read the configuration. ``Match exec`` commands run in a thread, not on the event loop.

    Raises:
        ConfigError: a file is missing or wrong; the text has file and line.
    """
    files, note = _config_files(options), ""
    try:
        found = await asyncio.to_thread(_read, target, files)
    except (OSError, ValueError) as error:
        # A distribution's own file may hold what asyncssh cannot read. That is nothing the person can mend.
        rest = tuple(path for path in files if options.config_files is not None or path != _SYSTEM_CONFIG)
        try:
            if rest == files:
                raise error
            found = await asyncio.to_thread(_read, target, rest)
        except (OSError, ValueError) as wrong:
            raise ConfigError(
                f"The SSH configuration for {target} cannot be used: {wrong}. Correct the file, or name another with -F ('none': no file)."
            ) from wrong
        note = f"{_SYSTEM_CONFIG} was left out, because it cannot be read: {error}"
        files = rest
    return _route(target, options, found, files, note)


def _config_files(options: SshOptions) -> tuple[Path, ...]:
    if options.config_files is not None:
        return tuple(path.expanduser() for path in options.config_files)
    return tuple(path for path in (_USER_CONFIG.expanduser(), _SYSTEM_CONFIG) if os.access(path, os.R_OK))


def _read(target: Target, files: tuple[Path, ...]) -> asyncssh.SSHClientConnectionOptions:
    return asyncssh.SSHClientConnectionOptions(
        config=[str(path) for path in files],
        host=target.host,
        port=() if target.port is None else target.port,
        username=() if target.user is None else target.user,
        client_keys=None,
        known_hosts=b"",
    )


def _route(
    target: Target, options: SshOptions, found: asyncssh.SSHClientConnectionOptions, files: tuple[Path, ...], note: str
) -> Route:
    def say(name: str, default: Any = ()) -> Any:
        return found.config.get(name, default)

    try:
        jump = tuple(targets.parse(hop) for hop in (say("ProxyJump", None) or "").split(",") if hop.strip())
    except ValueError as error:
        raise ConfigError(f"ProxyJump for {target} cannot be used: {error}") from None
    if options.known_hosts is not None:
        own, system = [options.known_hosts], []
    else:
        own = _paths(say("UserKnownHostsFile", _USER_KNOWN_HOSTS))
        system = _paths(say("GlobalKnownHostsFile", _SYSTEM_KNOWN_HOSTS))
    configured = tuple(_paths(say("IdentityFile"))) or default_files()
    named = tuple(path.expanduser() for path in options.identity_files)
    return Route(
        host=found.host,
        port=found.port,
        user=found.username,
        alias=found.host_key_alias,
        jump=jump,
        proxy_command="" if jump else str(say("ProxyCommand", None) or ""),
        known_hosts=(*own, *system),
        remember_in=own[0] if own else None,
        keys=KeySources(
            files=tuple(dict.fromkeys((*named, *configured))),
            agent=agent_socket(say("IdentityAgent")),
            only_files=bool(say("IdentitiesOnly", False)),
            preferred=say("PubkeyAuthentication", True)
            and str(say("PreferredAuthentications", "publickey") or "publickey").split(",")[0] == "publickey",
        ),
        own_algorithms=bool(say("HostKeyAlgorithms")),
        config_files=files,
        note=note,
    )


def _paths(names: Any) -> list[Path]:
    return [Path(name).expanduser() for name in names]
