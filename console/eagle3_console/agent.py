"""The console's half of the agent channel: JSON-RPC 2.0 lines, calls matched to answers by id."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, TypeVar

from eagle3_console.errors import AgentFault, AgentSilent, BoxRefused, ConsoleError, ServerFailed
from eagle3_console.link.base import Channel
from eagle3_console.link.errors import LinkError, LinkLost
from eagle3_console.starting import request
from eagle3_remote import protocol

T = TypeVar("T")

_MAX_LINE = 2 * protocol.MAX_LINE_BYTES
"""Bytes of one line from the box that are kept; the agent's own limit, and what login scripts may say."""


class AgentClient:
    """Calls to one agent. Create with `AgentClient.start`; close it, or drop the link."""

    def __init__(self, channel: Channel, where: str, sent: int = 0) -> None:
        self._channel = channel
        self._where = where
        self._ids = itertools.count(sent + 1)
        loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Any]] = {number + 1: loop.create_future() for number in range(sent)}
        self._ready = loop.create_future()
        self._lost: ConsoleError | None = None
        self._reader = asyncio.create_task(self._read(), name=f"agent reader {where}")

    @classmethod
    async def start(
        cls, channel: Channel, where: str, wait: float = 20.0, sent: int = 0
    ) -> tuple[AgentClient, protocol.Hello]:
        """Wait for the agent's answer to the greeting; nothing was sent yet: wait for its ready line and greet it.

        Args:
            sent: so many requests, numbered from 1, went with the command that started it; the first is the greeting.

        Raises:
            AgentSilent: no ready line in `wait` seconds.
            AgentFault: another protocol version.
            LinkLost: the channel ended.
        """
        client = cls(channel, where, sent)
        try:
            return client, await client._shake_hands(wait, sent)
        except BaseException:
            await client.close()
            raise

    async def _shake_hands(self, wait: float, sent: int) -> protocol.Hello:
        try:
            async with asyncio.timeout(wait):
                await (self._waiting[1] if sent else self._ready)
        except TimeoutError:
            said = self._last_words() or "nothing"
            raise AgentSilent(f"The agent on {self._where} did not answer in {wait:.0f} s. It said: {said}") from None
        if sent:
            hello = await self.answer(1, "hello", protocol.Hello)
        else:
            hello = await self.call("hello", {"protocol": protocol.PROTOCOL_VERSION}, protocol.Hello, wait)
        if hello.protocol != protocol.PROTOCOL_VERSION:
            raise AgentFault(
                f"The agent on {self._where} speaks protocol {hello.protocol}, this console {protocol.PROTOCOL_VERSION}: "
                "run 'eagle3-console deploy' again with this console."
            )
        return hello

    @property
    def ended(self) -> bool:
        """Whether no call can be answered any more."""
        return self._lost is not None

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

    async def answer(self, number: int, method: str, kind: type[T], wait: float = 60.0) -> T:
        """As `call`, of a request that went with the command that started the agent; once each."""
        return self._decode(kind, method, await self._answer(number, method, wait))

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
        self._waiting[number] = asyncio.get_running_loop().create_future()
        call = request(number, method, params)
        try:
            await self._channel.write(json.dumps({**call, "key": key} if key else call).encode() + b"\n")
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return await self._answer(number, method, wait)

    async def _answer(self, number: int, method: str, wait: float) -> Any:
        if number not in self._waiting:
            raise self._lost or AgentFault(f"The answer to '{method}' was taken before.")
        try:
            async with asyncio.timeout(wait):
                return await self._waiting[number]
        except TimeoutError:
            raise AgentSilent(f"The agent on {self._where} did not answer '{method}' in {wait:.0f} s.") from None
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the channel; the agent ends by itself when its stdin closes. Jobs go on."""
        self._reader.cancel()  # first: a closing channel reads what is left itself, and two cannot read at once
        await asyncio.wait({self._reader})
        self._fail(LinkLost(f"The agent channel to {self._where} was closed."))
        await self._channel.close()

    async def _read(self) -> None:
        begun: list[bytes] = []
        """The pieces of a line whose end has not come yet."""
        room = _MAX_LINE
        error: ConsoleError
        try:
            while data := await self._channel.read(65536):
                *lines, rest = data.split(b"\n")
                if lines:
                    lines[0] = b"".join((*begun, lines[0]))
                    begun, room = [], _MAX_LINE
                for line in lines:
                    self._dispatch(line)
                begun.append(rest)
                room -= len(rest)
                if room < 0:
                    raise AgentFault(
                        f"What comes from the agent on {self._where} are no messages: a line has more than {_MAX_LINE:,} bytes."
                    )
            said = self._last_words()
            error = LinkLost(f"The agent on {self._where} ended." + (f" It said: {said}" if said else ""))
        except (LinkError, AgentFault) as lost:
            error = lost
        self._fail(error)

    def _last_words(self) -> str:
        return self._channel.stderr_tail().decode(errors="replace").strip()[-500:]

    def _fail(self, error: ConsoleError) -> None:
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
        number = message.get("id")
        future = self._waiting.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(_as_error(message["error"]))
        else:
            future.set_result(message.get("result"))


def _as_error(error: object) -> ConsoleError:
    known = error if isinstance(error, dict) else {}
    text = str(known.get("message", error))
    match known.get("code"):
        case protocol.E_REFUSED:
            return BoxRefused(text)
        case protocol.E_SERVER:
            return ServerFailed(text)
        case _:
            return AgentFault(f"The agent failed: {text}")
