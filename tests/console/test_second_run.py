"""A second run on one screen: what the first one left on the checklist is not taken for its own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eagle3_console.controller import SessionController
from eagle3_console.errors import BoxRefused
from eagle3_console.events import Event, StepChanged
from eagle3_console.flow import Flow
from eagle3_console.plan import Plan
from eagle3_console.session import Session

PLAN = Plan(model="/m", data="/d", out="/o")


def unconnected() -> Session:
    return Session(cast(Any, None), "local")


async def test_its_steps_are_to_be_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = SessionController(unconnected(), PLAN)

    async def run() -> None:
        raise BoxRefused("not here")

    monkeypatch.setattr(controller._flow, "run", run)
    with pytest.raises(BoxRefused):
        await controller.run_all()
    told = [controller._queue.get_nowait() for _ in range(controller._queue.qsize())]
    assert told == [StepChanged(name, "todo") for name in ("probe", "extract", "verify")]


async def test_an_extraction_that_is_refused_does_not_go_on_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    flow = Flow(unconnected(), PLAN, events.append)

    async def change(*_: Any, **__: Any) -> None:
        raise BoxRefused("the disk is full")

    monkeypatch.setattr(flow, "change", change)
    with pytest.raises(BoxRefused):
        await flow.extract_start()
    assert events[-1] == StepChanged("extract", "failed", "the disk is full")
