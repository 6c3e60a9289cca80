"""From the moment a restart or a stop is confirmed the checklist says so, though nothing of it shows on the server yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from eagle3_console.controller import SessionController
from eagle3_console.errors import AgentSilent
from eagle3_console.plan import Plan
from eagle3_console.state import Step
from eagle3_remote.protocol import Phase
from tests.console.test_second_run import unconnected
from tests.ui.scenes import READY, RUNNING, arrived

ACTS: dict[str, Callable[[SessionController], Awaitable[None]]] = {
    "server_restart": lambda controller: controller.server_restart(radix_cache=False),
    "server_stop": lambda controller: controller.server_stop(),
}


def server_step(controller: SessionController) -> Step:
    return next(step for step in controller._steps if step.name == "server")


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("moved", [False, True])
async def test_it_is_said_at_once_and_not_left_where_it_comes_to_nothing(
    act: str, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`moved`: the box showed something before it went wrong; that stays."""
    controller = SessionController(unconnected(), Plan(model="/m"))
    controller._take(arrived(READY, RUNNING))
    before = server_step(controller)
    goes_on = asyncio.Event()

    async def asked(**_: object) -> None:
        await goes_on.wait()
        raise AgentSilent("no answer")

    monkeypatch.setattr(controller._flow, act, asked)
    call = asyncio.ensure_future(ACTS[act](controller))
    await asyncio.sleep(0)
    for _ in range(3):  # and what the box shows of the server that still serves does not wipe it out
        said = server_step(controller)
        assert said.status == "running"
        assert said.detail
        controller._take(arrived(READY, RUNNING))
    if moved:
        controller._take(arrived(READY.__class__(Phase.EXITED, "ended"), RUNNING))
    seen = server_step(controller)
    goes_on.set()
    with pytest.raises(AgentSilent):
        await call
    assert server_step(controller) == (seen if moved else before)
