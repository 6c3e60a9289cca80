"""What the reading of the input writes into the journal, and which samples get which row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eagle3_remote.extract.input import Bad, Sample
from eagle3_remote.extract.journalfile import JournalFile, next_row, put_fact
from eagle3_remote.extract.order import EVERYWHERE, last_place, place
from eagle3_remote.extract.records import READ, WAITING, Counts, Reading

_SAMPLE = "line, offset, sample_id, tokens, loss_tokens, full_tokens, has_mask, fingerprint"


class Intake(JournalFile):
    """The journal as the reading of the input uses it."""

    def reading(self) -> Reading:
        """How far the input was read."""
        return Reading(**(self.get("reading") or {}))

    def clear_samples(self) -> None:
        """Forget what was read, to read it anew."""
        with self._writing() as db:
            db.execute("DELETE FROM samples")
            db.execute("DELETE FROM meta WHERE key = 'reading'")

    def forget(self) -> None:
        """Begin anew, with other settings: nothing stays but whose dumps may still lie about."""
        with self._writing() as db:
            db.execute("DELETE FROM samples")
            db.execute("DELETE FROM meta WHERE key != 'runs'")

    def add(self, items: Iterable[tuple[Sample | Bad, int]], reading: Reading, *, ordered: bool) -> None:
        """Add what was read, each with its sample's offset in ``samples.bin``, and how far that is.

        Samples wait at once, in the rows after the last one, where the order of the input is the order of sending (`ordered`);
        else `give_rows` gives them theirs.
        """
        good = [_values(item, at) for item, at in items if isinstance(item, Sample)]
        bad = [
            (
                item.kind,
                item.reason,
                *(_values(item.sample, at) if item.sample else (item.line, None, None, 0, 0, 0, False, None)),
            )
            for item, at in items
            if isinstance(item, Bad)
        ]
        with self._writing() as db:
            row = next_row(db) if ordered else None
            state = WAITING if ordered else READ
            db.executemany(
                f"INSERT INTO samples (state, kind, reason, {_SAMPLE}) VALUES ('rejected', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                bad,
            )
            db.executemany(
                f"INSERT INTO samples (row, state, {_SAMPLE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(None if row is None else row + at, state, *one) for at, one in enumerate(good)],
            )
            put_fact(db, "reading", dataclasses.asdict(reading))

    def give_rows(
        self, limit: int, seed: int | None, file_bytes: Callable[[int], int] = lambda tokens: 0
    ) -> Iterator[Counts]:
        """Samples that were only read get the rows after the last one and wait: in the order of the input, or shuffled by `seed`.

        `limit`: only the first so many lines of the whole input in that order, those of other shards and refused ones counted; 0:
        all. Yields what each step adds to the counters.
        """
        last = self._last_place(limit, seed)
        with self._writing() as db:
            first = next_row(db)
            db.execute("DROP TABLE IF EXISTS temp.places")
            # A table of its own, so that SQLite sorts on disk.
            db.execute(
                "CREATE TEMP TABLE places AS SELECT line, tokens, full_tokens > tokens, has_mask FROM samples"
                " WHERE state = 'read' AND (? OR place(line) <= ?) ORDER BY place(line), line",
                (last == EVERYWHERE, last),
            )
        for at, chunk in self._chunks("places"):
            with self._writing() as db:
                db.executemany(
                    "UPDATE samples SET row = ?, state = 'waiting' WHERE line = ?",
                    [(first + at + i, line) for i, (line, *_) in enumerate(chunk)],
                )
            lengths = [tokens for _, tokens, _, _ in chunk]
            yield Counts(
                total=len(chunk),
                waiting=len(chunk),
                tokens_total=sum(lengths),
                cut=sum(cut for _, _, cut, _ in chunk),
                no_mask=sum(not mask for *_, mask in chunk),
                largest=max(lengths),
                bytes_total=sum(map(file_bytes, lengths)),
            )

    def take_rows(self, limit: int, seed: int | None) -> None:
        """What waits beyond `limit` (see `give_rows`) is not asked for any more; 0: nothing is beyond."""
        if not limit or (seed is not None and not self.reading().ended):
            return
        last = self._last_place(limit, seed)
        with self._writing() as db:
            db.execute(
                "UPDATE samples SET state = 'read', row = NULL WHERE state = 'waiting' AND place(line) > ?", (last,)
            )

    def _last_place(self, limit: int, seed: int | None) -> int:
        """The place of the `limit`-th of all lines that were read; the function ``place`` orders by `seed` from here on."""
        self._db.create_function("place", 1, lambda line: place(line, seed), deterministic=True)
        if not limit or seed is None:
            return limit or EVERYWHERE
        total, kept = self.reading().number, self.get("last place") or {}
        asked = {"total": total, "limit": limit, "seed": seed}
        if {key: kept.get(key) for key in asked} != asked:
            kept = {**asked, "place": last_place(total, limit, seed)}
            self.put("last place", kept)
        return int(kept["place"])

    def has_samples(self) -> bool:
        """Whether there is any sample that was not refused."""
        return bool(self._ask("SELECT 1 FROM samples WHERE state NOT IN ('rejected', 'read') LIMIT 1"))

    def names(self) -> Iterator[tuple[int, bytes, str | None]]:
        """(line, fingerprint, id) of every sample that was not refused, or for its length alone, in input order."""
        yield from self._db.execute(
            "SELECT line, fingerprint, sample_id FROM samples WHERE fingerprint IS NOT NULL ORDER BY line"
        )


def _values(sample: Sample, offset: int) -> tuple[Any, ...]:
    """As `_SAMPLE` names them."""
    return (
        sample.line,
        offset,
        sample.sample_id,
        sample.tokens,
        sample.loss_tokens,
        sample.full_tokens,
        sample.has_mask,
        sample.fingerprint,
    )
