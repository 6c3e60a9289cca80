"""Numbers keep their width and name their units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_console import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B (0 B)"),
        (999, "999 B (999 B)"),
        (992_000_000_000, "992 GB (924 GiB)"),
        (999_999_999, "1.00 GB (954 MiB)"),
        (1_500_000_000_000, "1.50 TB (1.36 TiB)"),
    ],
)
def test_sizes_are_told_in_gb_and_in_gib(count: int, text: str) -> None:
    assert units.gb_and_gib(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (float("inf"), "-"),
        (-3, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 m 00 s"),
        (552, "9 m 12 s"),
        (5407, "1 h 30 m"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


@given(st.floats(min_value=0, max_value=90_000))
def test_a_rate_takes_five_cells_whatever_it_is(value: float) -> None:
    assert len(units.rate(value)) == 5


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_hundred_percent_means_all_of_it(part: int, whole: int) -> None:
    part = min(part, whole)
    text = units.percent(part, whole)
    assert len(text) == 5
    assert (text == "100 %") == (part == whole)


def test_n_of_does_not_jump_while_it_counts() -> None:
    assert {len(units.n_of(done, 10_000)) for done in (0, 9, 999, 1_000, 10_000)} == {len("10,000 / 10,000")}


def test_a_clock_time_of_another_day_says_which_day() -> None:
    midnight = 1_800_057_600.0
    assert units.clock_short(midnight - 60, midnight - 120) == "23:59"
    assert units.clock_short(midnight + 60, midnight - 120) == "16 Jan 00:01"
