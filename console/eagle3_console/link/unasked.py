"""Two round trips less in each login, for a key that bothers nobody.

It signs at once: the box is not asked first whether it would take it. That question is for keys whose use costs a person a
passphrase or a touch, and the protocol leaves the choice (RFC 4252, section 7). And the login begins with it: the box is not
asked first which ways to log in there are (``none``, section 5.2). Where it refuses the key, everything goes on as always,
that question first, for there are boxes that let people in without any key.

asyncssh always asks both. So its own ways of logging in are put in place of asyncssh's, for logins of ours that wish it; should
a later asyncssh be built differently, the box is asked as before.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class KnowsItsKey(Protocol):
    """The owner of a connection."""

    signs_unasked: bool
    """Whether the key that was given last signs without asking anybody."""
    asks_first: bool
    """Whether the box is still to be asked which ways there are."""

    async def key_first(self) -> bool:
        """Whether the login begins with a key that signs without asking anybody."""


def install() -> None:
    """Have logins of this process do so where their owner says so; a second time does nothing."""
    try:
        from asyncssh.auth import _client_auth_handlers, _ClientNullAuth, _ClientPublicKeyAuth
        from asyncssh.connection import SSHConnection
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

        def auth_failed(self) -> None:
            super().auth_failed()
            owner = self._conn.get_owner()
            if isinstance(owner, KnowsItsKey) and owner.asks_first:
                self._conn._auth_methods.insert(0, b"none")

    class KeyFirst(_ClientNullAuth):
        async def _start(self) -> None:
            owner = self._conn.get_owner()
            if isinstance(owner, KnowsItsKey) and await owner.key_first():
                self._conn._auth_methods = [b"publickey", b"none"]
                self._conn.try_next_auth()
                return
            if isinstance(owner, KnowsItsKey):
                owner.asks_first = False
            await super()._start()

    if _client_auth_handlers[b"publickey"] is _ClientPublicKeyAuth:
        _client_auth_handlers[b"publickey"] = Unasked
        if "_auth_methods" in SSHConnection.__init__.__code__.co_names:
            _client_auth_handlers[b"none"] = KeyFirst
