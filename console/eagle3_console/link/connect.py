"""Connecting as ssh would: configuration, jump hosts, agent, keys, passwords, and a host key that somebody vouched for."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import asyncssh

from eagle3_console.link import unasked
from eagle3_console.link.base import Prompter
from eagle3_console.link.errors import ConfigError
from eagle3_console.link.failures import Attempt, translate
from eagle3_console.link.hostkeys import HostKeyCheck, Verdict, algorithm_name, remember
from eagle3_console.link.keys import KeyRing, require_usable
from eagle3_console.link.login import Login, read_password
from eagle3_console.link.proxy import ProxyCommand
from eagle3_console.link.route import Route, SshOptions, find_route
from eagle3_console.link.ssh import SshLink, close_connection
from eagle3_console.link.target import Target

KEEPALIVE_INTERVAL = 5.0
KEEPALIVE_COUNT = 3
"""A dead link is seen after interval × (count + 1) = 20 s."""
LOGIN_TIMEOUT = 120.0
"""Seconds for the login, typing included; sshd's own LoginGraceTime is the same."""
_LOOK = 0.5
"""Seconds between two looks whether the box has fallen silent during the login."""
_MAX_HOPS = 8
_HOST_KEY_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_CERTIFICATES = (
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
)


async def connect(target: Target, options: SshOptions, prompter: Prompter) -> SshLink:
    """Connect and log in.

    Raises:
        LinkError: one of `eagle3_console.link.errors`, with a sentence for a person. Nothing stays open.
    """
    require_usable(options.identity_files)
    unasked.install()
    password = None if options.password_file is None else read_password(options.password_file)
    return await _Dialler(options, prompter, password).dial(target)


@dataclasses.dataclass(frozen=True)
class _Via:
    """The jump host that the next connection goes through."""

    connection: asyncssh.SSHClientConnection
    name: str


@dataclasses.dataclass(frozen=True)
class _Reached:
    """A box that let us in."""

    connection: asyncssh.SSHClientConnection
    login: Login
    attempt: Attempt


class _Dialler:
    def __init__(self, options: SshOptions, prompter: Prompter, password: str | None) -> None:
        self._options = options
        self._prompter = prompter
        self._password = password
        self._notes: list[str] = []
        self._beneath = contextlib.AsyncExitStack()
        """Jump hosts and proxy commands, to be closed after the connection, the last first."""

    async def dial(self, target: Target) -> SshLink:
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._beneath.aclose)
            reached = await self._reach(target, None, final=True)
            undo.pop_all()
        return SshLink(reached.connection, reached.login, reached.attempt, self._beneath, self._notes)

    async def _reach(self, target: Target, via: _Via | None, *, final: bool = False, depth: int = 0) -> _Reached:
        """Connect to `target`, through its own jump hosts unless `via` is given."""
        route = await find_route(target, self._options)
        if route.note and route.note not in self._notes:
            self._notes.append(route.note)
        for hop in route.jump if via is None else ():
            if depth >= _MAX_HOPS:
                raise ConfigError(
                    f"ProxyJump leads from {target} through more than {_MAX_HOPS} hosts, perhaps in a circle. Correct ~/.ssh/config."
                )
            reached = await self._reach(hop, via, depth=depth + 1)
            self._beneath.push_async_callback(close_connection, reached.connection)
            via = _Via(reached.connection, str(hop))
        return await self._connect(target, route, via, final)

    async def _connect(self, target: Target, route: Route, via: _Via | None, final: bool) -> _Reached:
        command = "" if via else route.proxy_command
        base = Attempt(
            str(target),
            route.host,
            route.port,
            route.user,
            proxy=via.name if via else f"the proxy command '{command}'" if command else "",
            connect_timeout=self._options.connect_timeout,
        )
        check = HostKeyCheck(route.known_hosts, route.alias, self._options.host_key if final else "")
        refused: set[str] = set()
        sources = route.keys
        while True:
            keys = KeyRing(sources, self._prompter)
            login = Login(f"{route.user}@{route.host}", check, keys, self._prompter, self._password if final else None)
            proxy = None
            async with contextlib.AsyncExitStack() as undo:
                undo.push_async_callback(keys.close)
                try:
                    if command:
                        proxy = await ProxyCommand.start(command)
                        undo.push_async_callback(proxy.close)
                    algorithms = _algorithms(route, check, refused)
                    connection = await self._once(target, route, via, proxy, login, algorithms)
                except (OSError, ValueError, asyncssh.Error) as error:
                    if isinstance(error, asyncssh.DisconnectError) and login.showed_key and sources.preferred:
                        # It may have had enough of us with that key (MaxAuthTries): ask first how to log in.
                        sources = dataclasses.replace(sources, preferred=False)
                    elif not await self._settle(base, route, check, refused):
                        said = await proxy.said() if proxy else ""
                        raise translate(error, login.attempt(base, proxy_said=said)) from error
                else:
                    undo.pop_all()
                    await keys.close()
                    if proxy:
                        self._beneath.push_async_callback(proxy.close)
                    return _Reached(connection, login, login.attempt(base))

    async def _settle(self, base: Attempt, route: Route, check: HostKeyCheck, refused: set[str]) -> bool:
        """Whether it is worth connecting again, now that the host key that was shown has been looked at."""
        key = check.shown
        if key is None:
            return False
        if check.verdict is Verdict.NOT_PINNED:
            # The box may have keys of several kinds, and the pinned one be of another kind than it likes to show.
            kinds = {name.decode() for name in key.sig_algorithms}
            if kinds <= refused:
                raise check.error(base.address) or ConfigError("unreachable")
            refused |= kinds
            return True
        if check.verdict is not Verdict.UNKNOWN:
            return False
        accepted = self._options.accept_new or await self._prompter.accept_host_key(
            base.address, algorithm_name(key), key.get_fingerprint()
        )
        if accepted:
            check.accept(key)
            self._store(route, check.name, key)
        return accepted

    def _store(self, route: Route, name: str, key: asyncssh.SSHKey) -> None:
        file = route.remember_in
        try:
            if file is None:
                raise OSError("UserKnownHostsFile is 'none'")
            remember(file, name, key)
        except OSError as error:
            self._notes.append(
                f"The host key of {name} was accepted but not stored ({error}): it will be asked for again."
            )

    async def _once(
        self,
        target: Target,
        route: Route,
        via: _Via | None,
        proxy: ProxyCommand | None,
        login: Login,
        algorithms: list[str] | tuple[()],
    ) -> asyncssh.SSHClientConnection:
        """One try. The time limit is for the box alone: it ends where the login, and with it typing, begins."""
        settings: dict[str, Any] = {
            "config": [str(path) for path in route.config_files],
            "port": () if target.port is None else target.port,
            "username": () if target.user is None else target.user,
            "tunnel": via.connection if via else None,
            "proxy_command": None,
            "sock": proxy.socket if proxy else None,
            "known_hosts": login.trusted_keys,
            "server_host_key_algs": algorithms,
            "client_factory": lambda: login,
            "client_keys": None,  # keys come one by one from Login
            "agent_path": None,
            "agent_identities": None,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "command": None,  # a RemoteCommand of the configuration is for people
            "request_pty": False,
            "encoding": None,
            "connect_timeout": None,
            "login_timeout": LOGIN_TIMEOUT,
            "keepalive_interval": KEEPALIVE_INTERVAL,
            "keepalive_count_max": KEEPALIVE_COUNT,
        }

        async def connecting() -> asyncssh.SSHClientConnection:
            return await asyncssh.connect(target.host, **settings)

        task = asyncio.create_task(connecting(), name=f"connect {target}")
        begun = asyncio.create_task(login.authenticating.wait(), name=f"login {target}")
        try:
            done, _ = await asyncio.wait(
                (task, begun), timeout=self._options.connect_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise TimeoutError
            while not (await asyncio.wait({task}, timeout=_LOOK))[0]:
                if login.overdue():
                    raise TimeoutError
            return await task
        except BaseException:
            task.cancel()
            with contextlib.suppress(BaseException):
                await task
            raise
        finally:
            begun.cancel()


def _algorithms(route: Route, check: HostKeyCheck, refused: set[str]) -> list[str] | tuple[()]:
    """Kinds of host key to ask for: those stored first, so that the box shows one that can be compared."""
    if route.own_algorithms:
        return ()
    stored = [name for name in check.preferred_algorithms(route.host, route.port) if name in _HOST_KEY_ALGORITHMS]
    certificates = _CERTIFICATES if check.has_authorities(route.host, route.port) else ()
    names = dict.fromkeys((*certificates, *stored, *_HOST_KEY_ALGORITHMS))
    return [name for name in names if name not in refused]
