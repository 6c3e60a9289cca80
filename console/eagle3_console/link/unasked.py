"""A round trip less in each login: a key that bothers nobody signs at once, and the box is not asked first whether it would take it.

That question is for keys whose use costs a person a passphrase or a touch. The protocol leaves the choice (RFC 4252, section 7),
asyncssh does not: it always asks. So its own way of logging in by key is put in place of asyncssh's, for logins of ours that
wish it; should a later asyncssh be built differently, the box is asked as before.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class KnowsItsKey(Protocol):
    """The owner of a connection, when its key is about to be offered."""

    signs_unasked: bool
    """Whether the key that was given last signs without asking anybody."""


def install() -> None:
    """Have logins by key of this process sign at once where their owner says so; a second time does nothing."""
    try:
        from asyncssh.auth import _client_auth_handlers, _ClientPublicKeyAuth
    except ImportError:
        return
    if not hasattr(_ClientPublicKeyAuth, "_send_signed_request"):
        return

    class Unasked(_ClientPublicKeyAuth):
        async def send_request(self, *args: bytes, key: Any = None, trivial: bool = True) -> None:
            owner = self._conn.get_owner()
            if key is None and isinstance(owner, KnowsItsKey) and owner.signs_unasked:
                await self._send_signed_request()  # comes back here with the key
            else:
                await super().send_request(*args, key=key, trivial=trivial)

    if _client_auth_handlers[b"publickey"] is _ClientPublicKeyAuth:
        _client_auth_handlers[b"publickey"] = Unasked
