"""The console's half of the agent channel, against a scripted channel."""

from __future__ import annotations

import asyncio
import json

import pytest

from eagle3_console.agent import AgentClient
from eagle3_console.errors import AgentFault, AgentSilent, BoxRefused, ServerFailed
from eagle3_console.link.errors import LinkLost
from eagle3_remote import protocol

HELLO = protocol.Hello(protocol.PROTOCOL_VERSION, "0.1.0", "boot", 7, "root", "box", "/home", "/py", 1.0)


class Scripted:
    """A channel whose other end is the test: what is said here is read there; `replies` are said when their call comes."""

    def __init__(self, **replies: object) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.replies = replies
        self.closed = False

    def say(self, *messages: object) -> None:
        for message in messages:
            self.incoming.put_nowait(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def read(self, n: int) -> bytes:
        return await self.incoming.get()

    async def write(self, data: bytes) -> None:
        call = json.loads(data)
        if call["method"] in self.replies:
            self.say({"jsonrpc": "2.0", "id": call["id"], **self.replies[call["method"]]})  # type: ignore[dict-item]

    def stderr_tail(self) -> bytes:
        return b"last words"

    async def close(self) -> None:
        self.closed = True

    async def wait(self) -> int | None:
        return 0


READY = {"jsonrpc": "2.0", "method": "ready"}


def answer(number: int, result: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "result": protocol.encode(result)}


def result(value: object) -> dict[str, object]:
    return {"result": protocol.encode(value)}


async def started(channel: Scripted) -> AgentClient:
    channel.replies |= {"hello": result(HELLO)}
    channel.say(b"Welcome to this box!\n", b'{"not": "ours"}\n[1]\n', READY)
    client, hello = await AgentClient.start(channel, "box", wait=5)
    assert hello == HELLO
    channel.replies.pop("hello")
    return client


async def test_noise_before_the_agent_is_skipped() -> None:
    client = await started(Scripted())
    await client.close()


async def test_answers_in_pieces_and_out_of_order() -> None:
    channel = Scripted()
    client = await started(channel)
    report = protocol.StopReport("j", True, "stopped")
    first = asyncio.create_task(client.call("server.stop", {}, protocol.StopReport))
    second = asyncio.create_task(client.call("hello", {}, protocol.Hello))
    await asyncio.sleep(0)
    line = json.dumps(answer(3, HELLO)).encode() + b"\n" + json.dumps(answer(2, report)).encode() + b"\n"
    for at in range(0, len(line), 7):
        channel.say(line[at : at + 7])
    assert await second == HELLO
    assert await first == report
    await client.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [(protocol.E_REFUSED, BoxRefused), (protocol.E_SERVER, ServerFailed), (protocol.E_INTERNAL, AgentFault)],
)
async def test_errors_are_sentences(code: int, error: type[Exception]) -> None:
    channel = Scripted(**{"server.start": {"error": {"code": code, "message": "It will not."}}})
    client = await started(channel)
    with pytest.raises(error, match="It will not"):
        await client.call("server.start", {}, protocol.JobStatus)
    await client.close()


async def test_an_agent_that_ends_is_a_lost_link_for_every_caller() -> None:
    channel = Scripted()
    client = await started(channel)
    calls = [asyncio.create_task(client.call("hello", {}, protocol.Hello)) for _ in range(3)]
    await asyncio.sleep(0)
    channel.say(b"")
    for call in calls:
        with pytest.raises(LinkLost, match="last words"):
            await call
    with pytest.raises(LinkLost):
        await client.call("hello", {}, protocol.Hello)
    await client.close()


async def test_silence_is_told_from_loss() -> None:
    channel = Scripted()
    client = await started(channel)
    with pytest.raises(AgentSilent, match="'hello' in 0 s"):
        await client.call("hello", {}, protocol.Hello, wait=0.01)
    await client.close()
    with pytest.raises(AgentSilent, match="last words"):
        await AgentClient.start(Scripted(), "box", wait=0.01)


async def test_another_protocol_is_refused() -> None:
    channel = Scripted(hello={"result": protocol.encode(HELLO) | {"protocol": protocol.PROTOCOL_VERSION + 1}})
    channel.say(READY)
    with pytest.raises(AgentFault, match="protocol"):
        await AgentClient.start(channel, "box", wait=5)
    assert channel.closed


async def test_an_answer_that_makes_no_sense_names_the_field() -> None:
    channel = Scripted(**{"server.stop": {"result": {"job": "j", "stopped": "yes", "sentence": ""}}})
    client = await started(channel)
    with pytest.raises(AgentFault, match=r"StopReport\.stopped"):
        await client.call("server.stop", {}, protocol.StopReport)
    await client.close()
