"""Cutting batches and putting requests together: any chunks, any batches, any order, aborts and retractions."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_patch.assemble import Assembly, Cut, Entry, Gap, cut
from eagle3_patch.ledger import Ledger


class Req:
    """What the scheduler has for a request."""

    def __init__(self, rid: str, ids: list[int]) -> None:
        self.rid = rid
        self.origin_input_ids = ids
        self.computed = 0
        self.aborted = False

    def finished(self) -> bool:
        return self.aborted


def test_cut_leaves_out_decode_rows_and_generated_ids() -> None:
    entries = [
        Entry("a", prompt=10, prefix=0, extend=4),
        Entry("decoding", prompt=5, prefix=7, extend=1),
        Entry("retracted", prompt=3, prefix=0, extend=6),
        Entry("other", prompt=9, prefix=0, extend=9),
        Entry("last chunk", prompt=10, prefix=8, extend=2),
    ]
    assert cut(entries, [True, True, True, False, True]) == [Cut(0, 0, 4, 0), Cut(2, 5, 3, 0), Cut(4, 20, 2, 8)]


def test_a_prefix_hit_is_a_gap() -> None:
    assembly = Assembly[str](20)
    with pytest.raises(Gap, match="12 cached tokens: positions 0 to 11"):
        assembly.fresh(12, 8)


def test_a_prefix_hit_behind_a_chunk_is_a_gap() -> None:
    assembly = Assembly[str](20)
    assembly.add("x", 4)
    with pytest.raises(Gap, match="6 cached tokens: positions 4 to 9"):
        assembly.fresh(10, 10)


def test_more_rows_than_the_prompt_has_are_an_error() -> None:
    assembly = Assembly[str](4)
    with pytest.raises(ValueError, match="5 rows after 0 of 4"):
        assembly.add("x", 5)


def test_the_same_rid_from_another_request_starts_anew() -> None:
    ledger: Ledger[str] = Ledger()
    first, second = Req("e3-a", [1, 2, 3]), Req("e3-a", [4, 5])
    ledger.open("e3-a", first).assembly.add("old", 2)
    assert ledger.find("e3-a", second) is None
    ledger.drop("e3-a")
    assert list(ledger.open("e3-a", second).prompt) == [4, 5]


def test_a_request_that_ended_is_not_begun_again() -> None:
    ledger: Ledger[str] = Ledger()
    first = Req("e3-a", [1])
    ledger.end("e3-a", ledger.open("e3-a", first).owner)
    assert ledger.has_ended("e3-a", first)
    assert not ledger.has_ended("e3-a", Req("e3-a", [1]))


def test_a_request_that_nothing_holds_any_more_is_forgotten() -> None:
    ledger: Ledger[str] = Ledger()
    lost, kept, aborted = Req("e3-l", [1, 2]), Req("e3-k", [1, 2]), Req("e3-x", [1, 2])
    for request in (lost, kept, aborted):
        ledger.open(request.rid, request).assembly.add(request.rid, 1)
    aborted.aborted = True
    assert ledger.forget_lost([kept, aborted]) == ["e3-l", "e3-x"]
    assert ledger.find("e3-k", kept) is not None
    assert ledger.find("e3-l", lost) is None
    del kept
    gc.collect()
    assert ledger.forget_lost([]) == ["e3-k"]
    assert len(ledger) == 0


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_finished_request_has_each_position_once_and_its_own_ids(data: st.DataObject) -> None:
    """A scheduler at random: prompts are cut into random chunks and mixed into random batches with decode rows and
    requests of others; requests are retracted and aborted in the middle; what is finished must be whole and right."""
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    # ids repeat from request to request, so that right lengths alone do not make a right dump
    requests = [
        Req(f"{'e3' if n % 4 != 3 else 'xx'}-{n}", [(n * 7 + i) % 11 for i in range(k)]) for n, k in enumerate(lengths)
    ]
    ledger: Ledger[list[tuple[str, int, int]]] = Ledger()
    dumped: dict[str, list[tuple[str, int, int]]] = {}
    waiting = list(requests)
    decoding: list[Req] = []
    for _ in range(400):
        if not waiting:
            break
        chosen = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique_by=id))
        batch: list[tuple[Req, int, int]] = []
        for request in chosen:
            # after a retraction generated ids are prefilled again, behind the prompt
            todo = len(request.origin_input_ids) + data.draw(st.integers(0, 2)) - request.computed
            batch.append((request, request.computed, data.draw(st.integers(1, max(1, todo)))))
        batch += [(request, len(request.origin_input_ids) + 3, 1) for request in decoding]
        entries = [Entry(r.rid, len(r.origin_input_ids), prefix, extend) for r, prefix, extend in batch]
        ours = [r.rid.startswith("e3-") for r, _, _ in batch]
        rows = [
            (r.rid, position, (r.origin_input_ids + [99] * 9)[position])
            for r, p, e in batch
            for position in range(p, p + e)
        ]
        ledger.forget_lost([*(r for r, _, _ in batch), *waiting])
        for piece in cut(entries, ours):
            owner = batch[piece.index][0]
            if ledger.has_ended(owner.rid, owner):
                continue
            request = ledger.find(owner.rid, owner) or ledger.open(owner.rid, owner)
            skip, count = request.assembly.fresh(piece.position, piece.rows)
            if count < 1:
                continue
            first = piece.first + skip
            request.assembly.add(rows[first : first + count], count)
            if request.assembly.complete:
                assert owner.rid not in dumped
                dumped[owner.rid] = [row for part in request.assembly.pieces for row in part]
                ledger.end(owner.rid, request.owner)
        for request, _, extend in batch[: len(chosen)]:
            request.computed += extend
            fate = data.draw(st.sampled_from(["go on"] * 6 + ["retract", "abort"]))
            if fate == "retract":
                request.computed = 0
            elif fate == "abort":
                request.aborted = True
                waiting.remove(request)
            elif request.computed >= len(request.origin_input_ids):
                waiting.remove(request)
                decoding.append(request)
    for request in requests:
        whole = [(request.rid, position, token) for position, token in enumerate(request.origin_input_ids)]
        if request.rid in dumped:
            assert dumped[request.rid] == whole
        else:
            assert request.aborted or request.rid.startswith("xx-") or request in waiting
    ledger.forget_lost(waiting)
    assert len(ledger) <= len(waiting)
