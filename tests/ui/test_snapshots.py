"""Pictures of the screen, held. Look at them after a change: `pytest tests/ui --snapshot-update` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.ui.scenes import SCENES, ScriptedController, console

SIZES = [(80, 24), (160, 45)]


def when_still(controller: ScriptedController, *keys: str) -> Callable[[Pilot[None]], Any]:
    """Everything played and painted, the plot (drawn twice a second at most) with its last points."""

    async def run(pilot: Pilot[None]) -> None:
        await controller.played.wait()
        await pilot.pause(0.6)
        for panel in pilot.app.screen.query(".panel"):
            panel.refresh()
        await pilot.press(*keys)
        await pilot.pause(0.2)

    return run


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", sorted(SCENES))
def test_screen(snap_compare: Callable[..., bool], scene: str, size: tuple[int, int]) -> None:
    app, controller = console(scene)
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller))


def test_restart_dialog(snap_compare: Callable[..., bool]) -> None:
    app, controller = console("extracting")
    assert snap_compare(app, terminal_size=(80, 24), run_before=when_still(controller, "R"))


def test_stop_dialog(snap_compare: Callable[..., bool]) -> None:
    app, controller = console("extracting")
    assert snap_compare(app, terminal_size=(80, 24), run_before=when_still(controller, "x"))


def test_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, controller = console("failed")
    assert snap_compare(app, terminal_size=(80, 24), run_before=when_still(controller))


def test_without_utf8(snap_compare: Callable[..., bool]) -> None:
    app, controller = console("extracting", ascii_signs=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=when_still(controller))
