"""The input on its way into the journal: every format alike, in any order, for any shard, taken up wherever it was left."""

from __future__ import annotations

import dataclasses
import gzip
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.extract import spool
from eagle3_remote.extract.dataset import Dataset, prepare
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.input import Rules
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.order import EVERYWHERE, Order, last_place, place
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.records import Counts
from eagle3_remote.extract.shards import Shard
from eagle3_remote.extract.sources import find
from tests.extract.kill_at import killed_at
from tests.extract.made import RULES, journal_of

RECORDS = [
    {"input_ids": [i + 1, 2, 3, 4 + i % 3], "loss_mask": [0, 1, i % 2, 1], "id": f"sample {i}"} for i in range(300)
]


def write(path: Path, records: Sequence[dict[str, Any]] = RECORDS) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def content(dataset: Dataset, journal: Journal) -> list[tuple[int, list[int], list[int]]]:
    """(line, ids, mask) of what waits, in the order of sending."""
    found = [(entry.line, spool.read(dataset.spool, entry)) for entry in journal.waiting(10_000)]
    return [(line, list(sample.ids), list(sample.mask)) for line, sample in found]


def wanted(records: Sequence[dict[str, Any]] = RECORDS) -> list[tuple[int, list[int], list[int]]]:
    return [
        (line, record["input_ids"], record.get("loss_mask", [1] * len(record["input_ids"])))
        for line, record in enumerate(records, 1)
    ]


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_what_is_read_is_what_is_sent(tmp_path: Path, name: str) -> None:
    assert content(*journal_of(tmp_path / "out", write(tmp_path / name))) == wanted()


def test_samples_without_a_mask_are_kept_without_one(tmp_path: Path) -> None:
    records = [{"input_ids": [1, 2]}, {"input_ids": [3], "loss_mask": [1]}]
    dataset, journal = journal_of(tmp_path / "out", write(tmp_path / "data.jsonl", records))
    assert content(dataset, journal) == wanted(records)
    assert [entry.has_mask for entry in journal.waiting(10)] == [False, True]


def test_killed_anywhere_the_reading_goes_on(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", [*RECORDS, *({"input_ids": [7] * 90} for _ in range(700))])
    at = 1
    while True:
        out = tmp_path / f"at{at}"
        points = killed_at(at, lambda out=out: journal_of(out, data)[1].close())  # type: ignore[misc]
        dataset, journal = journal_of(out, data)
        assert content(dataset, journal) == wanted(RECORDS) + [(line, [7] * 90, [1] * 90) for line in range(301, 1001)]
        assert (journal.reading().same_ids, journal.reading().ended) == (699, True)
        journal.close()
        if points is not None:
            assert at == points + 1 > 6
            return
        at += 1


def test_a_larger_number_of_samples_goes_on_and_a_smaller_one_asks_for_fewer(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    for limit, rows in ((120, 120), (250, 250), (10, 10), (0, 300)):
        journal = Journal(prepare(str(tmp_path / "out")).journal)
        journal.take_rows(limit, None)
        list(journal.give_rows(limit, None))
        journal.close()
        dataset, journal = journal_of(tmp_path / "out", data, Order(limit=limit))
        assert content(dataset, journal) == wanted()[:rows]
        assert journal.counts().total == rows
        journal.close()


def test_shards_part_the_input_and_a_seed_orders_each_as_the_whole(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    whole = content(*journal_of(tmp_path / "whole", data, Order(seed=3)))
    assert sorted(whole) == wanted() != whole
    assert whole != content(*journal_of(tmp_path / "other", data, Order(seed=4)))
    parts = [content(*journal_of(tmp_path / f"s{i}", data, Order(seed=3, shard=Shard(i, 3)))) for i in range(3)]
    assert sorted(one for part in parts for one in part) == wanted()
    for i, part in enumerate(parts):
        assert part == [one for one in whole if (one[0] - 1) % 3 == i]


def test_killed_anywhere_a_shard_still_knows_what_the_others_have(tmp_path: Path) -> None:
    """Each sample of the second half repeats one of the first, which is the other shard's."""
    firsts = [{"input_ids": [7, i % 900, i // 900]} for i in range(2301)]
    data = write(tmp_path / "data.jsonl", [*firsts, *firsts])
    order = Order(duplicates="skip", shard=Shard(1, 2))
    at = 1
    while True:
        out = tmp_path / f"at{at}"
        points = killed_at(at, lambda out=out: journal_of(out, data, order)[1].close())  # type: ignore[misc]
        _, journal = journal_of(out, data, order)
        assert [entry.line for entry in journal.waiting(10_000)] == list(range(2, 2302, 2))
        assert (journal.reading().same_ids, journal.counts().rejected) == (1151, 1151)
        assert journal.problems(1)[0][3] == "its input_ids are those of line 1"
        journal.close()
        if points is not None:
            assert at == points + 1 > 6
            return
        at += 1


MIXED = [
    {"input_ids": [1 + i % 40] * (1 + i % 9), "id": str(i % 70)} if i % 11 else {"input_ids": []} for i in range(300)
]
"""Bad ones, repeated ones, and some that are too long for a small server."""


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("limit", [0, 77])
@pytest.mark.parametrize("duplicates", ["keep", "skip"])
def test_the_shards_together_take_what_is_taken_without_shards(
    seed: int | None, limit: int, duplicates: str, tmp_path: Path
) -> None:
    data, small = tmp_path / "data.jsonl", Rules(1000, 7, "its context length is 13")
    data.write_text("".join(json.dumps(one) + "\n" * (1 + at % 3) for at, one in enumerate(MIXED)))

    def taken(name: str, shard: Shard) -> tuple[list[tuple[int, list[int], list[int]]], list[Any], int]:
        order = Order(limit=limit, seed=seed, duplicates=duplicates, shard=shard)
        dataset, journal = journal_of(tmp_path / name, data, order, small)
        refused = journal.problems(1000)
        # an order by hash first: that of a dataset whose shards are joined
        waiting = sorted(content(dataset, journal), key=lambda one: place(one[0], seed))
        assert waiting == content(dataset, journal)
        return waiting, refused, journal.reading().same_ids

    whole, refused, repeats = taken("whole", Shard(0, 1))
    assert whole
    assert refused
    parts = [taken(str(index), Shard(index, 4)) for index in range(4)]
    assert sorted((one for part in parts for one in part[0]), key=lambda one: place(one[0], seed)) == whole
    assert sorted(one for part in parts for one in part[1]) == refused
    assert duplicates == "keep" or sum(part[2] for part in parts) == repeats


@pytest.mark.parametrize("total", [1, 2, 50, 3000])
def test_the_place_of_the_last_of_the_first(total: int) -> None:
    places = sorted(place(line, 9) for line in range(1, total + 1))
    for limit in {1, total // 2, total - 1} - {0}:
        assert last_place(total, limit, 9) == (places[limit - 1] if limit < total else EVERYWHERE)
    assert last_place(total, total, 9) >= places[-1]


def test_a_shuffled_order_goes_on_where_fewer_samples_ended(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    whole = content(*journal_of(tmp_path / "whole", data, Order(seed=3)))
    few, journal = journal_of(tmp_path / "few", data, Order(seed=3, limit=40))
    assert content(few, journal) == whole[:40]
    journal.close()
    assert content(*journal_of(tmp_path / "few", data, Order(seed=3, limit=0))) == whole


def test_repeated_ids_are_counted_or_refused(tmp_path: Path) -> None:
    records = [{"input_ids": [1, 2]}, {"input_ids": [3]}, {"input_ids": [1, 2], "loss_mask": [0, 1]}] * 60
    data = write(tmp_path / "data.jsonl", records)
    _, journal = journal_of(tmp_path / "keep", data)
    assert journal.counts().waiting == 180
    assert journal.reading().same_ids == 178
    _, journal = journal_of(tmp_path / "skip", data, Order(duplicates="skip"))
    assert [entry.line for entry in journal.waiting(10)] == [1, 2]
    assert journal.problems(3)[0] == (3, "rejected", "duplicate", "its input_ids are those of line 1")
    assert journal.counts().rejected == 178


def test_nothing_is_sent_of_an_input_that_will_not_do(tmp_path: Path) -> None:
    records = [*RECORDS, {"input_ids": [-1]}]
    data = write(tmp_path / "data.jsonl", records)
    dataset = prepare(str(tmp_path / "out"))
    sent: list[Counts] = []
    feeder = Feeder(
        dataset.journal,
        dataset.spool,
        find(str(data)),
        RULES,
        Order(on_bad="stop"),
        read=lambda counts, number: sent.append(counts),
    )
    with pytest.raises(ExtractionError, match=r"data.jsonl, line 301: input_ids\[0\] = -1"):
        feeder.run()
    assert Journal(dataset.journal).waiting(1) == []
    assert sum(counts.waiting for counts in sent) == 0
    write(data)
    assert content(*journal_of(tmp_path / "out", data, Order(on_bad="stop"))) == wanted(), "it is read anew"


def test_samples_can_be_sent_while_the_rest_is_read(tmp_path: Path) -> None:
    """The reading waits in the middle for whoever sends to find the first samples."""
    data = write(tmp_path / "data.jsonl")
    dataset = prepare(str(tmp_path / "out"))
    found, go_on = threading.Event(), threading.Event()

    def read(counts: Counts, number: int) -> None:
        found.set()
        assert go_on.wait(30)

    feeder = Feeder(dataset.journal, dataset.spool, find(str(data)), RULES, Order(), read=read)
    journal = Journal(dataset.journal)
    feeder.start()
    assert found.wait(30)
    assert (len(journal.waiting(10_000)), feeder.done) == (100, False)
    go_on.set()
    while not feeder.over:
        time.sleep(0.01)
    feeder.close()
    feeder.check()
    assert (len(journal.waiting(10_000)), feeder.done) == (300, True)


def test_what_a_smaller_server_cannot_take_any_more_is_refused(tmp_path: Path) -> None:
    _, journal = journal_of(
        tmp_path / "out", write(tmp_path / "data.jsonl", [{"input_ids": [1] * 9}, {"input_ids": [2]}])
    )
    assert journal.refuse_longer(Rules(1000, 5, "its context length is 11")) == 1
    assert journal.problems(9) == [
        (1, "rejected", "too-long", "9 tokens; this server takes at most 5 (its context length is 11)")
    ]


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_lines_that_end_where_a_buffer_does_are_whole(tmp_path: Path, name: str) -> None:
    """Around 8 KiB and 64 KiB; Windows line ends, a byte order mark, no line end at the very end."""
    texts = []
    for size in (8191, 8192, 8193, 65535, 65536, 65537, 131072, 40):
        start = f'{{"input_ids": [{len(texts) + 1}], "text": "'
        texts.append(start + "x" * (size - len(start) - 4) + '"}')
    raw = b"\xef\xbb\xbf" + "\r\n".join(texts).encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    dataset, journal = journal_of(tmp_path / "out", tmp_path / name)
    assert [ids for _, ids, _ in content(dataset, journal)] == [[at + 1] for at in range(len(texts))]


def test_a_damaged_archive_is_said_and_what_was_read_stays(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl.gz", [{"input_ids": [i % 900, i % 7]} for i in range(90_000)])
    raw = data.read_bytes()
    data.write_bytes(raw[: len(raw) * 2 // 3])
    with pytest.raises(ExtractionError, match=r"cannot be read after line \d+: it is cut off or damaged"):
        journal_of(tmp_path / "out", data)
    assert Journal(str(tmp_path / "out/.eagle3/journal.sqlite3")).counts().waiting > 1000


@pytest.mark.parametrize("order", [Order(), Order(seed=3), Order(seed=3, limit=150), Order(limit=150)])
@pytest.mark.parametrize("duplicates", ["keep", "skip"])
def test_what_was_too_long_when_it_was_read_goes_to_a_larger_server(
    order: Order, duplicates: str, tmp_path: Path
) -> None:
    """All that a larger server would have taken at once; what else is wrong stays refused."""
    order = dataclasses.replace(order, duplicates=duplicates)
    data = write(tmp_path / "data.jsonl", [*MIXED, {"input_ids": [5] * 9, "loss_mask": [0] * 9}])
    dataset, journal = journal_of(tmp_path / "out", data, order, Rules(1000, 6, "its context length is 8"))
    at_first = journal.problems(1000)
    assert any(kind == "too-long" for _, _, kind, _ in at_first)
    for rules in (Rules(1000, 8, "its context length is 10"), RULES):
        journal.requeue()
        journal.refuse_longer(rules)
        list(journal.give_rows(order.limit, order.seed))
        whole = journal_of(tmp_path / f"whole-{rules.max_tokens}", data, order, rules)
        assert sorted(content(dataset, journal)) == sorted(content(*whole))
        assert [one[:3] for one in journal.problems(1000)] == [one[:3] for one in whole[1].problems(1000)]
    assert all(kind != "too-long" for _, _, kind, _ in journal.problems(1000))


def test_what_was_too_long_for_a_smaller_server_goes_to_a_larger_one(tmp_path: Path) -> None:
    records = [{"input_ids": [1] * 9}, {"input_ids": [2]}, {"input_ids": []}]
    dataset, journal = journal_of(tmp_path / "out", write(tmp_path / "data.jsonl", records))
    assert journal.refuse_longer(Rules(1000, 5, "its context length is 11")) == 1
    journal.requeue()
    assert journal.refuse_longer(Rules(1000, 5, "its context length is 11")) == 1, "as small as before"
    journal.requeue()
    assert journal.refuse_longer(RULES) == 0
    list(journal.give_rows(0, None))
    assert sorted(content(dataset, journal)) == wanted(records[:2])
    assert (journal.counts().waiting, journal.counts().rejected) == (2, 1)


def test_stopping_does_not_wait_until_all_that_was_read_is_remembered(tmp_path: Path) -> None:
    dataset, journal = journal_of(tmp_path / "out", write(tmp_path / "data.jsonl"), Order(limit=299))
    source = find(str(tmp_path / "data.jsonl"))
    feeder = Feeder(dataset.journal, dataset.spool, source, RULES, Order())
    remembered = 0

    def names(self: Journal) -> Iterator[tuple[int, bytes, str | None]]:
        nonlocal remembered
        for remembered in range(1, 10_001):
            time.sleep(0.001)
            yield remembered, remembered.to_bytes(16, "big"), None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "names", names)
        feeder.start()
        while not remembered:
            time.sleep(0.001)
        feeder.close()
    assert not feeder.over
    assert remembered < 10_000
    assert journal.reading().number == 299
