"""The one table that turns what asyncssh and the operating system raise into a `LinkError` with a full sentence."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import re
import socket
from collections.abc import Callable

import asyncssh

from eagle3_console.link.errors import (
    ChannelRefused,
    ConfigError,
    HandshakeFailed,
    HostKeyError,
    HostKeyRevoked,
    KeyUnusable,
    LinkError,
    LinkLost,
    LinkTimeout,
    LoginRefused,
    NoConnection,
    RefusedPort,
    ShellRefused,
    UnknownHost,
    Unreachable,
)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What is known about a connection when an error comes up; the sentences are made from it."""

    target: str
    """What a person calls the box."""
    host: str
    """The name or address that was really dialled."""
    port: int
    user: str
    proxy: str = ""
    """Jump host or proxy command, where one is between."""
    proxy_said: str = ""
    """Last words of the proxy command on standard error."""
    box_said: str = ""
    """The end of the box's banner, on one line."""
    connect_timeout: float = 0.0
    """Seconds."""
    connected: bool = False
    """Whether a byte stream to the box stood."""
    authenticating: bool = False
    """Whether the host key was accepted and the login had begun."""
    established: bool = False
    """Whether the login was over."""
    sessions: int = 0
    """Our open sessions on the connection."""
    tried: tuple[str, ...] = ()
    """Ways to log in that were tried, in words."""
    offered: tuple[str, ...] = ()
    """Ways to log in that the server allows, as it names them."""
    expired: bool = False
    """Whether the server asked for a new password."""
    host_key_error: HostKeyError | None = None
    """What the host key check found, where it refused."""

    @property
    def address(self) -> str:
        """``host:port``, with the name a person used where that differs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        where = f"{host}:{self.port}"
        plain = self.target.rpartition("@")[2]
        return where if plain in (self.host, where, f"ssh://{where}") else f"{where} ({self.target})"


def translate(error: BaseException, attempt: Attempt) -> LinkError:
    """The `LinkError` for whatever asyncssh or the operating system raised. Total: the last row takes the rest."""
    if isinstance(error, LinkError):
        return error
    for kinds, applies, make in _TABLE:
        if isinstance(error, kinds) and applies(error, attempt):
            return make(error, attempt)
    return LinkError(
        f"The connection to {attempt.address} failed: {_text(error)}. Try again, or try 'ssh -v {attempt.target}'."
    )


def errnos(error: BaseException) -> set[int]:
    """Error numbers inside an OSError; asyncio folds those of several addresses into one text."""
    found = {int(number) for number in re.findall(r"\[Errno (-?\d+)\]", str(error))}
    number = getattr(error, "errno", None)
    return found | {number} if isinstance(number, int) else found


_Applies = Callable[[BaseException, Attempt], bool]
_Make = Callable[[BaseException, Attempt], LinkError]
_UNREACHABLE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL}
_DROPPED = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


def _text(error: BaseException) -> str:
    text = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
    return str(text).strip().rstrip(".") or type(error).__name__


def _always(error: BaseException, attempt: Attempt) -> bool:
    return True


def _says(*parts: str) -> _Applies:
    return lambda error, attempt: any(part in str(error) for part in parts)


def _number(wanted: set[int]) -> _Applies:
    return lambda error, attempt: bool(errnos(error) & wanted)


def _established(error: BaseException, attempt: Attempt) -> bool:
    return attempt.established


def _open_code(*codes: int) -> _Applies:
    return lambda error, attempt: isinstance(error, asyncssh.ChannelOpenError) and error.code in codes


def _tunnelled(*codes: int) -> _Applies:
    return lambda error, attempt: not attempt.connected and bool(attempt.proxy) and _open_code(*codes)(error, attempt)


def _unknown_host(error: BaseException, attempt: Attempt) -> LinkError:
    alias = "" if attempt.host in attempt.target else f" (that is what {attempt.target} stands for)"
    return UnknownHost(
        f"There is no host named '{attempt.host}'{alias}: the name lookup failed ({_text(error)}). "
        "Check the spelling, the VPN, or the Host entry in ~/.ssh/config."
    )


def _refused(error: BaseException, attempt: Attempt) -> LinkError:
    return RefusedPort(
        f"{attempt.address} refused the connection: the machine answers, but nothing listens on port {attempt.port}. "
        "Check that sshd runs there and that this is its port."
    )


def _unreachable(error: BaseException, attempt: Attempt) -> LinkError:
    return Unreachable(f"{attempt.address} cannot be reached from here: {_text(error)}. Check the network and the VPN.")


def _timeout(error: BaseException, attempt: Attempt) -> LinkError:
    if attempt.authenticating:
        way = f", or {attempt.proxy} on the way to it," if attempt.proxy else ", or the network on the way to it,"
        said = f" It had said: {attempt.box_said}" if attempt.box_said else ""
        return LinkTimeout(
            f"{attempt.address} fell silent during the login of '{attempt.user}': the box{way} died, hangs or is very slow (its "
            f"name servers, a directory). Try again, and where that does not help see how long ssh takes.{said}"
        )
    if attempt.connected:
        return LinkTimeout(
            f"{attempt.address} accepted the connection but did not speak SSH within {attempt.connect_timeout:g} s. "
            "Check that it is an SSH port, and that the machine is not overloaded."
        )
    return LinkTimeout(
        f"No answer from {attempt.address} in {attempt.connect_timeout:g} s: the host is down, or a firewall drops the packets. "
        "Check the address and the VPN, or wait longer with --connect-timeout."
    )


def _kernel_timeout(error: BaseException, attempt: Attempt) -> LinkError:
    return LinkTimeout(f"No answer from {attempt.address}: the host is down, or a firewall drops the packets.")


def _denied(error: BaseException, attempt: Attempt) -> LinkError:
    tried = ", ".join(attempt.tried) if attempt.tried else "nothing (no agent, no key file, no password)"
    offered = ", ".join(attempt.offered) if attempt.offered else "nothing that is supported here"
    return LoginRefused(
        f"{attempt.address} refused the login as '{attempt.user}': tried {tried}; the server allows {offered}. {_login_cure(attempt)}"
    )


def _login_cure(attempt: Attempt) -> str:
    if attempt.expired:
        return "The password has expired: set a new one with ssh first."
    if any("no passphrase" in item for item in attempt.tried):
        return "Load the encrypted key into the agent with ssh-add, or start from a terminal where the passphrase can be asked."
    if attempt.tried and all("no answer" in item for item in attempt.tried):
        return "Nobody could be asked: start from a terminal, or use a key (-i FILE, or ssh-add)."
    return "Check the user name, and that the box has your public key in ~/.ssh/authorized_keys (-i FILE names another key)."


def _too_many(error: BaseException, attempt: Attempt) -> LinkError:
    tried = ", ".join(attempt.tried)
    return LoginRefused(
        f"{attempt.address} broke off the login as '{attempt.user}' after too many tries: {tried}. "
        "Name the one right key in ~/.ssh/config with IdentityFile and 'IdentitiesOnly yes'."
    )


def _host_key(error: BaseException, attempt: Attempt) -> LinkError:
    if attempt.host_key_error is not None:
        return attempt.host_key_error
    kind = HostKeyRevoked if "revoked" in str(error) else HostKeyError
    return kind(
        f"{attempt.address} could not prove who it is: {_text(error)}. Nothing was sent to it. "
        "Ask whoever runs the box, and check the entry in your known_hosts file."
    )


def _no_common(error: BaseException, attempt: Attempt) -> LinkError:
    return HandshakeFailed(
        f"{attempt.address} and this console have no SSH algorithm in common: {_text(error)}. "
        "Check HostKeyAlgorithms, Ciphers and KexAlgorithms in ~/.ssh/config, or update the box's sshd."
    )


def _config(error: BaseException, attempt: Attempt) -> LinkError:
    return ConfigError(
        f"The SSH configuration for {attempt.target} cannot be used: {_text(error)}. Correct it, or name another with -F."
    )


def _key_file(error: BaseException, attempt: Attempt) -> LinkError:
    return KeyUnusable(
        f"A key for {attempt.target} cannot be used: {_text(error)}. Check the file, or name another with -i."
    )


def _dropped(error: BaseException, attempt: Attempt) -> LinkError:
    if attempt.established:
        return LinkLost(
            f"The connection to {attempt.address} was lost: {_text(error)}. What runs detached on the box goes on."
        )
    if "Login timeout" in str(error):
        return LinkTimeout(
            f"The login on {attempt.address} was not finished in time. Try again; have the password or passphrase at hand."
        )
    if attempt.authenticating:
        return HandshakeFailed(
            f"{attempt.address} closed the connection during the login of '{attempt.user}': {_text(error)}. "
            "Its log (journalctl -u ssh) says why; a full process table, a firewall or LoginGraceTime are usual."
        )
    if attempt.proxy:
        said = f" It said: {attempt.proxy_said}." if attempt.proxy_said else ""
        return NoConnection(
            f"{attempt.address} was not reached through {attempt.proxy}: it closed the connection.{said}"
        )
    return HandshakeFailed(
        f"{attempt.address} closed the connection before SSH began: {_text(error)}. "
        "Check that it is an SSH port; sshd also does this when too many logins are under way (MaxStartups) or your address is barred."
    )


def _protocol(error: BaseException, attempt: Attempt) -> LinkError:
    return HandshakeFailed(
        f"{attempt.address} does not speak SSH as it should: {_text(error)}. Check that it is an SSH port."
    )


def _no_forward(error: BaseException, attempt: Attempt) -> LinkError:
    return ChannelRefused(
        f"The jump host {attempt.proxy} forwards no connections ({_text(error)}). "
        "It needs 'AllowTcpForwarding yes' in its sshd_config; otherwise reach the box another way."
    )


def _not_through(error: BaseException, attempt: Attempt) -> LinkError:
    return NoConnection(
        f"The jump host {attempt.proxy} does not reach {attempt.address}: {_text(error)}. Check address and port."
    )


def _no_session(error: BaseException, attempt: Attempt) -> LinkError:
    return ChannelRefused(
        f"{attempt.address} opens no further session on this connection ({_text(error)}); {attempt.sessions} of ours are open. "
        "Raise MaxSessions in the box's sshd_config (3 is enough)."
    )


def _no_exec(error: BaseException, attempt: Attempt) -> LinkError:
    return ShellRefused(
        f"{attempt.address} lets '{attempt.user}' in but runs no commands for that account. "
        "Use an account with a normal shell; a ForceCommand or an sftp-only rule in sshd_config also does this."
    )


def _os_error(error: BaseException, attempt: Attempt) -> LinkError:
    if attempt.proxy and not attempt.connected:
        return NoConnection(f"{attempt.address} was not reached through {attempt.proxy}: {_text(error)}.")
    return NoConnection(f"The connection to {attempt.address} failed: {_text(error)}.")


_TABLE: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], _Applies, _Make], ...] = (
    ((socket.gaierror, UnicodeError), _always, _unknown_host),
    (asyncssh.PermissionDenied, _always, _denied),
    (asyncssh.DisconnectError, _says("Too many authentication failures"), _too_many),
    (asyncssh.HostKeyNotVerifiable, _always, _host_key),
    (asyncssh.KeyExchangeFailed, _always, _no_common),
    (asyncssh.ConfigParseError, _always, _config),
    ((asyncssh.KeyImportError, asyncssh.KeyEncryptionError), _always, _key_file),
    (asyncssh.ChannelOpenError, _says("SSH connection closed", "Connection lost"), _dropped),
    (asyncssh.ChannelOpenError, _tunnelled(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED), _no_forward),
    (asyncssh.ChannelOpenError, _tunnelled(asyncssh.OPEN_CONNECT_FAILED), _not_through),
    (asyncssh.ChannelOpenError, _says("Session request failed"), _no_exec),
    (asyncssh.ChannelOpenError, _always, _no_session),
    (asyncssh.DisconnectError, _established, _dropped),
    ((asyncssh.ProtocolError, asyncssh.ProtocolNotSupported), _always, _protocol),
    (asyncssh.DisconnectError, _always, _dropped),
    (OSError, _established, _dropped),
    (OSError, _number({errno.ECONNREFUSED}), _refused),
    (OSError, _number(_UNREACHABLE), _unreachable),
    (OSError, _number({errno.ETIMEDOUT}), _kernel_timeout),
    (OSError, _number(_DROPPED), _dropped),
    ((TimeoutError, asyncio.TimeoutError), _always, _timeout),
    (OSError, _always, _os_error),
    (ValueError, _always, _config),
)
