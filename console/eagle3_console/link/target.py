"""What a person calls a box, taken apart: ``host``, ``user@host:port``, ``[v6]:port``, ``ssh://user@host:port``."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import urllib.parse


@dataclasses.dataclass(frozen=True)
class Target:
    """One box. `None` means: not said, so the SSH configuration decides."""

    user: str | None
    host: str
    """Name, alias of the SSH configuration, or IP address without brackets."""
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        user = f"{self.user}@" if self.user is not None else ""
        port = f":{self.port}" if self.port is not None else ""
        return f"{user}{host}{port}"


def parse(text: str) -> Target:
    """Take `text` apart.

    Raises:
        ValueError: with a sentence for a person.
    """
    rest = text.strip()
    if not rest:
        raise ValueError("No box was named. Say for example root@gpu-box or root@10.0.0.7:2222.")
    url = rest.lower().startswith("ssh://")
    if url:
        rest = rest[len("ssh://") :].removesuffix("/")
        if "/" in rest:
            raise ValueError(f"{text!r} has a path after the host. Leave it out: ssh://user@host:port is all.")
    user, rest = _split_user(text, rest, url)
    host, port = _split_port(text, rest)
    if not host:
        raise ValueError(f"{text!r} has no host name. Write it as user@host or user@host:port.")
    if host.startswith("-"):
        raise ValueError(f"{text!r}: a host name cannot begin with a dash.")
    if re.search(r"[\s\x00-\x1f\x7f]", host):
        raise ValueError(f"{text!r} has a blank inside the host name. Quote it or check the spelling.")
    if "/" in host:
        raise ValueError(f"{text!r} is not a host name: it contains a slash.")
    return Target(user, host, port)


def _split_user(text: str, rest: str, url: bool) -> tuple[str | None, str]:
    user, at, host = rest.rpartition("@")
    if not at:
        return None, rest
    if url:
        user = urllib.parse.unquote(user)
    if ":" in user:
        raise ValueError(
            f"The address for {host!r} carries a password. Leave it out (it would stay in your shell history): "
            "you are asked for it."
        )
    if not user:
        raise ValueError(f"{text!r} has an empty user name before the @.")
    return user, host


def _split_port(text: str, rest: str) -> tuple[str, int | None]:
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise ValueError(f"{text!r}: write an IPv6 address with a port as [address]:port.")
        if not _is_v6(host):
            raise ValueError(f"{text!r}: {host!r} is not an IPv6 address.")
        return host, _port(text, after[1:]) if after else None
    if rest.count(":") > 1:
        if _is_v6(rest):
            return rest, None
        raise ValueError(
            f"{text!r} is neither host:port nor an IPv6 address. Write IPv6 with a port as [address]:port."
        )
    host, colon, port = rest.partition(":")
    return host, _port(text, port) if colon else None


def _is_v6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _port(text: str, port: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r}: {port!r} is not a port. A port is a number from 1 to 65535.")
    return int(port)
