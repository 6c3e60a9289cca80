"""A TCP proxy in front of a box that does to a connection what networks do: delay, freeze, reset, half-open, dribble, refuse."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Coroutine
from types import TracebackType
from typing import Literal

Direction = Literal["up", "down"]
"""``up``: from the console to the box; ``down``: from the box to the console."""

_PIECE = 64 * 1024
_IN_FLIGHT = 64
"""Pieces that are under way at once in each direction when there is a delay."""


class Proxy:
    """Listens on a port of its own and passes everything on to ``host:port``, until it is told otherwise.

    What is set holds for the connections that stand and for those to come, except `freeze`, `half_open`, `reset` and
    `cut_after`, which meet the connections that stand.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._box_port = port
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._closing = False
        self.port = 0
        self.delay = 0.0
        """Seconds that every piece is under way, in each direction."""
        self.dribble = False
        """One byte at a time."""
        self.swallow = False
        """Accept, and answer nothing."""
        self.accepted = 0

    async def __aenter__(self) -> Proxy:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()
        await asyncio.sleep(0)  # what was accepted has its task then
        self._closing = True
        for pair in self._pairs:
            pair.end()
        if self._relays:
            await asyncio.wait(self._relays)

    @property
    def standing(self) -> int:
        """Connections that are not closed yet."""
        return len(self._relays)

    async def accept(self) -> None:
        """Listen, on the same port as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Close the listener: who dials now is refused. Connections that stand go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told; `thaw` lets what was held back pass."""
        for pair in self._pairs:
            pair.flows.clear()

    def thaw(self) -> None:
        """Let frozen connections go on."""
        for pair in self._pairs:
            pair.flows.set()

    def half_open(self, dead: Direction) -> None:
        """One direction is dead, the other one lives; nobody is told."""
        for pair in self._pairs:
            pair.dead.add(dead)

    def reset(self) -> None:
        """Both ends get a reset (RST), as from a firewall that forgot the connection."""
        for pair in tuple(self._pairs):
            pair.reset()

    def cut_after(self, count: int) -> None:
        """Reset when `count` more bytes have come down: in the middle of a packet, mostly."""
        for pair in self._pairs:
            pair.left = count

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        relay = asyncio.create_task(self._relay(reader, writer, self.swallow))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, swallow: bool) -> None:
        try:
            box_reader, box_writer = await asyncio.open_connection(self._host, self._box_port)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, box_writer)
        self._pairs.add(pair)
        if swallow:
            pair.flows.clear()
        if self._closing:
            pair.end()
        try:
            await pair.run(
                self._pump("up", pair, reader, box_writer),
                self._pump("down", pair, box_reader, writer),
            )
        finally:
            self._pairs.discard(pair)

    async def _pump(
        self, direction: Direction, pair: _Pair, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
        loop = asyncio.get_running_loop()

        async def arrive() -> None:
            while True:
                due, piece = await way.get()
                await asyncio.sleep(due - loop.time())
                if not piece:
                    return
                await pair.flows.wait()
                await self._pass_on(direction, pair, sink, piece)

        async with asyncio.TaskGroup() as both:
            both.create_task(arrive())
            while True:
                piece = b""
                with contextlib.suppress(OSError):  # a reset is an end
                    piece = await source.read(_PIECE)
                if not piece and not pair.flows.is_set():
                    pair.end()  # who gave up a frozen connection leaves nothing behind here
                await way.put((loop.time() + self.delay, piece))
                if not piece:
                    break

    async def _pass_on(self, direction: Direction, pair: _Pair, sink: asyncio.StreamWriter, piece: bytes) -> None:
        for part in (piece[at : at + 1] for at in range(len(piece))) if self.dribble else (piece,):
            if direction in pair.dead:
                return
            if direction == "down" and pair.left is not None:
                if len(part) > pair.left:
                    sink.write(part[: pair.left])
                    await sink.drain()
                    pair.reset()
                    return
                pair.left -= len(part)
            with contextlib.suppress(OSError):
                sink.write(part)
                await sink.drain()
            if self.dribble:
                await asyncio.sleep(0)


class _Pair:
    """One connection from the console and the one to the box that belongs to it."""

    def __init__(self, console: asyncio.StreamWriter, box: asyncio.StreamWriter) -> None:
        self._ends = (console, box)
        self._ended = asyncio.Event()
        self.dead: set[Direction] = set()
        self.flows = asyncio.Event()
        self.flows.set()
        self.left: int | None = None
        """Bytes that may still come down before the reset."""

    async def run(self, *pumps: Coroutine[object, object, None]) -> None:
        """Both directions, until either ends or somebody ends them; then neither end is left."""
        ended = asyncio.create_task(self._ended.wait())
        tasks = {ended, *(asyncio.create_task(pump) for pump in pumps)}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in self._ends:
            end.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                await end.wait_closed()

    def reset(self) -> None:
        """RST to both ends."""
        for end in self._ends:
            _linger(end)
            end.transport.abort()
        self.end()

    def end(self) -> None:
        """Close both ends."""
        self._ended.set()


def _linger(end: asyncio.StreamWriter) -> None:
    """Close with a reset instead of a farewell."""
    opened = end.get_extra_info("socket")
    if opened is not None and opened.fileno() >= 0:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
