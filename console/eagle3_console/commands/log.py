"""``server log``: all of it or a part, printed or saved, once or as it grows."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import collections
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, TextIO

from eagle3_console import units
from eagle3_console.commands.context import open_flow, snapshot
from eagle3_console.errors import BoxRefused, UsageError
from eagle3_console.events import ConnectionChanged, Event, LogArrived
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import Narrator
from eagle3_console.loglines import CauseFinder, Level, Lines, Sieve, rank_tag
from eagle3_console.watch import Log
from eagle3_remote.protocol import ServerStatus

_TAIL_LINES = 500
"""So many lines of a log are sought in its end; more than that are sought in all of it."""
_DEFAULT_LINES = 50
Emit = Callable[[str], None]


class _Sink(Protocol):
    """Takes the bytes of a log; says what is wanted of them."""

    def feed(self, data: bytes) -> None:
        """The next bytes."""

    def first(self, *, last: bool) -> None:
        """All that the log has so far was fed; `last`: nothing follows."""


async def server_log(args: argparse.Namespace) -> int:
    """The server's log, its last lines first, then as it grows. As JSON: an object a piece, one a line."""
    rank = _rank(args.rank)
    whole = args.root_cause or bool(args.save) or bool(rank) or args.level != "info" or args.grep is not None
    count = args.lines if args.lines is not None else 0 if whole else _DEFAULT_LINES
    log: Log = "tail" if 0 < count <= _TAIL_LINES and not whole else "whole"
    narrate = Narrator(quiet=args.quiet)
    sinks: list[_Sink] = []

    def take(event: Event) -> None:
        if isinstance(event, LogArrived):
            for sink in sinks:
                sink.feed(event.data)
        elif isinstance(event, ConnectionChanged):
            narrate(event)

    async with open_flow(args, emit=take, log=log) as flow:
        server = (await snapshot(flow)).server
        if server.job is None:
            raise BoxRefused(f"No server of ours was ever started on {args.host}: there is no log.")
        with _target(args.save) as out:

            def emit(text: str) -> None:
                if args.json:
                    assert server.job is not None
                    text = json.dumps({"job": server.job.id, "path": server.job.log_path, "text": text}) + "\n"
                out.write(text)
                out.flush()

            sieve = Sieve(rank, Level[args.level.upper()], args.grep, single=server.spec is None or server.spec.tp == 1)
            if args.root_cause:
                sink: _Sink = _Cause(server, emit, narrate)
            else:
                sink = _Raw(count, emit) if sieve.open else _Filtered(sieve, count, emit)
            sinks.append(sink)
            await flow.watcher.pull()
            sink.first(last=not args.follow)
            while args.follow:
                await asyncio.sleep(0.5)
                await flow.watcher.pull()
    if args.save:
        narrate.line(f"saved in {args.save}")
    if not sieve.open and not args.root_cause:
        narrate.line(f"{units.number(sieve.kept)} of {units.number(sieve.seen)} lines match")
    return ExitCode.GOOD


class _Raw:
    """Everything as it is, or the last lines of it and what follows."""

    def __init__(self, count: int, emit: Emit) -> None:
        self._count = count
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held: list[bytes] | None = [] if count else None

    def feed(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif text := self._decoder.decode(data):
            self._emit(text)

    def first(self, *, last: bool) -> None:
        if self._held is not None:
            held, self._held = b"".join(self._held), None
            self.feed(b"".join(held.splitlines(keepends=True)[-self._count :]))


class _Filtered:
    """The lines that a sieve lets through, or the last of them and what follows."""

    def __init__(self, sieve: Sieve, count: int, emit: Emit) -> None:
        self._sieve = sieve
        self._emit = emit
        self._lines = Lines()
        self._held: collections.deque[str] | None = collections.deque(maxlen=count) if count else None

    def feed(self, data: bytes) -> None:
        self._take(self._lines.feed(data))

    def first(self, *, last: bool) -> None:
        if last:
            self._take(self._lines.rest())
        if self._held is not None:
            held, self._held = self._held, None
            self._write(list(held))

    def _take(self, lines: list[str]) -> None:
        wanted = [line for line in lines if self._sieve.wants(line)]
        if self._held is not None:
            self._held.extend(wanted)
        else:
            self._write(wanted)

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._emit("\n".join(lines) + "\n")


class _Cause:
    """The line that names the root cause, and what is around it."""

    def __init__(self, server: ServerStatus, emit: Emit, narrate: Narrator) -> None:
        self._server = server
        self._emit = emit
        self._narrate = narrate
        self._lines = Lines()
        self._finder = CauseFinder(server.log.root_cause or server.log.refused or "")

    def feed(self, data: bytes) -> None:
        self._finder.feed(self._lines.feed(data))

    def first(self, *, last: bool) -> None:
        self._finder.feed(self._lines.rest())
        log, job = self._server.log, self._server.job
        cause = log.root_cause or log.refused
        if cause is None:
            self._narrate.line(f"The log names no cause of a failure. {self._server.sentence}")
            return
        assert job is not None
        place = self._finder.place
        head = f"{log.failure or 'refused'}: {cause}"
        advice = f"\n{log.advice}" if log.advice else ""
        if place is None:
            self._emit(f"{head}{advice}\nIt is not one line of {job.log_path}; all of it: server log -n 0\n")
            return
        found = "\n".join(self._finder.lines())
        self._emit(f"{head}{advice}\nline {units.number(place)} of {job.log_path}:\n{found}\n")


def _rank(text: str) -> str:
    try:
        return rank_tag(text) if text else ""
    except ValueError as error:
        raise UsageError(f"--rank: {error}.") from None


@contextlib.contextmanager
def _target(path: str) -> Iterator[TextIO]:
    """Standard output, or a file that does not exist yet."""
    if not path:
        yield sys.stdout
        return
    try:
        with open(path, "x", encoding="utf-8", newline="") as file:
            yield file
    except FileExistsError:
        raise UsageError(f"The file {path} exists here already: name another one.") from None
    except OSError as error:
        raise UsageError(f"The log cannot be saved in {path}: {error.strerror or error}.") from error


COMMANDS = {"server log": server_log}
