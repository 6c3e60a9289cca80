"""The twin of the screen for scripts: the same events, told as lines on stderr; results go to stdout."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from eagle3_console import units
from eagle3_console.events import (
    UNDER_WAY,
    AlertRaised,
    ConnectionChanged,
    Event,
    Narration,
    SnapshotArrived,
    StepChanged,
)
from eagle3_remote import protocol
from eagle3_remote.protocol import ExtractState, ExtractStatus, Phase, ServerStatus, Snapshot

_PROGRESS_EVERY = 2.0
_WORKING = (ExtractState.RUNNING, ExtractState.PAUSED, ExtractState.FINISHING)


class Narrator:
    """Prints what changed, one line a change; progress at most every two seconds.

    Args:
        quiet: say nothing.
        stream: where to; default stderr.
        clock: Unix seconds, for the time in front of a line.
    """

    def __init__(
        self, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._quiet = quiet
        self._stream = stream
        self._said: dict[str, str] = {}
        self._progress_at = 0.0

    def __call__(self, event: Event) -> None:
        """Take one event."""
        match event:
            case Narration(text=text):
                self.line(text)
            case StepChanged(name=name, status=status, detail=detail):
                self._once("step", f"{name}: {status}" + (f": {detail}" if detail else ""))
            case ConnectionChanged(connection=connection) if connection.word not in UNDER_WAY:
                self._once("link", f"link: {connection.sentence}")  # its latency comes later
            case AlertRaised(alert=alert):
                self.line(f"{alert.level}: {alert.text} {alert.cure}".rstrip())
            case SnapshotArrived(snapshot=snapshot):
                self._snapshot(snapshot)
            case _:
                pass

    def line(self, text: str) -> None:
        """One line, with the time in front."""
        if not self._quiet:
            print(f"{units.clock(self._clock())} {text}", file=self._stream or sys.stderr, flush=True)

    def _once(self, key: str, text: str) -> None:
        if self._said.get(key) != text:
            self._said[key] = text
            self.line(text)

    def _snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.server.job is not None:
            self._once("server", server_line(snapshot.server))
        extract = snapshot.extract
        if extract is None or extract.state not in _WORKING:
            return
        now = self._clock()
        finished = extract.stored + extract.rejected + extract.failed >= extract.total > 0
        if not 0 <= now - self._progress_at < _PROGRESS_EVERY or finished:
            self._progress_at = now
            self._once("extract", extract_line(extract))


def has_terminal() -> bool:
    """Whether a screen can be drawn here."""
    # Textual reads standard input and draws on standard error
    terminals = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in terminals) and os.environ.get("TERM", "dumb") != "dumb"


def server_line(server: ServerStatus) -> str:
    """The server in one line."""
    text = f"server: {server.phase.value}"
    log = server.log
    if server.phase is Phase.LOADING_WEIGHTS and log.shards_total:
        text += f", shard {log.shards_done} of {log.shards_total}"
        text += f", {log.shard_rate}" if log.shard_rate else ""
        text += f", {log.shard_eta} left" if log.shard_eta else ""
    return text


RESUME = "'extract resume' lets it go on."


def extract_line(extract: ExtractStatus) -> str:
    """The extraction in one line: n of N, rates, size, ETA, and what went wrong; while it pauses, why."""
    if extract.state is ExtractState.PAUSED:
        return f"extract: {extract.stored:,} of {extract.total:,} stored. {extract.sentence}{f' {RESUME}' if extract.held else ''}"
    parts = [
        f"extract: {extract.stored:,} of {extract.total:,} stored",
        f"{extract.samples_per_s:.1f} samples/s",
        f"{extract.tokens_per_s:,.0f} tokens/s",
        units.gb_and_gib(extract.bytes_stored),
        f"ETA {units.duration(extract.eta)}",
    ]
    if extract.rejected:
        parts.append(f"{extract.rejected} rejected")
    if extract.failed:
        parts.append(f"{extract.failed} failed")
    return ", ".join(parts)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    json.dump(protocol.encode(value), sys.stdout, indent=2)
    sys.stdout.write("\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Text on stdout."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()
