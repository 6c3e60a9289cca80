"""The input is read once, into journal and ``samples.bin``, by a thread of its own while samples are already sent.

What was read is kept: a run that goes on takes the reading up where it ended. The order of sending is that of the input, so that the
first sample is on its way after the first hundred lines. Two things need all of the input first: a shuffled order, and `on_bad`
``stop``, which promises that nothing is sent where one sample is bad.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from eagle3_remote.extract import spool
from eagle3_remote.extract.collect import waited_for
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.input import Bad, Rules, Sample, parse
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.order import Order
from eagle3_remote.extract.records import Counts, Reading
from eagle3_remote.extract.seen import Named, Seen, name_of
from eagle3_remote.extract.shards import WHOLE
from eagle3_remote.extract.sources import Position, Progress, Source

T = TypeVar("T")

_JUDGED = 100
_BATCH_SAMPLES, _BATCH_TOKENS = 2000, 1_000_000
_BATCH_SECONDS = 0.25
_FULL_WAIT = 1.0
_FAR_AHEAD, _REST = 20_000, 3.0
"""With so many samples to send, reading rests for three times as long as it works: it holds Python's lock, which sending needs."""


class _Stopped(Exception):
    pass


class Feeder:
    """Reads what is left of the input, in a thread. Only one may read into a dataset at a time.

    Args:
        journal: the path; the thread has a connection of its own.
        samples: the path of ``samples.bin``.
        read: told what each step adds to the counters and how many items were read in all, from the thread.
        file_bytes: what the file of so many tokens takes.
        ahead: asked how many samples are waiting to be sent.
        added: called when there may be new samples to send, and at the end, from the thread.
    """

    def __init__(
        self,
        journal: str,
        samples: str,
        source: Source,
        rules: Rules,
        order: Order,
        *,
        read: Callable[[Counts, int], None] = lambda counts, number: None,
        file_bytes: Callable[[int], int] = lambda tokens: 0,
        ahead: Callable[[], int] = lambda: 0,
        added: Callable[[], object] = lambda: None,
    ) -> None:
        self._journal_path, self._samples, self._source = journal, samples, source
        self._rules, self._order, self._read, self.added = rules, order, read, added
        self._ahead, self._file_bytes = ahead, file_bytes
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._done = False
        self._progress = Progress()
        self.waits = ""
        """Why it does not go on just now, which passes by itself."""
        self._thread = threading.Thread(target=self._run, name="feeder")

    @property
    def done(self) -> bool:
        """No more samples come: all are in the journal."""
        return self._done

    @property
    def over(self) -> bool:
        """Nothing more comes: all is read, or `check` raises why not."""
        return self._done or self._error is not None

    def start(self) -> None:
        """Begin; where everything was read before, this is over at once."""
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the reading early.

        Raises:
            ExtractionError: the input will not do, or cannot be read any further.
        """
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop reading and wait for the thread; the next run goes on from here."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def run(self) -> None:
        """All of it, in the calling thread."""
        self._run()
        self.check()

    def _run(self) -> None:
        try:
            journal = self._when_it_passes(lambda: Journal(self._journal_path))
            try:
                self._all(journal)
            finally:
                journal.close()
            self._done = True
        except _Stopped:
            return
        except ExtractionError as error:
            self._error = error
        except Exception as error:
            self._error = ExtractionError(f"Reading {self._source.path} broke: {error!r}. What is stored stays.")
        finally:
            self.added()

    def _all(self, journal: Journal) -> None:
        reading = journal.reading()
        if reading.refused:
            self._when_it_passes(journal.clear_samples)
            reading = Reading()
        if not self._enough(reading):
            self._read_on(journal, reading)
        if self._order.whole_first:
            self._when_it_passes(lambda: self._give_rows(journal))
        if not journal.has_samples():
            counts, first = journal.counts(), journal.problems(1)
            said = f", first {self._source.unit} {first[0][0]}: {first[0][3]}" if first else ""
            shard = self._order.shard
            where, less = (f" in shard {shard}", " Fewer shards are enough.") if shard != WHOLE else ("", "")
            self._refuse(
                journal,
                f"{self._source.path} has no usable sample{where}: {counts.total} were read, {counts.rejected} refused{said}.{less}",
            )

    def _enough(self, reading: Reading) -> bool:
        limit = 0 if self._order.seed is not None else self._order.limit
        return reading.ended or bool(limit and reading.number >= limit)

    def _give_rows(self, journal: Journal) -> None:
        number = journal.reading().number
        for counts in journal.give_rows(self._order.limit, self._order.seed, self._file_bytes):
            self._read(counts, number)
            self.added()
            if self._stop.is_set():
                raise _Stopped

    def _read_on(self, journal: Journal, reading: Reading) -> None:
        sizes = [size for size, _ in self._source.stat()]
        samples = self._when_it_passes(lambda: spool.Writer(self._samples, reading.spool))
        seen = Seen(self._samples + ".seen")
        try:
            self._when_it_passes(lambda: seen.remember(self._read_before(journal, reading.number)))
            began = time.monotonic()
            for batch, position in self._batches(reading):
                reading = self._keep(journal, samples, seen, batch, dataclasses.replace(reading, **position))
                rest = _REST * (time.monotonic() - began) if self._ahead() > _FAR_AHEAD else 0.0
                if self._stop.wait(rest) and not reading.ended:
                    raise _Stopped
                began = time.monotonic()
        except (OSError, ValueError) as error:
            where = f"after {self._source.unit} {reading.number}"
            raise ExtractionError(
                f"{self._source.path} cannot be read {where}: {error}. What is stored stays."
            ) from None
        finally:
            seen.close()
            samples.close()
        if sizes != [size for size, _ in self._source.stat()]:
            raise ExtractionError(
                f"{self._source.path} was changed while it was read: choose another --out and start again when it is complete."
            )

    def _read_before(self, journal: Journal, number: int) -> Iterator[Named]:
        """What an earlier run read; of other shards' samples the journal knows nothing, so that the input is read once more."""
        if not self._order.looks_at_all:
            for named in journal.names():
                if self._stop.is_set():
                    raise _Stopped
                yield named
            return
        for item in self._source.items(Position()):
            if item.number > number:
                return
            if self._stop.is_set():
                raise _Stopped
            if (sample := _sample_in(parse(item, self._rules))) is not None:
                yield sample.line, sample.fingerprint, sample.sample_id

    def _batches(self, reading: Reading) -> Iterator[tuple[list[Sample | Bad], dict[str, Any]]]:
        """What is checked, in batches, each with the position after it; the last one says whether the source has ended."""
        order, number, offset = self._order, reading.number, reading.offset
        limit = 0 if order.seed is not None else order.limit
        most = _BATCH_SAMPLES if number else _JUDGED
        batch: list[Sample | Bad] = []
        own, tokens, began = 0, 0, time.monotonic()
        for item in self._source.items(Position(number, offset), self._progress):
            if limit and item.number > limit:
                yield batch, {"number": limit, "offset": offset}
                return
            number, offset = item.number, item.end
            if not order.takes(number):
                continue
            judged = parse(item, self._rules)
            batch.append(judged)
            own += order.shard.has(number)
            sample = _sample_in(judged)
            tokens += 0 if sample is None else sample.tokens
            full = own >= most or len(batch) >= _BATCH_SAMPLES or tokens >= _BATCH_TOKENS or self._stop.is_set()
            if full or (most > _JUDGED and time.monotonic() - began > _BATCH_SECONDS):
                yield batch, {"number": number, "offset": offset}
                batch, own, tokens, most, began = [], 0, 0, _BATCH_SAMPLES, time.monotonic()
        yield batch, {"number": number, "offset": offset, "ended": True}

    def _keep(
        self, journal: Journal, samples: spool.Writer, seen: Seen, batch: list[Sample | Bad], reading: Reading
    ) -> Reading:
        """Journal a batch; what is in it is only then known to anybody."""
        first_batch = journal.reading().number == 0
        batch, reading = self._marked(seen, batch, reading)
        bad = [item for item in batch if isinstance(item, Bad)]
        faults = [item for item in bad if item.kind != "duplicate"]
        placed: list[tuple[Sample | Bad, int]] = []
        records, end = [], samples.end
        for item in batch:
            placed.append((item, end))
            if (sample := _sample_in(item)) is not None:
                records.append(spool.record_of(sample))
                end += len(records[-1])
        refused = ""
        if faults and self._order.on_bad == "stop":
            refused = f"{self._source.path}, {self._said(faults[0])}. Correct the file, or let bad samples be skipped (--on-bad skip)."
        elif first_batch and len(batch) >= _JUDGED and 2 * len(faults) > len(batch):
            refused = f"{len(faults)} of the first {len(batch)} samples of {self._source.path} are bad, first {self._said(faults[0])}."
        reading = dataclasses.replace(reading, spool=end, refused=bool(refused), fraction=self._progress.fraction)
        ordered = not self._order.whole_first and not refused
        self._when_it_passes(lambda: samples.append(b"".join(records)))
        self._when_it_passes(lambda: journal.add(placed, reading, ordered=ordered))
        if refused:
            raise ExtractionError(refused)
        waiting = [item for item in batch if isinstance(item, Sample)] if ordered else []
        counts = _counts(waiting, bad)
        counts = dataclasses.replace(counts, bytes_total=sum(self._file_bytes(sample.tokens) for sample in waiting))
        self._read(counts, reading.number)
        if ordered:
            self.added()
        return reading

    def _refuse(self, journal: Journal, why: str) -> None:
        """The next run reads anew."""
        refused = dataclasses.asdict(dataclasses.replace(journal.reading(), refused=True))
        self._when_it_passes(lambda: journal.put("reading", refused))
        raise ExtractionError(why)

    def _said(self, bad: Bad) -> str:
        return f"{self._source.unit} {bad.line}: {bad.reason}"

    def _marked(self, seen: Seen, batch: list[Sample | Bad], reading: Reading) -> tuple[list[Sample | Bad], Reading]:
        """This shard's part of the batch with repeated ids counted, and refused where that is asked."""
        found = [sample for sample in map(_sample_in, batch) if sample is not None]
        named = [sample for sample in found if sample.sample_id is not None]
        first_ids = self._when_it_passes(lambda: seen.add((one.fingerprint, one.line) for one in found))
        first_names = self._when_it_passes(lambda: seen.add((name_of(one.sample_id or ""), one.line) for one in named))
        own = self._order.shard.has
        repeats = {
            sample.line: first
            for sample, first in zip(found, first_ids, strict=True)
            if first is not None and own(sample.line)
        }
        same_name = sum(
            first is not None and own(sample.line) for sample, first in zip(named, first_names, strict=True)
        )
        reading = dataclasses.replace(
            reading, same_ids=reading.same_ids + len(repeats), same_name=reading.same_name + same_name
        )
        batch = [item for item in batch if own(item.line)]
        if self._order.duplicates != "skip":
            return batch, reading
        unit = self._source.unit
        return [
            Bad(item.line, "duplicate", f"its input_ids are those of {unit} {repeats[item.line]}")
            if item.line in repeats
            else item
            for item in batch
        ], reading

    def _when_it_passes(self, change: Callable[[], T]) -> T:
        while True:
            try:
                done = change()
                self.waits = ""
                return done
            except OSError as error:
                place = os.path.dirname(os.path.dirname(self._journal_path))
                why = waited_for(error, place, ", the input cannot be read on")
                if why is None:
                    raise
                self.waits = why
            if self._stop.wait(_FULL_WAIT):
                raise _Stopped


def _sample_in(item: Sample | Bad) -> Sample | None:
    """The sample, also where it is refused for its length alone."""
    return item.sample if isinstance(item, Bad) else item


def _counts(good: list[Sample], bad: list[Bad]) -> Counts:
    return Counts(
        total=len(good) + len(bad),
        rejected=len(bad),
        waiting=len(good),
        tokens_total=sum(sample.tokens for sample in good),
        cut=sum(sample.full_tokens > sample.tokens for sample in good),
        no_mask=sum(not sample.has_mask for sample in good),
        largest=max((sample.tokens for sample in good), default=0),
    )
