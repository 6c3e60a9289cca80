"""How long is waited before the next try, and what the clocks say of a sleep."""

from __future__ import annotations

import itertools
import random

import pytest

from eagle3_console.backoff import CEILING, HELD, Backoff
from eagle3_console.clock import Moment, slept


def test_it_doubles_up_to_the_ceiling_and_begins_anew_after_a_link_that_held() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(2):
        delays = [backoff.next() for _ in range(2000)]
        assert delays[0] == 0
        for delay, base in zip(delays[1:], itertools.chain((1, 2, 4, 8, 16), itertools.repeat(CEILING)), strict=False):
            assert 0.8 * base <= delay <= 1.2 * base
        assert len(set(delays)) > 1900
        backoff.held(HELD)


def test_a_link_that_breaks_at_once_does_not_begin_it_anew() -> None:
    backoff = Backoff()
    for _ in range(4):
        backoff.next()
        backoff.held(HELD / 10)
    assert backoff.next() > 5


@pytest.mark.parametrize(
    ("wall", "monotonic", "yes"),
    [(1, 1, False), (3600, 1, True), (3600, 3600, False), (4, 1, False), (-3600, 1, False), (7 * 3600 + 1, 1, True)],
    ids=["awake", "slept", "busy", "slewed", "set back", "set forward"],
)
def test_a_sleep_is_a_wall_clock_that_ran_ahead(wall: float, monotonic: float, yes: bool) -> None:
    before = Moment(1.8e9, 500.0)
    assert slept(before, Moment(before.wall + wall, before.monotonic + monotonic)) is yes
