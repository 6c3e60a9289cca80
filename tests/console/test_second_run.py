"""A second run on one screen: what the first one left on the checklist is not taken for its own."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from eagle3_console.controller import SessionController
from eagle3_console.errors import AgentSilent, BoxRefused, Stopped
from eagle3_console.events import Event, StepChanged
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import Flow
from eagle3_console.keys import SHOWN
from eagle3_console.plan import Plan
from eagle3_console.session import Deployment, Session
from eagle3_console.state import ConsoleState, Step, earlier, initial, reduce
from eagle3_remote.protocol import ExtractState, JobState, Verified
from tests.ui.scenes import FINISHED, NOW, READY, RUNNING, arrived, job

PLAN = Plan(model="/m", data="/d", out="/o")
ENDED = job("extract", JobState.FINISHED, rc=0)


def unconnected() -> Session:
    return Session(cast(Any, None), "local")


def drained(controller: SessionController, state: ConsoleState) -> ConsoleState:
    """What the screen makes of everything that was told since."""
    while not controller._queue.empty():
        state = reduce(state, controller._queue.get_nowait())
    return state


async def works(*_: Any, **__: Any) -> Any:
    return Deployment("/box/release", "0" * 64, 0)  # of all that is asked, only a deploy is looked at


async def refuses(*_: Any, **__: Any) -> None:
    raise AgentSilent("no answer")


def fails_at(controller: SessionController, stage: str, patch: pytest.MonkeyPatch) -> None:
    flow = controller._flow
    whose: dict[str, tuple[object, str]] = {"doctor": (flow, "doctor"), "deploy": (flow.session, "deploy")}
    whose |= {"output": (flow, "check_output"), "server": (flow, "ensure_server")}
    for name, (owner, method) in whose.items():
        patch.setattr(owner, method, refuses if name == stage else works)
    patch.setattr(flow.watcher, "greet", works)
    patch.setattr(flow, "change", refuses)  # the probe, and what comes after it


async def test_its_steps_are_to_be_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = SessionController(unconnected(), PLAN)
    monkeypatch.setattr(controller._flow, "run", refuses)
    with pytest.raises(AgentSilent):
        await controller.run_all()
    told = [controller._queue.get_nowait() for _ in range(3)]
    assert told == [StepChanged(name, "todo") for name in ("probe", "extract", "verify")]


@pytest.mark.parametrize("stage", ["doctor", "deploy", "output", "server", "probe"])
@pytest.mark.parametrize("verified", [None, Verified(NOW, True, 9_997)])
async def test_where_it_goes_wrong_first_the_earlier_one_is_shown_again(
    monkeypatch: pytest.MonkeyPatch, stage: str, verified: Verified | None
) -> None:
    keys = {**SHOWN, "verify": "f5"}
    controller = SessionController(unconnected(), PLAN, keys=keys)
    seen = arrived(READY, dataclasses.replace(FINISHED, verified=verified))
    for event in (seen, StepChanged("probe", "done", "13 of 13 rows")):
        controller._take(event)
    before = drained(controller, initial(NOW, "box", keys))
    fails_at(controller, stage, monkeypatch)
    with pytest.raises(AgentSilent):
        await controller.run_all()
    for _ in range(20):
        controller._take(seen)
    after = drained(controller, before)
    assert not earlier(after)
    kept = ("extract", "verify") if stage == "probe" else ("probe", "extract", "verify")
    assert [step for step in after.steps if step.name in kept] == [step for step in before.steps if step.name in kept]
    assert not [step for step in after.steps if step.status == "running"]


async def test_what_the_box_made_meanwhile_is_not_taken_for_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = SessionController(unconnected(), PLAN)
    good = dataclasses.replace(FINISHED, verified=Verified(NOW, True, 9_997))
    for event in (arrived(READY, good), StepChanged("probe", "done")):
        controller._take(event)
    assert READY.job is not None
    assert FINISHED.job is not None
    server = dataclasses.replace(READY, job=dataclasses.replace(READY.job, id="server-2"))
    stopped = dataclasses.replace(
        FINISHED, job=dataclasses.replace(FINISHED.job, id="extract-2"), state=ExtractState.STOPPED
    )

    async def run() -> None:
        controller._take(arrived(server, stopped))
        raise AgentSilent("no answer")

    monkeypatch.setattr(controller._flow, "run", run)
    with pytest.raises(AgentSilent):
        await controller.run_all()
    after = drained(controller, initial(NOW, "box"))
    assert [step.status for step in after.steps if step.name in ("probe", "extract", "verify")] == ["todo"] * 3


@pytest.mark.parametrize("error", [BoxRefused("the disk is full"), AgentSilent("no answer"), OSError("broken")])
@pytest.mark.parametrize(
    ("step", "begin"),
    [
        ("deploy", lambda flow: flow.deploy()),
        ("server", lambda flow: flow.server_start("python3")),
        ("probe", lambda flow: flow.probe()),
        ("extract", lambda flow: flow.extract_start()),
        ("verify", lambda flow: flow.verify("/o")),
    ],
)
async def test_a_step_that_cannot_begin_is_not_under_way_for_ever(
    monkeypatch: pytest.MonkeyPatch, step: str, begin: Callable[[Flow], Awaitable[object]], error: Exception
) -> None:
    events: list[Event] = []
    flow = Flow(unconnected(), PLAN, events.append)

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(flow.session, "deploy", fail)
    monkeypatch.setattr(flow.watcher, "call", fail)  # what every call to the box goes through
    with pytest.raises(type(error)):
        await begin(flow)
    assert events[-1] == StepChanged(step, "failed", str(error))


@pytest.mark.parametrize("whole_run", [True, False], ids=["whole run", "demo"])
@pytest.mark.parametrize("mine", [True, False], ids=["stopped here", "stopped elsewhere"])
async def test_a_run_that_was_stopped_on_request_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, whole_run: bool, mine: bool
) -> None:
    keys = {**SHOWN, "extract.start": "f6"}
    controller = SessionController(unconnected(), PLAN, keys=keys, whole_run=None if whole_run else lambda _: None)
    stopped = dataclasses.replace(RUNNING, state=ExtractState.STOPPED, sentence="Stopped on request.", job=ENDED)
    sentence = f"stopped {'by you' if mine else 'on request'}, f6 goes on"

    async def run(*_: Any, **__: Any) -> Any:
        controller._take(arrived(READY, dataclasses.replace(RUNNING, job=ENDED), time.time()))
        if mine:
            await controller.extract_stop()
        controller._take(arrived(READY, stopped, time.time()))
        return controller._flow._extract_ended(stopped)

    monkeypatch.setattr(controller._flow, "change", works)
    monkeypatch.setattr(controller._flow, "run", run)
    controller._take(arrived(READY))
    if whole_run:
        with pytest.raises(Stopped, match=sentence):
            await controller.run_all()
    else:
        await controller._whole_run(lambda _: None)
    state = drained(controller, initial(NOW, "box", keys))
    assert next(step for step in state.steps if step.name == "extract") == Step("extract", "todo", "stopped at 37 %")
    levels = {alert.level for alert in state.alerts}
    assert levels <= {"info"} if mine else "error" not in levels
    if not whole_run:
        assert state.alerts[-1].text == f"the whole run: {sentence}"


async def test_a_stopped_extraction_ends_the_command_as_before() -> None:
    told: list[Event] = []
    flow = Flow(unconnected(), PLAN, told.append)
    with pytest.raises(BoxRefused, match="why") as ended:
        flow._extract_ended(dataclasses.replace(RUNNING, state=ExtractState.STOPPED, sentence="why", job=ENDED))
    assert ended.value.exit_code == ExitCode.BOX_NOT_FIT
    assert told == [StepChanged("extract", "failed", "why")]
