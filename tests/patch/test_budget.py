"""The bound on memory: waits only while waiting can help."""

from __future__ import annotations

import threading

from eagle3_patch.budget import Budget


def test_more_than_all_of_it_is_refused_at_once() -> None:
    assert not Budget(100).take(101, patience=3600)


def test_held_by_unfinished_requests_alone_nothing_is_waited_for() -> None:
    budget = Budget(100)
    assert budget.take(80, patience=3600)
    assert not budget.take(40, patience=3600)
    budget.drop(80)
    assert budget.take(100, patience=3600)


def test_what_a_writer_gives_back_lets_a_waiting_forward_go_on() -> None:
    budget = Budget(100)
    assert budget.take(80, patience=0)
    budget.move(80)
    got: list[bool] = []
    waiting = threading.Thread(target=lambda: got.append(budget.take(40, patience=60)))
    waiting.start()
    budget.written(80)
    waiting.join(30)
    assert got == [True]
    assert budget.taken == 40


def test_patience_ends() -> None:
    budget = Budget(100)
    assert budget.take(80, patience=0)
    budget.move(80)
    assert not budget.take(40, patience=0.01)
    assert budget.taken == 80
