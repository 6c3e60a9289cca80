"""Pictures of the screen, held. Look at them after a change: `pytest tests/ui --snapshot-update` writes them anew.

In dark every panel zoomed and every dialog at three sizes; in light, in blue and orange and without colour a few that show
every kind of thing: bars, good and bad, a dialog, a log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eagle3_console.settings import Settings
from tests.ui.scenes import SCENES, ScriptedController, console

SIZES = [(80, 24), (120, 35), (200, 60)]
DIALOGS = {
    "restart": ("extracting", ["R"]),
    "start": ("empty", ["s"]),
    "stop": ("extracting", ["x"]),
    "stop-extraction": ("extracting", ["x", "x"]),
    "radix": ("radix", ["e"]),
    "verify": ("finished", ["v"]),
    "help": ("extracting", ["question_mark"]),
    "palette": ("extracting", ["ctrl+p"]),
}
"""Name -> the scene, and the keys that open it."""


def named(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def when_still(controller: ScriptedController, *keys: str) -> Callable[[Pilot[None]], Any]:
    """Everything played and painted, the plot (drawn twice a second at most) with its last points."""

    async def run(pilot: Pilot[None]) -> None:
        await controller.played.wait()
        await pilot.pause(0.6)
        for panel in pilot.app.screen.query(".panel"):
            panel.refresh()
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        for typed in pilot.app.screen.query(Input):
            typed.cursor_blink = False
        await pilot.pause()

    return run


@pytest.mark.parametrize("size", SIZES, ids=named)
@pytest.mark.parametrize("scene", sorted(SCENES.keys() - {"radix"}))
def test_screen(snap_compare: Callable[..., bool], scene: str, size: tuple[int, int]) -> None:
    app, controller = console(scene)
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller))


@pytest.mark.parametrize("size", SIZES, ids=named)
@pytest.mark.parametrize("panel", [1, 2, 3, 4, 5])
def test_panel_alone(snap_compare: Callable[..., bool], panel: int, size: tuple[int, int]) -> None:
    app, controller = console("trouble" if panel == 5 else "extracting")
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller, str(panel), "z"))


@pytest.mark.parametrize("size", SIZES, ids=named)
@pytest.mark.parametrize("dialog", sorted(DIALOGS))
def test_dialog(snap_compare: Callable[..., bool], dialog: str, size: tuple[int, int]) -> None:
    scene, keys = DIALOGS[dialog]
    app, controller = console(scene)
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller, *keys))


@pytest.mark.parametrize("size", [(60, 20), (40, 12), (80, 16), (120, 24)], ids=named)
def test_smaller(snap_compare: Callable[..., bool], size: tuple[int, int]) -> None:
    app, controller = console("trouble")
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller))


WAYS: dict[str, tuple[str, list[str], tuple[int, int]]] = {
    "failed": ("failed", [], (80, 24)),
    "extracting": ("extracting", [], (120, 35)),
    "alerts": ("trouble", ["a"], (80, 24)),
    "restart": ("extracting", ["R"], (80, 24)),
}
"""What a theme is judged by."""


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("theme", ["eagle-light", "eagle-blue-orange"])
def test_theme(snap_compare: Callable[..., bool], theme: str, way: str) -> None:
    scene, keys, size = WAYS[way]
    app, controller = console(scene, settings=Settings(theme=theme))
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller, *keys))


@pytest.mark.parametrize("way", sorted(WAYS))
def test_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    scene, keys, size = WAYS[way]
    app, controller = console(scene)
    assert snap_compare(app, terminal_size=size, run_before=when_still(controller, *keys))


def test_without_utf8(snap_compare: Callable[..., bool]) -> None:
    app, controller = console("extracting", ascii_signs=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=when_still(controller))
