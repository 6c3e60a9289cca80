"""Alerts: raised for the right cause, once, with something to do about it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_console.alerts import REARM_AFTER, Sample, conditions, fresh, pressure
from eagle3_console.events import Alert
from eagle3_remote.protocol import ExtractState, ExtractStatus, Mount, Phase, ServerLog, ServerStatus
from tests.ui.scenes import FAILED, FINISHED, LOADING, NOW, READY, RUNNING, gauges, markers, snapshot


def causes(server: ServerStatus = READY, extract: ExtractStatus | None = None, **more: object) -> dict[str, Alert]:
    found = conditions(snapshot(server, extract, box=more.pop("box", None)), NOW, **more)  # type: ignore[arg-type]
    return {alert.cause.split(":")[0]: alert for alert in found}


def with_log(**changes: object) -> ServerStatus:
    return dataclasses.replace(READY, log=dataclasses.replace(READY.log, **changes))  # type: ignore[arg-type]


def test_a_good_run_raises_nothing() -> None:
    assert causes(READY, RUNNING) == {}
    assert causes(LOADING) == {}


def test_an_output_disk_that_will_not_hold_the_run_is_told_at_once() -> None:
    alert = causes(READY, RUNNING, box=gauges(output_free=500_000_000_000))["output-too-small"]
    assert alert.level == "error"
    assert "122 GB (113 GiB) too little, full in 7 m 22 s" in alert.text
    assert "stored stays" in alert.cure


def test_a_disk_level_alone_is_judged_without_a_run() -> None:
    assert causes(READY, None, box=gauges(output_free=180_000_000_000))["output-low"].level == "warning"
    assert causes(READY, None, box=gauges(output_free=40_000_000_000))["output-almost-full"].level == "error"


def test_a_run_of_unknown_size_is_judged_by_time_to_full() -> None:
    unknown = dataclasses.replace(RUNNING, bytes_total=0)
    assert "output-filling" in causes(READY, unknown, box=gauges(output_free=1_000_000_000_000))
    assert "output-filling" not in causes(READY, unknown, box=gauges(output_free=3_000_000_000_000))


def test_the_dump_directory_is_judged_by_level_and_by_slope() -> None:
    assert causes(box=gauges(dump_free=90_000_000_000))["dump-low"].level == "warning"
    assert causes(box=gauges(dump_free=20_000_000_000))["dump-almost-full"].level == "error"
    half = gauges(dump_free=252_000_000_000)
    rising = [Sample(NOW - 30 + t, 10.0, 1e9, 0.2 + t / 100) for t in range(0, 31, 2)]
    assert "full in" in causes(box=half, history=rising)["dump-filling"].text
    assert "dump-filling" not in causes(
        box=half, history=[dataclasses.replace(s, dump_used_fraction=0.5) for s in rising]
    )


def test_inodes_are_counted_against_the_samples_to_come() -> None:
    box = gauges()
    box = dataclasses.replace(box, mounts=(dataclasses.replace(box.mounts[0], inodes_free=5_000), *box.mounts[1:]))
    assert "6,267 files more" in causes(READY, RUNNING, box=box)["output-inodes"].text
    assert causes(READY, None, box=box) == {}


def test_a_failed_server_names_cause_and_cure() -> None:
    alert = causes(FAILED)["server-failed"]
    assert "cuda_oom" in alert.text
    assert "out of memory" in alert.text
    assert "--mem-fraction-static" in alert.cure


def test_a_server_gone_under_an_extraction_is_an_error() -> None:
    gone = dataclasses.replace(READY, phase=Phase.EXITED)
    assert causes(gone, RUNNING)["server-exited"].level == "error"
    assert causes(gone, FINISHED).keys() == {"extract-bad"}


def test_an_unresponsive_server_says_so() -> None:
    stuck = dataclasses.replace(READY, phase=Phase.UNRESPONSIVE, sentence="no answer from :30000 for 60 s")
    assert causes(stuck)["server-unresponsive"].text == "no answer from :30000 for 60 s"


def test_a_stuck_server_says_what_was_seen() -> None:
    sentence = "The server is stuck in loading-weights: nothing new for 12 min."
    alert = causes(dataclasses.replace(LOADING, phase=Phase.STUCK, sentence=sentence))["server-stuck"]
    assert (alert.level, alert.text) == ("error", sentence)
    assert "server stack" in alert.cure


def test_the_radix_cache_and_what_it_costs() -> None:
    on = dataclasses.replace(READY, spec=dataclasses.replace(READY.spec, radix_cache=True))  # type: ignore[type-var]
    assert causes(on)["radix-on"].level == "warning"
    alert = causes(with_log(cached_tokens=12))["cached-tokens"]
    assert alert.level == "error"
    assert "R restarts" in alert.cure


def test_the_patch_must_be_there_on_every_rank() -> None:
    assert "on 7 of 8 ranks" in causes(with_log(markers=markers(7)))["patch-missing"].text
    assert "on 0 of 8 ranks" in causes(with_log(markers=()))["patch-missing"].text
    refused = causes(with_log(refused="sglang 0.4.1 is too old"))
    assert "0.4.1" in refused["patch-refused"].text


def test_ranks_are_not_missed_while_the_server_still_starts() -> None:
    assert causes(dataclasses.replace(LOADING, log=ServerLog())) == {}


@pytest.mark.parametrize(
    ("changes", "cause", "level"),
    [
        ({"state": ExtractState.FAILED, "sentence": "disk full"}, "extract-failed", "error"),
        ({"state": ExtractState.PAUSED, "sentence": "dump directory full"}, "extract-paused", "warning"),
        ({"state": ExtractState.FINISHED}, "extract-bad", "warning"),
        ({"state": ExtractState.FINISHED, "rejected": 0}, "extract-done", "info"),
        ({"failed": 3}, "samples-failed", "warning"),
    ],
)
def test_extraction(changes: dict[str, object], cause: str, level: str) -> None:
    found = causes(READY, dataclasses.replace(RUNNING, **changes))  # type: ignore[arg-type]
    assert found[cause].level == level


def test_a_cause_is_told_once_and_again_only_after_it_was_gone_for_long() -> None:
    alert = Alert(0.0, "error", "output-low", "disk")
    told, known = fresh({}, [alert], NOW)
    assert told == (alert,)
    told, known = fresh(known, [alert], NOW + 1)
    assert told == ()
    told, known = fresh(known, [], NOW + 2)
    told, known = fresh(known, [alert], NOW + REARM_AFTER)
    assert told == ()
    told, known = fresh(known, [alert], NOW + 3 * REARM_AFTER)
    assert told == (alert,)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 100)), max_size=80))
def test_a_flapping_cause_is_never_told_twice_within_the_pause(beats: list[tuple[bool, float]]) -> None:
    alert, known, at, seen = Alert(0.0, "warning", "dump-low", "dump"), {}, NOW, None
    for present, gap in beats:
        at += gap
        told, known = fresh(known, [alert] if present else [], at)
        if told:
            assert seen is None or at - seen >= REARM_AFTER
        if present:
            seen = at


@given(st.integers(0, 10**13), st.integers(0, 10**13), st.integers(0, 10**13), st.integers(0, 10**13))
def test_every_disk_gets_a_verdict(total: int, free: int, stored: int, goal: int) -> None:
    mount = Mount("output", "/data", total, min(free, total))
    extract = dataclasses.replace(RUNNING, bytes_stored=stored, bytes_total=goal)
    judged = pressure(mount, extract)
    assert 0.0 <= judged.used_fraction <= 1.0
    assert (judged.verdict == "too small") == (goal - stored > mount.free)
