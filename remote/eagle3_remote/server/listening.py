"""Whether an address is the place where a server listens."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse

_ANY = ("", "0.0.0.0", "::")


def is_at(url: str, host: str, port: int) -> bool:
    """Whether a request to `url` reaches the server that listens on `host` and `port` of this machine; a name that is not known
    reaches none."""
    parts = urllib.parse.urlsplit(url)
    if parts.port != port:
        return False
    asked = _addresses(parts.hostname or "")
    if host.strip("[]") in _ANY:
        return bool(asked) and all(map(_is_ours, asked))
    return bool(asked & _addresses(host.strip("[]")))


def _addresses(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()


def _is_ours(address: str) -> bool:
    """Whether this machine has the address: only then can it be bound."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((address, 0))
    except OSError:
        return False
    return True
