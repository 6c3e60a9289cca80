"""The reducer: what a person sees follows from events alone."""

from __future__ import annotations

import dataclasses
import itertools
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_console.events import (
    Alert,
    AlertRaised,
    Connection,
    ConnectionChanged,
    Event,
    LogArrived,
    Narration,
    Planned,
    SnapshotArrived,
    Status,
    StepChanged,
    WorkSeen,
)
from eagle3_console.flow import Flow
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_console.state import HISTORY, STEP_NAMES, ConsoleState, earlier, initial, reduce
from eagle3_console.watch import Watcher
from eagle3_remote.protocol import (
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    Phase,
    ServerStatus,
    Verified,
    VerifyReport,
    WorkState,
)
from tests.ui.scenes import (
    EXPORT,
    FAILED,
    FINISHED,
    LIVE,
    LOADING,
    NOW,
    READY,
    RUNNING,
    TARGET,
    VERIFIED,
    arrived,
    job,
    snapshot,
)

OTHER = dataclasses.replace(RUNNING, job=dataclasses.replace(job("extract"), id="extract-other"))


def after(*events: Event) -> ConsoleState:
    state = initial(NOW, "box")
    for event in events:
        state = reduce(state, event)
    return state


def steps(state: ConsoleState) -> dict[str, str]:
    return {step.name: step.status for step in state.steps}


def test_a_console_that_attaches_late_ticks_what_was_done_before() -> None:
    state = after(LIVE, arrived(READY, RUNNING))
    assert steps(state) == {
        "deploy": "done",
        "server": "done",
        "probe": "todo",
        "extract": "running",
        "verify": "todo",
    }
    assert next(step for step in state.steps if step.name == "extract").detail == "37 %"


def test_the_checklist_follows_the_box() -> None:
    assert steps(after(arrived(LOADING)))["server"] == "running"
    assert steps(after(arrived(LOADING), arrived(FAILED)))["server"] == "failed"
    assert steps(after(arrived(READY, RUNNING), arrived(READY, FINISHED)))["extract"] == "done"


def test_a_refused_start_stays_on_the_checklist_until_the_box_changes() -> None:
    idle = ServerStatus(Phase.NOT_RUNNING, "no server")
    state = after(arrived(idle), StepChanged("server", "failed", "port 30000 is in use"), arrived(idle))
    assert steps(state)["server"] == "failed"
    assert steps(reduce(state, arrived(LOADING)))["server"] == "running"


def test_an_old_extraction_does_not_overwrite_a_refused_new_one() -> None:
    state = after(arrived(READY, FINISHED), StepChanged("extract", "failed", "no such file"), arrived(READY, FINISHED))
    assert steps(state)["extract"] == "failed"


def test_a_new_server_has_to_be_probed_again() -> None:
    state = after(arrived(READY), StepChanged("probe", "done", "13 of 13 rows"))
    assert steps(reduce(state, arrived(READY)))["probe"] == "done"
    other = dataclasses.replace(READY, job=dataclasses.replace(job("server"), id="server-other"))
    assert steps(reduce(state, arrived(other)))["probe"] == "todo"


def test_a_lost_link_keeps_what_was_known() -> None:
    state = after(LIVE, arrived(READY, RUNNING))
    lost = reduce(state, ConnectionChanged(Connection("lost", "trying again in 2 s", NOW)))
    assert lost == dataclasses.replace(state, connection=lost.connection, lost_since=NOW)
    assert lost.as_of == NOW
    assert not lost.connection.live


def test_log_bytes_change_nothing() -> None:
    state = after(LIVE, arrived(READY))
    assert reduce(state, LogArrived("server-1", b"line\n", 0)) is state


def test_narration_without_a_time_gets_the_time_of_the_last_snapshot() -> None:
    state = after(arrived(READY, at=NOW), Narration("probing"))
    assert state.notes == (Narration("probing", NOW),)


def test_the_plan_is_kept() -> None:
    assert after(Planned(("10,000 samples",))).plan == ("10,000 samples",)


def test_an_alert_of_the_session_is_told_once_a_cause() -> None:
    alert = Alert(NOW, "error", "deploy-1", "no room")
    assert after(AlertRaised(alert), AlertRaised(alert)).alerts == (alert,)


def test_history_starts_anew_with_another_extraction() -> None:
    state = after(*(arrived(READY, RUNNING, NOW + second) for second in range(0, 20, 2)))
    assert len(state.history) == 10
    elsewhere = dataclasses.replace(OTHER, spec=ExtractSpec("/data/tokenized_data.jsonl", "/data/hidden/other"))
    assert len(reduce(state, arrived(READY, elsewhere, NOW + 20)).history) == 1


@pytest.mark.parametrize("ended", [ExtractState.FINISHED, ExtractState.STOPPED])
def test_history_goes_on_when_an_extraction_is_started_again(ended: ExtractState) -> None:
    """Another job on the same output."""
    state = after(*(arrived(READY, RUNNING, NOW + second) for second in range(0, 20, 2)))
    state = reduce(state, arrived(READY, dataclasses.replace(FINISHED, state=ended), NOW + 20))
    state = reduce(state, arrived(READY, dataclasses.replace(OTHER, state=ExtractState.PLANNING), NOW + 22))
    assert len(state.history) == 12
    assert [sample.running for sample in state.history[-2:]] == [False, False]


@pytest.mark.parametrize(
    ("extract", "event", "true"),
    [
        (FINISHED, (), False),
        (FINISHED, (StepChanged("extract", "todo"),), True),
        (FINISHED, (StepChanged("extract", "running", "starting"),), True),
        (FINISHED, (StepChanged("extract", "failed", "refused"),), False),
        (dataclasses.replace(FINISHED, state=ExtractState.STOPPED), (), False),
        (
            dataclasses.replace(FINISHED, state=ExtractState.STOPPED),
            (StepChanged("extract", "running", "starting"),),
            True,
        ),
        (RUNNING, (StepChanged("extract", "todo"),), False),
        (None, (), False),
    ],
)
def test_whether_the_newest_extraction_is_one_of_before(
    extract: ExtractStatus | None, event: tuple[Event, ...], true: bool
) -> None:
    state = after(arrived(READY, extract), *event, arrived(READY, extract, NOW + 2))
    assert earlier(state) is true
    if extract is not None:
        assert not earlier(reduce(state, arrived(READY, dataclasses.replace(OTHER, state=ExtractState.PLANNING))))


@pytest.mark.parametrize("state", [one for one in ExtractState if one is not ExtractState.PLANNING])
@pytest.mark.parametrize("known", ["todo", "running", "failed"])
def test_an_extraction_that_is_first_seen_when_it_is_over_is_not_still_starting(
    known: Status, state: ExtractState
) -> None:
    """Nothing to do on a whole dataset, or a link that broke meanwhile: what came before may be in the same state."""
    begun = after(
        arrived(READY, dataclasses.replace(RUNNING, state=state)),
        StepChanged("extract", known, "starting"),
        StepChanged("verify", known),
    )
    attached_late = after(arrived(READY, dataclasses.replace(OTHER, state=state)))
    shown = reduce(begun, arrived(READY, dataclasses.replace(OTHER, state=state), NOW + 2))
    assert not earlier(shown)
    assert shown.steps == attached_late.steps


def test_history_survives_a_box_clock_that_is_set_back() -> None:
    state = after(
        arrived(READY, RUNNING, NOW), arrived(READY, RUNNING, NOW - 3600), arrived(READY, RUNNING, NOW - 3590)
    )
    assert [sample.t for sample in state.history] == [NOW - 3600, NOW - 3590]


@given(st.lists(st.sampled_from([0.1, 0.5, 2.0, 60.0]), min_size=1, max_size=60))
def test_history_is_in_order_and_no_denser_than_asked(gaps: list[float]) -> None:
    state, clock = initial(NOW, "box"), NOW
    for gap in gaps:
        clock += gap
        state = reduce(state, SnapshotArrived(snapshot(READY, RUNNING, clock), clock))
    times = [sample.t for sample in state.history]
    assert all(later - earlier >= 2.0 for earlier, later in itertools.pairwise(times))
    assert times
    assert len(times) <= HISTORY


SERVERS = st.sampled_from([READY, LOADING, FAILED, ServerStatus(Phase.NOT_RUNNING, "none")])
EXTRACTS = st.sampled_from(
    [None, RUNNING, FINISHED, *(dataclasses.replace(RUNNING, state=state) for state in ExtractState)]
)
EVENTS = st.one_of(
    st.builds(
        lambda server, extract, back: arrived(server, extract, NOW + back), SERVERS, EXTRACTS, st.integers(0, 900)
    ),
    st.builds(StepChanged, st.sampled_from(STEP_NAMES), st.sampled_from(["todo", "running", "done", "failed"])),
    st.builds(Narration, st.text()),
)


@given(st.lists(EVENTS, max_size=30))
def test_any_order_of_events_keeps_the_checklist_whole(events: list[Event]) -> None:
    state = after(*events)
    assert tuple(step.name for step in state.steps) == STEP_NAMES


def test_work_on_the_disks_is_known_while_it_runs_and_told_once_when_it_ends() -> None:
    state = reduce(initial(NOW, TARGET), WorkSeen((EXPORT,), NOW))
    assert state.work == (EXPORT,)
    failed = dataclasses.replace(EXPORT, state=WorkState.FAILED, sentence="The disk is full.")
    for _ in range(3):
        state = reduce(state, WorkSeen((failed,), NOW + 1))
    assert state.work == ()
    (alert,) = state.alerts
    assert (alert.level, alert.text) == ("error", "export failed: The disk is full.")
    assert alert.cure


def test_a_finished_extraction_says_whether_it_was_verified_and_what_is_next() -> None:
    detail = {step.name: step.detail for step in after(arrived(READY, FINISHED)).steps}
    assert (steps(after(arrived(READY, FINISHED)))["verify"], detail["verify"]) == ("todo", "next: v")
    good = dataclasses.replace(FINISHED, verified=Verified(NOW, True, 9_997))
    bad = dataclasses.replace(FINISHED, verified=Verified(NOW, False, 9_997, 2))
    assert steps(after(arrived(READY, good)))["verify"] == "done"
    assert steps(after(arrived(READY, FINISHED), arrived(READY, bad)))["verify"] == "failed"
    assert RUNNING.job is not None
    another = dataclasses.replace(RUNNING, job=dataclasses.replace(RUNNING.job, id="extract-20261130T120000-0001"))
    assert steps(after(arrived(READY, good), arrived(READY, another)))["verify"] == "todo"


async def test_every_check_leaves_one_event() -> None:
    class Answers:
        async def call(self, *_: object, **__: object) -> VerifyReport:
            return dataclasses.replace(VERIFIED, ok=False, problem_count=1)

    told: list[Event] = []
    flow = Flow(cast(Session, None), Plan(), told.append)
    flow.watcher = cast(Watcher, Answers())
    await flow.verify("/data/hidden/kimi")
    alerts = [event.alert for event in told if isinstance(event, AlertRaised)]
    assert [(alert.level, alert.text) for alert in alerts] == [
        ("error", "verified /data/hidden/kimi: 9,997 samples, 1 fault")
    ]
