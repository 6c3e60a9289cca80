"""What a dialog asks stays in sight at every size, however long the text above it is, and the text can be read to its end."""

from __future__ import annotations

import dataclasses

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Button, Input

from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.widgets.text_modal import DialogText
from eagle3_remote.protocol import Problem, VerifyReport
from tests.ui.scenes import LIVE, VERIFIED, arrived, console
from tests.ui.test_keys import DONE, EXTRACTING, IDLE, RADIX, SERVING, appears, settled, text_of

LINE = "\n".join(f"env VARIABLE_{number}=1 --flag-{number} value" for number in range(60)) + "\nthe last of it"
PROBLEMS = tuple(Problem(f"hs_{number}.safetensors", "size", "is 512 bytes") for number in range(60))
FAULTY = dataclasses.replace(
    VERIFIED, ok=False, problems=(*PROBLEMS, Problem("the last of it", "size", "")), problem_count=61
)
SIZES = [(80, 24), (60, 18), (120, 35)]
DIALOGS = {
    "start": (IDLE, ["s"]),
    "restart": (SERVING, ["R"]),
    "restart with the name of the host": (EXTRACTING, ["R"]),
    "stop": (SERVING, ["x"]),
    "stop which": (EXTRACTING, ["x"]),
    "stop with the name of the host": (EXTRACTING, ["x", "x"]),
    "radix": ([LIVE, arrived(RADIX)], ["e"]),
    "verify": (DONE, ["v"]),
}
LONG = ["start", "restart", "restart with the name of the host", "verify"]
"""Those whose text comes from the box."""


async def opened(pilot: Pilot[None], dialog: str) -> None:
    app = pilot.app
    assert isinstance(app, ConsoleApp)

    async def line() -> str:
        return LINE

    async def verify() -> VerifyReport:
        return FAULTY

    app.controller.server_line = line  # type: ignore[method-assign]
    app.controller.verify = verify  # type: ignore[method-assign]
    await settled(pilot)
    for key in DIALOGS[dialog][1]:
        await pilot.press(key)
        await settled(pilot)
    await settled(pilot)


def asked(app: ConsoleApp) -> list[Widget]:
    return [*app.screen.query(Button).results(Widget), *app.screen.query(Input).results(Widget)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", DIALOGS)
async def test_buttons_and_what_is_typed_into_stay_in_sight(dialog: str, size: tuple[int, int]) -> None:
    app, _ = console(DIALOGS[dialog][0])  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await opened(pilot, dialog)
        frame = app.screen.query_one("#dialog").content_region
        assert app.screen.region.contains_region(frame)
        text = app.screen.query_one(DialogText).region
        assert text.height > 0
        for widget in asked(app):
            assert widget.region.area > 0
            assert frame.contains_region(widget.region), widget
            assert not text.overlaps(widget.region), widget


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", LONG)
async def test_what_is_too_long_says_so_and_scrolls_to_its_end(dialog: str, size: tuple[int, int]) -> None:
    app, _ = console(DIALOGS[dialog][0])  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await opened(pilot, dialog)
        await appears(pilot, "more below (pgdn)")
        assert "the last of it" not in text_of(app)
        above = text_of(app)
        await pilot.press("down")
        await settled(pilot)
        assert text_of(app) != above
        await pilot.press("up")
        await settled(pilot)
        assert text_of(app) == above
        for _ in LINE.splitlines():
            if "more above" in text_of(app):
                break
            await pilot.press("pagedown")
        await appears(pilot, "the last of it")
        assert "more above (pgup)" in text_of(app)
        if not app.screen.query(Input):  # home and end are the line's there
            await pilot.press("home")
            await settled(pilot)
            assert text_of(app) == above
            await pilot.press("end")
            await appears(pilot, "the last of it")


async def test_what_fits_says_nothing_of_more() -> None:
    app, _ = console(SERVING)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        assert "more" not in text_of(app)


@pytest.mark.parametrize("key", ["enter", "escape"])
async def test_cancelling_says_that_nothing_was_done(key: str) -> None:
    app, controller = console(SERVING)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("R")
        await settled(pilot)
        await pilot.press(key)
        await appears(pilot, "nothing was done")
        assert controller.calls == []
