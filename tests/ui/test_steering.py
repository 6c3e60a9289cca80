"""On the screen: who steers, keys that wait meanwhile, and taking over on purpose."""

from __future__ import annotations

import dataclasses
import time

import pytest

from eagle3_console.events import Event, SnapshotArrived
from eagle3_console.ui import steering
from eagle3_console.ui.widgets.dialog import AskDialog
from eagle3_remote.protocol import Steering
from tests.ui.scenes import LIVE, NOW, READY, RUNNING, arrived, console
from tests.ui.test_keys import appears, settled, text_of

SINCE = NOW - 1800


def scene(by: Steering | None, *, behind: float = 0.0) -> list[Event]:
    """An extraction on a box whose clock is so many seconds behind."""
    event = arrived(READY, RUNNING)
    snapshot = dataclasses.replace(event.snapshot, steering=by, clock=event.at - behind)
    return [LIVE, SnapshotArrived(snapshot, event.at)]


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60)])
@pytest.mark.parametrize("behind", [0.0, 7 * 3600.0])
async def test_the_header_names_who_steers_by_this_machines_clock(size: tuple[int, int], behind: float) -> None:
    app, _ = console(scene(Steering("alice@mbp", SINCE - behind, mine=False), behind=behind))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        at = time.strftime("%H:%M", time.localtime(SINCE))
        assert f"alice@mbp steers since {at}" in text_of(app).splitlines()[0]


async def test_keys_wait_while_another_steers_and_t_takes_over_after_asking() -> None:
    app, controller = console(scene(Steering("alice@mbp", SINCE, mine=False)))
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        for act in ("deploy", "extract_start", "probe", "stop", "server_restart", "pause"):
            assert "Another console steers this box: alice@mbp" in app.why_not(act), act
        for key in ("d", "e", "t", "x", "R", "s", "p"):
            await pilot.press(key)
        await settled(pilot)
        assert controller.calls == []
        await pilot.press("T")
        await settled(pilot)
        assert isinstance(app.screen, AskDialog)
        await appears(pilot, "Take over (T)")
        await pilot.press("escape")
        await settled(pilot)
        assert controller.calls == []
        await pilot.press("T")
        await settled(pilot)
        await pilot.press("T")
        await settled(pilot)
        assert controller.calls == ["take_over"]


@pytest.mark.parametrize("by", [None, Steering("me@here", SINCE, mine=True)])
async def test_who_steers_itself_sees_nothing_of_it(by: Steering | None) -> None:
    app, controller = console(scene(by))
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        assert "steers" not in text_of(app)
        assert app.why_not("take_over")
        assert not app.why_not("deploy")
        await pilot.press("T")
        await settled(pilot)
        assert not isinstance(app.screen, AskDialog)
        assert controller.calls == []
        assert steering.take_over_losses(app.state, NOW) == ()


async def test_a_readonly_console_takes_nothing_over() -> None:
    app, controller = console(scene(Steering("alice@mbp", SINCE, mine=False)), readonly=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        await pilot.press("T")
        await settled(pilot)
        assert controller.calls == []
