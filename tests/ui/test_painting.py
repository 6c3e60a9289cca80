"""Only what changed is painted, and what is on the screen is the state all the same."""

from __future__ import annotations

import dataclasses

import pytest
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widget import Widget

from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.plot import REDRAW_EVERY
from eagle3_console.ui.widgets.panel import Lines
from tests.ui.scenes import LIVE, LOADING, NOW, READY, RUNNING, SCENES, arrived, console

ROUND = ["extracting", "loading", "failed", "lost", "finished", "extracting"]


def painted(app: ConsoleApp) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60)])
async def test_after_many_changes_the_screen_is_that_of_a_fresh_console(size: tuple[int, int]) -> None:
    app, _ = console([])
    async with app.run_test(size=size) as pilot:
        for scene in ROUND:
            for event in SCENES[scene]:
                app.take(event)
            await pilot.pause()
        await pilot.pause(REDRAW_EVERY + 0.1)  # plots are drawn anew so often
        app.dashboard.show(app.state, app.wall())
        for widget in app.screen.query(Lines):
            before = [strip.text for strip in widget.render_lines(widget.region.reset_offset)]
            widget.refresh()
            await pilot.pause()
            assert [strip.text for strip in widget.render_lines(widget.region.reset_offset)] == before, widget


class Painted:
    """Counts what `Widget.refresh` was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, int]] = []
        refresh = Widget.refresh

        def counted(widget: Widget, *regions: object, **options: object) -> Widget:
            if isinstance(widget, Lines):
                self.asked.append((widget.id or type(widget).__name__, len(regions)))
            return refresh(widget, *regions, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Widget, "refresh", counted)


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause(0.3)


async def test_what_says_the_same_is_not_painted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = console([LIVE, arrived(READY, RUNNING)])
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        painting = Painted(monkeypatch)
        app.take(arrived(READY, RUNNING))
        assert painting.asked == []
        app.take(arrived(READY, dataclasses.replace(RUNNING, stored=3_732), at=NOW))
        assert {name for name, _ in painting.asked} <= {"panel-2"}
        assert all(0 < lines < 5 for _, lines in painting.asked)


class Opaque(ModalScreen[None]):
    """Nothing shines through."""

    DEFAULT_CSS = "Opaque { background: black; }"


async def test_a_dashboard_that_nobody_sees_is_drawn_when_it_is_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = console([LIVE, arrived(LOADING)])
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        await app.push_screen(Opaque())
        await settled(pilot)
        painting = Painted(monkeypatch)
        app.take(arrived(READY, RUNNING))
        await settled(pilot)
        assert painting.asked == []
        app.pop_screen()
        await settled(pilot)
        assert "3,731 / 10,000" in "\n".join(painted(app))
