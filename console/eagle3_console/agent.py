"""The console's half of the agent channel: JSON-RPC 2.0 lines, calls matched to answers by id."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from eagle3_console.errors import AgentFault, AgentSilent, BoxRefused, ServerFailed
from eagle3_console.link.base import Channel
from eagle3_console.link.errors import LinkLost
from eagle3_remote import protocol

T = TypeVar("T")

_START = "import sys; sys.path.insert(0, sys.argv[1]); from eagle3_remote.agent import main; main()"


class AgentClient:
    """Calls to one agent. Create with `AgentClient.start`; close it, or drop the link."""

    def __init__(self, channel: Channel, where: str) -> None:
        self._channel = channel
        self._where = where
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ready = asyncio.get_running_loop().create_future()
        self._lost: Exception | None = None
        self._reader = asyncio.create_task(self._read(), name=f"agent reader {where}")

    @classmethod
    async def start(
        cls, channel: Channel, where: str, wait: float = 20.0, who: Mapping[str, Any] | None = None
    ) -> tuple[AgentClient, protocol.Hello]:
        """Wait for the agent's ready line and shake hands.

        Args:
            who: what the greeting says of this console, see ``hello`` in `eagle3_remote.protocol`.

        Raises:
            AgentSilent: no ready line in `wait` seconds.
            AgentFault: another protocol version.
            LinkLost: the channel ended.
        """
        client = cls(channel, where)
        try:
            async with asyncio.timeout(wait):
                await client._ready
        except TimeoutError:
            await client.close()
            tail = channel.stderr_tail().decode(errors="replace").strip()[-500:]
            raise AgentSilent(
                f"The agent on {where} did not answer in {wait:.0f} s. It said: {tail or 'nothing'}"
            ) from None
        except BaseException:
            await client.close()
            raise
        greeting = {"protocol": protocol.PROTOCOL_VERSION, **(who or {})}
        hello = await client.call("hello", greeting, protocol.Hello)
        if hello.protocol != protocol.PROTOCOL_VERSION:
            await client.close()
            raise AgentFault(
                f"The agent on {where} speaks protocol {hello.protocol}, this console {protocol.PROTOCOL_VERSION}: "
                "run 'eagle3-console deploy' again with this console."
            )
        return client, hello

    @staticmethod
    def command(python: str, release: str) -> tuple[str, tuple[str, ...]]:
        """The shell script and its arguments that start the agent of `release` with `python`."""
        return 'exec "$1" -I -u -c "$2" "$3"', (python, _START, release)

    async def call(self, method: str, params: Any, kind: type[T], wait: float = 60.0, key: str = "") -> T:
        """One call.

        Args:
            method: name as in `eagle3_remote.protocol`.
            params: a message or a dict.
            kind: the message the result is decoded into.
            wait: seconds until the call counts as lost.
            key: hex; a call that is made again with it is done once, and answered as the first time.

        Raises:
            BoxRefused, ServerFailed: the agent says so, in a sentence.
            AgentFault: the answer makes no sense.
            AgentSilent: none came in time.
            LinkLost: the channel ended before the answer.
        """
        return self._decode(kind, method, await self._request(method, params, wait, key))

    async def call_list(self, method: str, params: Any, kind: type[T], wait: float = 60.0) -> list[T]:
        """As `call`, for methods whose result is a list of messages."""
        return [self._decode(kind, method, item) for item in await self._request(method, params, wait)]

    def _decode(self, kind: type[T], method: str, value: Any) -> T:
        try:
            return protocol.decode(kind, value)
        except ValueError as error:
            raise AgentFault(
                f"The answer of the agent on {self._where} to '{method}' makes no sense: {error}."
            ) from error

    async def _request(self, method: str, params: Any, wait: float, key: str = "") -> Any:
        if self._lost is not None:
            raise self._lost
        number = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": protocol.encode(params)}
        line = json.dumps({**request, "key": key} if key else request)
        try:
            await self._channel.write(line.encode() + b"\n")
            async with asyncio.timeout(wait):
                return await future
        except TimeoutError:
            raise AgentSilent(f"The agent on {self._where} did not answer '{method}' in {wait:.0f} s.") from None
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the channel; the agent ends by itself when its stdin closes. Jobs go on."""
        self._reader.cancel()  # first: a closing channel reads what is left itself, and two cannot read at once
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._channel.close()
        self._fail(LinkLost(f"The agent channel to {self._where} was closed."))

    async def _read(self) -> None:
        buffer = b""
        error: Exception
        try:
            while data := await self._channel.read(65536):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._dispatch(line)
            tail = self._channel.stderr_tail().decode(errors="replace").strip()[-500:]
            error = LinkLost(f"The agent on {self._where} ended." + (f" It said: {tail}" if tail else ""))
        except LinkLost as lost:
            error = lost
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        pending = [*self._waiting.values(), self._ready]
        self._waiting.clear()
        for future in pending:
            if not future.done():
                future.set_exception(error)
                future.exception()  # the caller may be gone: an unread exception would be reported at exit

    def _dispatch(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # what a login script printed before the agent began
        if not isinstance(message, dict):
            return
        if message.get("method") == "ready" and not self._ready.done():
            self._ready.set_result(None)
        future = self._waiting.get(message.get("id", 0))
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(_as_error(message["error"]))
        else:
            future.set_result(message.get("result"))


def _as_error(error: dict[str, Any]) -> Exception:
    text = str(error.get("message", error))
    match error.get("code"):
        case protocol.E_REFUSED:
            return BoxRefused(text)
        case protocol.E_SERVER:
            return ServerFailed(text)
        case _:
            return AgentFault(f"The agent failed: {text}")
