"""What is typed behind a key that opens something lands in what it opens, however fast; and answers no question unread."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from textual.screen import ModalScreen
from textual.widgets import Input

from eagle3_console.events import LogArrived
from eagle3_console.keys import KEYS
from eagle3_console.plan import Plan
from eagle3_console.settings import Settings
from eagle3_console.ui.setup.screen import SetupScreen
from eagle3_console.ui.widgets.dialog import AskDialog
from tests.ui.scenes import console, job
from tests.ui.setup_scenes import setup
from tests.ui.test_keys import EXTRACTING, IDLE, RADIX_ON, SERVING, settled
from tests.ui.test_setup import until
from tests.ui.test_setup_order import burst, values

LETTERS = "".join(key.keys for key in KEYS if len(key.keys) == 1)
"""Every letter and digit that is a key."""
LOG = LogArrived(job("server").id, b"one\nwarn two\nerror three\nwarn four\n", 0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a key that acts by mistake would write its files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(here: Path) -> list[str]:
    """The lines of all files there."""
    return [line for path in here.iterdir() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
@pytest.mark.parametrize("key", ["/", "&", "z/", "5/", "5z&", "2/"])
async def test_what_is_typed_behind_a_search_key_is_the_search(key: str, size: tuple[int, int], here: Path) -> None:
    app, controller = console([*SERVING, LOG])
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        burst(pilot, *key, *LETTERS, "backspace", "left", "home", "|")
        await until(pilot, lambda: app.screen.query_one(Input).value == "|" + LETTERS[:-1])
        await settled(pilot)
        assert app.focused is app.screen.query_one(Input)
        assert not isinstance(app.screen, ModalScreen)
        assert controller.calls == []
        assert saved(here) == []


@pytest.mark.parametrize("leave", ["enter", "escape"])
async def test_what_leaves_the_search_takes_what_was_typed_before_it_and_nothing_after(leave: str, here: Path) -> None:
    app, controller = console([*SERVING, LOG])
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        burst(pilot, *"&warn|error", leave, "w")
        await until(pilot, lambda: bool(saved(here)))
        lines = ["warn two", "error three", "warn four"]
        assert saved(here) == (lines if leave == "enter" else ["one", *lines])
        assert not app.log_panel.search_open
        assert controller.calls == []
        burst(pilot, *"/wa", "enter", "escape", *"/two", "enter")
        await until(pilot, lambda: app.log_panel.view.matches() != [])


@pytest.mark.parametrize("key", ["o", "f9"])
async def test_what_is_typed_behind_the_set_up_s_key_stands_in_its_fields(key: str) -> None:
    own = Settings(keys={"setup": "f9"}) if key == "f9" else Settings()
    plan = dataclasses.replace(Plan(), out="/data/hidden")
    app, _ = setup(IDLE, plan=plan, settings=own)
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        burst(pilot, key, *"/m/Kimi wx", "enter", *"/data/sq", "tab", "x")
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        await until(pilot, lambda: values(pilot, "input-model", "input-data") == ["/m/Kimi wx", "/data/sq"])
        await until(pilot, lambda: values(pilot, "input-out") == ["/data/hiddenx"])


ASKING = [(IDLE, "s"), (SERVING, "R"), (SERVING, "x"), (EXTRACTING, "x"), (EXTRACTING, "R"), (RADIX_ON, "e")]


@pytest.mark.parametrize("behind", [[], ["tab"], ["tab", "tab"], ["right"]])
@pytest.mark.parametrize(("scene", "key"), ASKING)
async def test_no_key_answers_a_question_before_it_was_drawn(scene: list[object], key: str, behind: list[str]) -> None:
    app, controller = console(scene)  # type: ignore[arg-type]
    async with app.run_test() as pilot:
        await settled(pilot)
        burst(pilot, key, *behind, key, "enter", *LETTERS, "enter")
        await until(pilot, lambda: isinstance(app.screen, AskDialog))
        await settled(pilot)
        await settled(pilot)
        assert isinstance(app.screen, AskDialog)
        assert controller.calls == []


async def test_a_name_typed_ahead_stands_there_and_enter_has_to_be_pressed_by_who_reads() -> None:
    app, controller = console(EXTRACTING)
    async with app.run_test() as pilot:
        await settled(pilot)
        burst(pilot, "R", *"gpu-box", "enter")
        await until(pilot, lambda: bool(app.screen.query(Input)) and app.screen.query_one(Input).value == "gpu-box")
        await settled(pilot)
        assert controller.calls == []
        await pilot.press("enter")
        await settled(pilot)
        assert controller.calls == ["server_restart radix_cache=False"]


async def test_esc_behind_a_key_that_asks_takes_it_back() -> None:
    app, controller = console(SERVING)
    async with app.run_test() as pilot:
        await settled(pilot)
        burst(pilot, "x", "escape")
        await settled(pilot)
        await until(pilot, lambda: app.screen is app.dashboard)
        assert controller.calls == []


async def test_what_is_typed_behind_the_palette_s_key_is_looked_for() -> None:
    app, controller = console(SERVING)
    async with app.run_test() as pilot:
        await settled(pilot)
        burst(pilot, "ctrl+p", *"wqx")
        await until(pilot, lambda: bool(app.screen.query(Input)) and app.screen.query_one(Input).value == "wqx")
        assert controller.calls == []
