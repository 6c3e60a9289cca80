"""Alerts: raised for the right cause, once, with something to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_console.alerts import REARM_AFTER, Sample, conditions, fresh, pressure
from eagle3_console.events import Alert, Connection, ConnectionChanged, Event, SnapshotArrived
from eagle3_console.keys import SHOWN
from eagle3_console.state import initial, reduce
from eagle3_remote.protocol import (
    ExtractState,
    ExtractStatus,
    Gauges,
    JobState,
    Mount,
    Phase,
    Restart,
    ServerLog,
    ServerStatus,
)
from tests.ui.scenes import FAILED, FINISHED, LIVE, LOADING, NOW, READY, RUNNING, arrived, gauges, markers, snapshot


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


def test_a_server_gone_under_an_extraction_is_an_error_unless_somebody_stopped_it() -> None:
    assert READY.job is not None
    for state, rc, level in (
        (JobState.FINISHED, 0, "error"),
        (JobState.REBOOTED, None, "error"),
        (JobState.KILLED, None, "info"),
        (JobState.FINISHED, -15, "info"),
    ):
        job = dataclasses.replace(READY.job, state=state, rc=rc)
        gone = dataclasses.replace(READY, phase=Phase.EXITED, job=job)
        assert causes(gone, RUNNING)["server-exited"].level == level
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
        ({"state": ExtractState.STOPPED}, "extract-stopped", "warning"),
        ({"failed": 4}, "samples-bad", "warning"),
    ],
)
def test_extraction(changes: dict[str, object], cause: str, level: str) -> None:
    found = causes(READY, dataclasses.replace(RUNNING, **changes))  # type: ignore[arg-type]
    assert found[cause].level == level


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (10_000, "nothing was to do: all 10,000 samples are stored in /data/hidden/kimi"),
        (9_998, "nothing was to do: 9,998 of 10,000 stored, and nothing is left in /data/hidden/kimi"),
    ],
)
def test_a_start_on_a_whole_dataset_says_that_nothing_was_to_do_and_how_to_make_another(stored: int, text: str) -> None:
    idle = dataclasses.replace(FINISHED, stored=stored, rejected=10_000 - stored, failed=0, nothing_to_do=True)
    (alert,) = conditions(snapshot(READY, idle), NOW, keys={**SHOWN, "setup": "f7"})
    assert (alert.level, alert.text) == ("info", text)
    assert alert.cure == "f7 chooses another output, for another dataset"


def test_a_few_bad_samples_wake_nobody() -> None:
    assert causes(READY, dataclasses.replace(RUNNING, failed=3)) == {}
    text = causes(READY, dataclasses.replace(RUNNING, rejected=30, failed=9))["samples-bad"].text
    assert text == "39 samples are bad (1 % of those done): 30 rejected, 9 failed"


def test_every_ended_extraction_says_what_to_do_next() -> None:
    stopped = causes(READY, dataclasses.replace(RUNNING, state=ExtractState.STOPPED))["extract-stopped"]
    assert (stopped.text, stopped.cure) == ("extraction stopped: 3,731 of 10,000 stored", "e resumes it")


def test_each_restart_by_the_watchdog_is_told_with_its_reason() -> None:
    restarts = (Restart(NOW - 60, "cuda_oom", "CUDA out of memory"), Restart(NOW, "", "signal 9"))
    once = dataclasses.replace(READY, restarts=restarts[:1])
    twice = dataclasses.replace(READY, restarts=restarts)
    found = [conditions(snapshot(server), NOW) for server in (once, once, twice)]
    told, known = fresh({}, found[0], NOW)
    assert [(alert.level, alert.text) for alert in told] == [
        ("warning", "the server crashed and the box started it again (restart 1): CUDA out of memory")
    ]
    told, known = fresh(known, found[1], NOW + 1)
    assert told == ()
    told, known = fresh(known, found[2], NOW + 2)
    assert [alert.text for alert in told] == ["the server crashed and the box started it again (restart 2): signal 9"]


def points(count: int, **fields: Callable[[int], object]) -> list[Sample]:
    """A history of `count` points up to now, one every 2 s; each field a function of the point's number."""
    plain = Sample(0.0, 11.0, 1e9, 0.1, running=True)
    return [
        dataclasses.replace(plain, t=NOW - 2 * (count - 1 - n), **{name: value(n) for name, value in fields.items()})  # type: ignore[arg-type]
        for n in range(count)
    ]


def test_an_extraction_is_slow_below_half_of_its_own_median_for_two_minutes() -> None:
    half = points(300, bytes_per_s=lambda n: 1e9 if n < 230 else 0.49e9)
    alert = causes(READY, RUNNING, history=half)["extract-slow"]
    assert alert.level == "warning"
    assert "median is 1.00 GB/s" in alert.text
    assert "3 Box" in alert.cure


@pytest.mark.parametrize(
    ("why", "history", "changes"),
    [
        ("not half", points(300, bytes_per_s=lambda n: 1e9 if n < 230 else 0.51e9), {}),
        ("not for long", points(300, bytes_per_s=lambda n: 1e9 if n < 250 else 1e8), {}),
        ("shorter samples", points(300, samples_per_s=lambda n: 20.0 if n < 230 else 2.0), {}),
        ("nothing is usual yet", points(100, bytes_per_s=lambda n: 1e9 if n < 30 else 1e8), {}),
        ("it was paused", points(300, bytes_per_s=lambda n: 1e9 if n < 230 else 1e8, running=lambda n: n != 270), {}),
        ("the last ones are out", points(300, bytes_per_s=lambda n: 1e9 if n < 230 else 1e8),
         {"stored": 9_960, "rejected": 2, "in_flight": 38}),
    ],
)  # fmt: skip
def test_an_extraction_is_not_slow_when(why: str, history: list[Sample], changes: dict[str, object]) -> None:
    assert "extract-slow" not in causes(READY, dataclasses.replace(RUNNING, **changes), history=history), why  # type: ignore[arg-type]


def test_a_rising_share_of_bad_samples_is_an_error() -> None:
    rising = points(300, done=lambda n: 10 * n, bad=lambda n: n // 100 if n < 200 else 2 + (n - 200))
    alert = causes(READY, RUNNING, history=rising)["bad-share"]
    assert alert.level == "error"
    assert "7 % of the last 1,500, 0.067 % before" in alert.text
    steady = points(300, done=lambda n: 10 * n, bad=lambda n: n)
    assert "bad-share" not in causes(READY, RUNNING, history=steady)


def test_somebody_else_who_fills_the_output_disk_is_seen_in_time() -> None:
    box = gauges(output_free=1_700_000_000_000)
    ours = points(160, output_free=lambda n: 2_000_000_000_000 - 2 * n * 10**9)
    assert causes(READY, RUNNING, box=box, history=ours) == {}
    more = points(160, output_free=lambda n: 2_000_000_000_000 - 4 * n * 10**9)
    alert = causes(READY, RUNNING, box=box, history=more)["output-filling"]
    assert (alert.level, alert.text) == (
        "warning",
        "output disk /data filling: 1.70 TB (1.55 TiB) free, full in 14 m 10 s; something else writes 1.00 GB/s there, "
        "and the extraction needs 1 h 30 m",
    )


def test_the_box_folders_disk_is_judged_by_time_to_full() -> None:
    box = gauges()
    fast = points(160, home_free=lambda n: 120 * 10**9 - n * 10**8)
    assert "full in 20 m 00 s" in causes(READY, None, box=box, history=fast)["home-filling"].text
    slow = points(160, home_free=lambda n: 120 * 10**9 - n * 10**7)
    assert causes(READY, None, box=box, history=slow) == {}


@pytest.mark.parametrize("label", ["output", "dump", "home"])
def test_inodes_are_judged_by_level_and_by_time_to_none(label: str) -> None:
    box = gauges()

    def left(count: int) -> Gauges:
        mounts = [dataclasses.replace(one, inodes_free=count) if one.label == label else one for one in box.mounts]
        return dataclasses.replace(box, mounts=tuple(mounts))

    assert causes(box=left(999))[f"{label}-inodes"].level == "error"
    fast = points(160, **{f"{label}_inodes": lambda n: 200_000 - 1_000 * n})
    alert = causes(box=left(41_000), history=fast)[f"{label}-inodes-filling"]
    assert (alert.level, "none in 1 m 22 s" in alert.text) == ("warning", True)
    assert causes(box=left(41_000), history=points(160, **{f"{label}_inodes": lambda n: 41_000})) == {}


def lost(word: str, at: float) -> ConnectionChanged:
    return ConnectionChanged(Connection(word, "trying again in 30 s", at))


def told(*events: Event) -> list[str]:
    state = initial(NOW, "box")
    for event in events:
        state = reduce(state, event)
    return [alert.cause.split(":")[0] for alert in state.alerts]


def test_a_link_that_is_lost_for_a_minute_is_told_once() -> None:
    short = [LIVE, lost("lost", NOW), lost("waiting", NOW + 59)]
    assert told(*short) == []
    assert told(*short, LIVE, lost("lost", NOW + 70), lost("waiting", NOW + 120)) == []
    assert told(*short, lost("connecting", NOW + 61), lost("waiting", NOW + 90)) == ["link-lost"]
    assert told(lost("refused", NOW)) == ["link-refused"]


def test_what_was_told_before_a_break_is_not_told_again_after_it() -> None:
    full = SnapshotArrived(snapshot(box=gauges(output_free=40_000_000_000)), NOW)
    back = SnapshotArrived(full.snapshot, NOW + 8 * 3600)
    link = [lost("waiting", NOW + 30 * beat) for beat in range(1, 960)]
    assert told(LIVE, full, *link, LIVE, back) == ["output-almost-full", "link-lost"]
    assert told(LIVE, full, arrived(at=NOW + 1), *link, LIVE, arrived(at=NOW + 8 * 3600), back) == [
        "output-almost-full",
        "link-lost",
    ]


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


def test_when_a_disk_will_be_full_is_told_only_where_the_run_fills_it_or_where_it_is_soon() -> None:
    mount = Mount("output", "/data", 100 * 10**9, 78 * 10**9)
    tiny = dataclasses.replace(RUNNING, bytes_stored=0, bytes_total=45 * 10**6, bytes_per_s=150_000.0)
    assert pressure(mount, tiny).full_in is None
    assert pressure(mount, dataclasses.replace(tiny, bytes_per_s=5_000_000.0)).full_in is None, (
        "in 4 h, of a run of seconds"
    )
    assert pressure(mount, dataclasses.replace(tiny, bytes_total=40 * 10**9)).full_in == 520_000.0
    assert pressure(mount, dataclasses.replace(tiny, bytes_per_s=10**9)).full_in == 78.0


@pytest.mark.parametrize(("held", "level"), [("request", "info"), ("failures", "warning"), ("", "warning")])
def test_a_pause_of_ones_own_is_no_warning(held: str, level: str) -> None:
    paused = dataclasses.replace(RUNNING, state=ExtractState.PAUSED, sentence="why", held=held)
    alert = causes(READY, paused)["extract-paused"]
    assert alert.level == level
    assert ("p on the screen, or `eagle3-console extract resume`" in alert.cure) is bool(held)
