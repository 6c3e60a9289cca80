"""The screen on a recording: time goes on, stands still and is jumped in, and nothing is done to any box."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eagle3_console.keys import KEYS
from eagle3_console.recording import demonstration
from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from eagle3_console.ui.replay import NO_BOX, REPLAY_KEYS, ReplayApp
from eagle3_console.ui.widgets.help import HelpScreen
from tests.recording.scripts import session, write

SECONDS = 300


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recording") / "session.ndjson", session(SECONDS))


def replay(path: Path, **options: Any) -> tuple[ReplayApp, Clock]:
    clock = Clock()
    return ReplayApp(Player(Recording(path)), name=str(path), monotonic=clock, ascii_signs=False, **options), clock


async def after(pilot: Pilot[None], clock: Clock, seconds: float) -> float:
    """Where the recording is that many seconds later."""
    app = pilot.app
    assert isinstance(app, ReplayApp)
    clock.now += seconds
    app._frame()
    await pilot.pause()
    return app.player.position


def line(app: ReplayApp) -> str:
    return app.time_line.render().plain


def beginning(path: Path, folder: Path) -> Path:
    """As it is when its console was killed."""
    cut = folder / "cut"
    cut.write_bytes(path.read_bytes()[:200_000])
    return cut


async def test_time_goes_on_stands_still_and_is_moved_in(path: Path) -> None:
    app, clock = replay(path)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        assert await after(pilot, clock, 20) == 20
        assert app.state == app.player.state
        assert app.state.snapshot is not None
        assert "playing    1x  00:20 / 04:59" in line(app)
        await pilot.press("space")
        assert await after(pilot, clock, 50) == 20
        assert "paused" in line(app)
        await pilot.press("right", "right", "left", "ctrl+right", "shift+right", "shift+left")
        assert app.player.position == 90
        await pilot.press("space", "greater_than_sign", "greater_than_sign", "less_than_sign", "greater_than_sign")
        assert app.speed == 5
        assert await after(pilot, clock, 10) == 140
        await pilot.press("home")
        assert app.player.position == 0
        assert app.state.snapshot is None
        await pilot.press("end")
        assert "ended" in line(app)
        assert app.state.snapshot is not None
        assert app.state.snapshot.extract is not None
        assert app.state.snapshot.extract.stored > 9_900
        await pilot.press("space")
        assert app.player.position == 0
        assert await after(pilot, clock, 1) == 5


async def test_a_jump_and_playing_there_show_the_same_log(path: Path) -> None:
    app, clock = replay(path, speed=10.0)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        await after(pilot, clock, 5)
        played = app.log_panel.text()
        await pilot.press("end", "home")
        assert app.log_panel.text() != played
        app.go_to(50)
        assert app.log_panel.text() == played
        assert played.count("Prefill batch") > 90


async def test_very_fast_is_jumping(path: Path) -> None:
    app, clock = replay(path, speed=1000.0)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        assert await after(pilot, clock, 0.2) == pytest.approx(200)
        assert app.state.snapshot is not None


async def test_acts_are_dimmed_and_change_nothing(path: Path) -> None:
    app, _ = replay(path, at=100.0)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        assert app.state.connection.live
        acts = {key.act for key in KEYS if key.act}
        assert {(key.act, reason) for key, reason in app.impossible()} == {(act, NO_BOX) for act in acts}
        await pilot.press(*(key.keys for key in KEYS if key.act))
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert app.state == app.player.state
        assert "read-only" in app.dashboard.query_one("#header").render().plain  # type: ignore[union-attr]


async def test_typing_and_reading_do_not_move_time(path: Path) -> None:
    app, _ = replay(path, at=100.0)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        await pilot.press("slash", "a", "space", "b", "left", "home")
        assert app.focused is not None
        assert isinstance(app.focused, Input)
        assert app.focused.value == "a b"
        assert app.player.position == 100
        assert not app.paused
        await pilot.press("escape", "question_mark", "right", "space", "end")
        assert isinstance(app.screen, HelpScreen)
        assert app.player.position == 100
        assert not app.paused


async def test_a_click_on_the_time_line_goes_there(path: Path) -> None:
    app, _ = replay(path)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        bar = line(app).index("·")
        start, room = app.time_line._bar
        assert bar >= start
        await pilot.click(app.time_line, offset=(start + room // 2, 0))
        await pilot.pause()
        assert app.player.position == pytest.approx(SECONDS / 2, abs=SECONDS / room)


async def test_a_cut_recording_says_so_and_plays(path: Path, tmp_path: Path) -> None:
    app, clock = replay(beginning(path, tmp_path))
    async with app.run_test(size=(160, 35)) as pilot:
        await pilot.pause()
        assert "breaks off at" in line(app)
        assert await after(pilot, clock, 1000) == app.player.recording.seconds > 60
        assert "ended" in line(app)


async def test_it_is_named_as_what_it_is() -> None:
    app, _ = replay(demonstration.PATH)
    async with app.run_test(size=(160, 35)) as pilot:
        await pilot.pause()
        assert "SGLang 0.5.17 on one H200" in line(app)
        assert [note.message for note in app._notifications] == [app.player.recording.header.note]


async def test_leaving_says_how_to_go_on(path: Path) -> None:
    app, _ = replay(path, at=83.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert (
            app.farewell()
            == f"Left the recording at 01:23 of 04:59. Go on with: eagle3-console replay {path} --at 01:23"
        )
        await pilot.press("q")


def test_no_key_is_used_twice() -> None:
    """Those of the time line come before the others: only home and end, which g and G stand for too."""
    ours = {name for key in REPLAY_KEYS for name in key.keys.split(",")}
    theirs = {name for key in KEYS for name in key.keys.split(",")}
    assert ours & theirs == {"home", "end"}


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_replay_screen(snap_compare: Callable[..., bool], path: Path, size: tuple[int, int]) -> None:
    app, _ = replay(path, at=123.0)

    async def when_still(pilot: Pilot[None]) -> None:
        await pilot.pause(0.6)
        await pilot.press("space")
        for panel in pilot.app.screen.query(".panel"):
            panel.refresh()
        await pilot.pause(0.2)

    assert snap_compare(app, terminal_size=size, run_before=when_still)
