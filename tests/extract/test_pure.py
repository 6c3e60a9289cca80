"""Rates, budgets, failures in a row, space: the parts without I/O."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_remote.extract import space
from eagle3_remote.extract.errors import EXIT_INCOMPLETE, EXIT_SERVER, ExtractionError, SampleFailure
from eagle3_remote.extract.facts import Model, Server, longest_prompt, served_dtype
from eagle3_remote.extract.meter import Meter
from eagle3_remote.extract.policy import Budget, Failures, Pace, Tuning, tuning_of
from eagle3_remote.extract.scan import Norms
from eagle3_remote.extract.space import Room, Shape

NAN = SampleFailure("non-finite", "NaN")
MODEL = Model("", "", 61, 7168, 129280, 8192, "bfloat16", "")


def server(context: int, pool: int, limit: int = 0, dtype: str = "auto") -> Server:
    return Server("", "", context, pool, limit, 8192, dtype, False, "")


def test_rates_are_of_the_last_half_minute() -> None:
    meter = Meter(100.0, 500, 50_000, 0)  # resumed: what was stored before is no rate of this run
    meter.note(104.0, 504, 50_400, 8)
    assert meter.rates(1000).eta is None
    meter.note(110.0, 510, 51_000, 20)
    assert (meter.rates(1000).samples, meter.rates(1000).tokens, meter.rates(1000).eta) == (1.0, 100.0, 10.0)
    for second in range(111, 200):
        meter.note(float(second), 510, 51_000, 20)
    stalled = meter.rates(1000)
    assert (stalled.samples, stalled.eta) == (0.0, None)
    assert stalled.mean_samples == 10 / 99
    assert meter.rates(0).eta == 0.0


def test_a_pause_is_in_no_rate_and_has_no_end() -> None:
    meter = Meter(0.0, 0, 0, 0)
    for second in range(1, 21):
        meter.note(float(second), 3 * second, 300 * second, 0)
    for second in range(21, 300):
        meter.note(float(second), 60, 6_000, 0, still=True)
        assert (meter.rates(900).samples, meter.rates(900).tokens, meter.rates(900).eta) == (0.0, 0.0, None)
    meter.note(300.0, 63, 6_300, 0)
    assert (meter.rates(900).samples, meter.rates(900).mean_samples, meter.rates(900).eta) == (3.0, 3.0, 3.0)
    assert meter.rates(0).eta == 0.0


def test_three_different_samples_in_a_row_end_a_run() -> None:
    failures = Failures(attempts=3, streak=3)
    assert not failures.failed(1, NAN)
    assert not failures.failed(1, NAN)
    assert failures.failed(1, NAN), "the third try is the last"
    assert failures.verdict(1, NAN, 10) is None, "one sample is no row of failures"
    failures.failed(2, NAN)
    failures.failed(3, NAN)
    verdict = failures.verdict(3, NAN, 10)
    assert verdict is not None
    assert verdict.exit_code == EXIT_INCOMPLETE
    assert "3 samples in a row failed in one way (non-finite)" in str(verdict)
    assert failures.verdict(3, NAN, 2) is None, "only the failing ones are left: they are tried to the end"


def test_a_good_sample_or_another_kind_ends_the_row() -> None:
    failures = Failures(attempts=3, streak=3)
    late = SampleFailure("timeout", "no answer")
    failures.failed(1, NAN)
    failures.failed(2, NAN)
    failures.stored()
    failures.failed(3, NAN)
    assert failures.verdict(3, NAN, 10) is None
    for line in (4, 5, 6):
        failures.failed(line, late)
    verdict = failures.verdict(6, late, 10)
    assert verdict is not None
    assert verdict.exit_code == EXIT_SERVER
    assert failures.failed(7, SampleFailure("refused", "400")), "what the server refuses is not tried again"


def test_a_sample_above_the_budget_goes_alone() -> None:
    budget = Budget(100)
    assert budget.fits(500, 5000)
    budget.take(60, 600)
    assert budget.fits(40, 400)
    assert not budget.fits(41, 10)
    budget.tokens = 0  # answered, not yet stored
    assert budget.fits(500, 1)


def test_a_dump_directory_full_of_our_own_slows_sending_and_good_samples_speed_it_up_again() -> None:
    budget = Budget(100)
    budget.take(10, 1000)
    budget.halve_bytes()
    assert not budget.fits(1, 1)
    budget.bytes = 300
    assert budget.fits(1, 200)
    assert not budget.fits(1, 201)
    budget.grow_bytes(50)
    assert budget.fits(1, 250)


def test_the_dump_directory_slows_then_stops_sending_and_starts_again_with_a_margin() -> None:
    def fits(free: int, written: int = 0, owed: int = 0, was_full: bool = False) -> bool:
        return space.dump_fits(Room(free, 6400, None), written, owed, 100, was_full)

    assert fits(6400)
    assert fits(2300, written=4100, owed=4380), "70 % of what is ours and free"
    assert not fits(2300, written=4100, owed=4381)
    assert not fits(2300, written=4100, owed=4380, was_full=True)
    assert fits(3300, written=3100, owed=3100, was_full=True), "50 % once it was full"
    assert not fits(600, owed=380), "somebody else fills it: less of ours"
    assert not fits(200), "nothing of ours is there, and it does not fit"


def test_a_time_out_follows_what_the_server_did_lately() -> None:
    pace = Pace()
    pace.sent(0.0)
    assert pace.timeout(0.0, 8000, least=120) == 600, "the first batches compile kernels"
    pace.answered(10.0, 1000)
    assert pace.timeout(10.0, 1000, least=120) == 120
    assert pace.timeout(10.0, 8000, least=120) == 4 * 80
    for second in range(11, 111):
        pace.answered(float(second), 1000)
    assert pace.timeout(111.0, 80_000, least=120) == pytest.approx(4 * 80, rel=0.05), "of the last minute"


def test_a_sample_the_server_dies_of_twice_is_known_by_being_alone() -> None:
    failures = Failures(attempts=3, streak=3)
    assert not failures.lost(1, alone=False)
    assert not failures.lost(2, alone=False)
    assert not failures.lost(2, alone=False), "twice in flight, but never alone"
    assert failures.lost(1, alone=True)
    assert not failures.lost(3, alone=True), "once may be chance"
    assert failures.failed(1, SampleFailure("kills-server", "dead")), "never sent again"


def test_bytes_of_a_token() -> None:
    assert Shape(4, 7168, 2).token_bytes == 57_344 + 8
    assert abs(Shape(4, 7168, 2).dataset_bytes(17_300_000, 10_000) / 992.1e9 - 1) < 0.001


def test_space_is_judged_by_what_is_still_missing() -> None:
    def judge(free: int, inodes: int | None = None) -> tuple[str | None, str | None]:
        return space.judge(1_000_000_000, 10, Room(free, 4_000_000_000, inodes), "/out")

    refused, _ = judge(999_000_000)
    assert refused is not None
    assert refused.startswith("/out has 999.00 MB free, the rest of the dataset takes 1.00 GB: 1.00 MB are missing.")
    assert judge(1_100_000_000)[1] is not None
    assert judge(1_300_000_000) == (None, None)
    assert "9 free inodes, 10 files" in (judge(1_300_000_000, 9)[0] or "")


@given(
    st.lists(st.integers(1, 9000), min_size=1, max_size=30),
    st.integers(1, 5_000_000_000_000),
    st.integers(-3, 3),
)
def test_what_is_accepted_ends_without_a_pause(lengths: list[int], total: int, more: int) -> None:
    """Sent one after another, the last one into what is left: whatever the size of the file system."""
    shape = Shape(4, 1024, 2)
    margin = Room(0, total, None).margin
    need = shape.dataset_bytes(sum(lengths), len(lengths))
    free = need + margin + more
    refused, _ = space.judge(need, 0, Room(free, total, None), "/out", margin)
    assert (refused is None) == (more >= 0)
    if refused is not None:
        assert margin == 0 or f"{space.gigabytes(margin)} stay free for others" in refused
        return
    for tokens in lengths:
        assert space.output_full(Room(free, total, None), 0, shape.file_bytes(tokens), "/out") is None
        free -= shape.dataset_bytes(tokens, 1)


def test_the_longest_prompt_and_why() -> None:
    assert longest_prompt(server(32768, 30192)) == (30186, "its KV pool holds 30192 tokens")
    assert longest_prompt(server(4096, 30192)) == (4090, "its context length is 4096")
    assert longest_prompt(server(4096, 30192, 4000)) == (3999, "its own limit max_req_input_len")
    assert longest_prompt(server(4096, 30192, 4090))[0] == 4089


def test_the_dtype_that_is_served() -> None:
    assert served_dtype(server(1, 1), MODEL) == "bfloat16"
    assert served_dtype(server(1, 1, dtype="half"), MODEL) == "float16"
    assert served_dtype(server(1, 1), Model("", "", 1, 1, 1, 0, "float32", "")) == "float16"
    assert served_dtype(server(1, 1, dtype="float32"), MODEL) == "float32"


def test_other_patience_is_read_from_the_environment() -> None:
    assert tuning_of("") == Tuning()
    assert tuning_of("min_timeout=600, threads=16") == Tuning(min_timeout=600.0, threads=16)
    for wrong in ("patience=3", "threads=many", "threads"):
        with pytest.raises(ExtractionError, match="known are min_timeout, dump_timeout"):
            tuning_of(wrong)


def test_rows_far_from_the_run_s_own_size_are_not_plausible() -> None:
    norms = Norms()
    for step in range(Norms.NEEDED - 1):
        norms.add((1.0 + step / 100, 50.0))
    assert norms.judge((1000.0, 50.0)) is None, "too little is known"
    norms.add((1.1, 50.0))
    assert norms.judge((4.0, 20.0)) is None
    assert norms.judge((1.0, 5.0)) == (
        "layer 1 has rows of size 5, those of the other samples 50 (median root mean square)"
    )
    assert norms.judge(()) is None, "short samples have no sizes"
    wide = Norms()
    for step in range(Norms.NEEDED):
        wide.add((4.0 ** (step % 4),))
    assert wide.judge((4.0**5,)) is None, "a model whose samples differ is no fault"
