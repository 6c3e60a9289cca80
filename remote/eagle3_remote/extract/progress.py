"""What the world sees of a running extraction: progress.json and the log."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import sys
import threading
import time

from eagle3_remote.extract import history
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.meter import Meter
from eagle3_remote.extract.records import Counts
from eagle3_remote.extract.space import gigabytes
from eagle3_remote.protocol import ExtractSpec, ExtractState, ExtractStatus, RunRecord, encode

_LOG_EVERY = 10.0
_PATIENCE = 0.2
"""Seconds: everything else waits meanwhile."""


def say(text: str) -> None:
    """One line of the log, at once."""
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stdout.flush()


class Reporter:
    """Keeps the counters of a run and writes them out. Used from the event loop's thread, but for `read`."""

    def __init__(self, run_dir: str, spec: ExtractSpec) -> None:
        self._path = os.path.join(run_dir, "progress.json")
        self._spec = spec
        self._began = time.monotonic()
        self._meter: Meter | None = None
        self._made: RunRecord | None = None
        self._idle = False
        self._logged = self._began
        self._write_failed = False
        self._journal = ""
        self._record = history.begin("")
        self._first: Counts | None = None
        self._clock = history.Clock(self._began, history.cause(ExtractState.PLANNING, ""))
        self.forecast: tuple[int, int] | None = None
        """(samples, tokens) of the whole input where only a part of it was read."""
        self.state = ExtractState.PLANNING
        self.sentence = "Reading the input."
        self.counts = Counts()
        self.held = ""
        """Of the pause that it is in or was in last."""
        self.total_final = False
        self._lock = threading.Lock()
        self.in_flight = 0
        self.tokens_in_flight = 0

    def read(self, more: Counts, number: int) -> None:
        """What the reading of the input adds, and how many samples it has passed; called from its thread."""
        with self._lock:
            now = dataclasses.asdict(self.counts)
            added = dataclasses.asdict(more)
            largest = max(self.counts.largest, more.largest)
            self.counts = Counts(**{**{key: now[key] + added[key] for key in now}, "largest": largest})
        if self.state is ExtractState.PLANNING:
            self.sentence = f"Reading the input: {number} samples so far."

    def begin(self, run: str, journal: str) -> None:
        """From here on the journal of this path is told how the run is doing. The counters are those of the start."""
        self._record, self._journal, self._first = history.begin(run), journal, self.counts
        self._keep()

    def sending(self) -> None:
        """From here on the rates count."""
        self._meter = Meter(time.monotonic(), self.counts.stored, self.counts.tokens_stored, self.counts.bytes_stored)

    def nothing_to_do(self, made: RunRecord | None) -> None:
        """The dataset was whole before: its figures stay those of the run that made it."""
        self._made, self._idle = made, True
        say("Nothing is left to do: every sample was stored before.")

    def moved(self, *, stored: int = 0, failed: int = 0, tokens: int = 0, bytes_: int = 0) -> None:
        """Samples that left the waiting ones."""
        with self._lock:
            now = self.counts
            self.counts = dataclasses.replace(
                now,
                stored=now.stored + stored,
                failed=now.failed + failed,
                waiting=now.waiting - stored - failed,
                tokens_stored=now.tokens_stored + tokens,
                bytes_stored=now.bytes_stored + bytes_,
            )

    def enter(self, state: ExtractState, sentence: str) -> None:
        """Change the state; the sentence is also a line of the log, a paused one (its figures change) once."""
        if sentence != self.sentence and not (state is self.state is ExtractState.PAUSED):
            say(sentence)
        self._clock.turn(time.monotonic(), history.cause(state, sentence))
        changed = state is not self.state
        self.state, self.sentence = state, sentence
        self.write()
        if changed:
            self._keep()

    def tick(self) -> None:
        """About twice a second: take the rates, write, and now and then log."""
        now = time.monotonic()
        if self._meter is not None:
            counts, still = self.counts, self.state is ExtractState.PAUSED and not self.in_flight
            self._meter.note(now, counts.stored, counts.tokens_stored, counts.bytes_stored, still)
        self.write()
        if now - self._logged >= _LOG_EVERY and self.state in (ExtractState.RUNNING, ExtractState.PAUSED):
            self._logged = now
            say(line(self.status()))
            self._keep()

    def status(self) -> ExtractStatus:
        """The whole truth, without the job (which its reader knows)."""
        counts = self.counts
        _, tokens = self.forecast or (0, counts.tokens_total)
        rates = self._meter.rates(max(tokens - counts.tokens_stored, 0)) if self._meter else None
        total = counts.bytes_total
        if counts.tokens_total:
            total = round(total * max(tokens / counts.tokens_total, 1.0))
        status = ExtractStatus(
            state=self.state,
            sentence=self.sentence,
            spec=self._spec,
            total=counts.total,
            stored=counts.stored,
            rejected=counts.rejected,
            failed=counts.failed,
            in_flight=self.in_flight,
            tokens_in_flight=self.tokens_in_flight,
            tokens_total=counts.tokens_total,
            tokens_stored=counts.tokens_stored,
            bytes_stored=counts.bytes_stored,
            bytes_total=total,
            elapsed=time.monotonic() - self._began,
            cut=counts.cut,
            held=self.held if self.state is ExtractState.PAUSED else "",
            total_final=self.total_final,
            nothing_to_do=self._idle,
        )
        if self._made is not None:
            sending = self._made.spent.get("extracting", 0.0)
            mean = self._made.stored / sending if sending else 0.0
            return dataclasses.replace(status, elapsed=self._made.seconds, mean_samples_per_s=mean)
        if rates is None:
            return status
        return dataclasses.replace(
            status,
            samples_per_s=rates.samples,
            tokens_per_s=rates.tokens,
            bytes_per_s=rates.bytes,
            mean_samples_per_s=rates.mean_samples,
            eta=rates.eta if self.state is ExtractState.RUNNING else None,
        )

    def _keep(self) -> None:
        """Tell the journal; where it has no space or is held by others, it is told later."""
        if self._first is None:
            return
        now, first = self.counts, self._first
        spent = self._clock.spent(time.monotonic())
        record = dataclasses.replace(
            self._record,
            seconds=round(time.monotonic() - self._began, 1),
            state=self.state.value,
            stored=now.stored - first.stored,
            tokens=now.tokens_stored - first.tokens_stored,
            bytes=now.bytes_stored - first.bytes_stored,
            spent={name: round(seconds, 1) for name, seconds in spent.items()},
        )
        try:
            # A connection of its own: the last word comes when the run has closed its journal.
            with contextlib.closing(Journal(self._journal, _PATIENCE)) as journal:
                history.keep(journal, record)
        except (OSError, sqlite3.OperationalError):  # on a full disk its files beside the journal cannot even be made
            return

    def write(self) -> None:
        """progress.json by tmp + rename. It is for looking only, so a full disk does not end the run."""
        tmp = self._path + ".tmp"
        try:
            with open(tmp, "w", encoding="utf-8") as file:
                json.dump(encode(self.status()), file)
            os.replace(tmp, self._path)
            self._write_failed = False
        except OSError as error:
            if not self._write_failed:
                say(f"{self._path} cannot be written: {error}. The extraction goes on.")
            self._write_failed = True


def line(status: ExtractStatus) -> str:
    """A progress line for a person."""
    wanted = f"{status.total - status.rejected}{'' if status.total_final else '+'}"
    text = f"{status.stored}/{wanted} samples, {gigabytes(status.bytes_stored)}, {status.samples_per_s:.1f} samples/s, "
    text += f"{status.tokens_per_s:.0f} tokens/s, {status.in_flight} in flight"
    if status.eta is not None:
        text += f", {_duration(status.eta)} left"
    if status.failed or status.rejected:
        text += f"; {status.rejected} rejected, {status.failed} failed"
    return text


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
