"""Keys that are typed faster than the screen follows: each has its effect where a person has seen it go."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input

from eagle3_console.setup.draft import FIELDS
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.setup.screen import SetupScreen
from eagle3_console.ui.widgets.help import HelpScreen
from eagle3_remote.protocol import ModelLook, PathEntry, PathList
from tests.console.test_setup import MODEL, SEEN
from tests.ui.setup_scenes import CHOSEN, ScriptedBox, SetupScripted, setup
from tests.ui.test_setup import field, named, screen_of, until

ORDER = [*(f"input-{name}" for name in FIELDS), "setup-name"]
"""The fields, as tab goes through them."""
FORWARD = list(itertools.pairwise(ORDER))
EMPTY = ("end", "ctrl+u")


class SlowBox(ScriptedBox):
    """A stand-in that answers nothing about paths before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def complete(self, typed: str, folders_only: bool) -> PathList:
        await self.free.wait()
        return await super().complete(typed, folders_only)

    async def model(self, path: str) -> ModelLook | None:
        await self.free.wait()
        return await super().model(path)


def slow(**options: object) -> tuple[ConsoleApp, SetupScripted]:
    app, controller = setup(**options)  # type: ignore[arg-type]
    controller.setup_box = SlowBox()
    return app, controller


def burst(pilot: Pilot[None], *keys: str) -> None:
    """Hand the application all keys at once, as a terminal does with what was typed ahead; ``paste:`` begins a paste."""
    for key in keys:
        if key.startswith("paste:"):
            pilot.app.post_message(events.Paste(key.removeprefix("paste:")))
        elif len(key) == 1:
            pilot.app.post_message(events.Key(_character_to_key(key), key))
        else:
            pilot.app.post_message(events.Key(key, None))


async def opened(pilot: Pilot[None]) -> SetupScreen:
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    await until(pilot, lambda: app.state.snapshot is not None)
    if not isinstance(app.screen, SetupScreen):
        await pilot.press("o")
    await until(pilot, lambda: isinstance(app.screen, SetupScreen) and app.focused is not None)
    return screen_of(pilot)


def values(pilot: Pilot[None], *names: str) -> list[str]:
    return [screen_of(pilot).query_one(f"#{name}", Input).value for name in names]


@pytest.mark.parametrize("boxes", [setup, slow], ids=["quick", "slow"])
@pytest.mark.parametrize("key", ["tab", "enter", "down"])
async def test_what_is_typed_behind_a_key_that_leads_on_stands_in_the_next_field(
    key: str, boxes: Callable[[], tuple[ConsoleApp, SetupScripted]]
) -> None:
    app, _ = boxes()
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        for first, second in FORWARD:
            screen.query_one(f"#{first}", Input).focus()
            await pilot.pause()
            burst(pilot, *EMPTY, *"ax", "backspace", "left", *"bc", key, *EMPTY, *"de", "home", "f")
            await until(pilot, lambda second=second: values(pilot, second)[0].startswith("f"))  # type: ignore[misc]
            assert values(pilot, first, second) == ["bca", "fde"]
            assert app.focused is screen.query_one(f"#{second}")


@pytest.mark.parametrize("key", ["shift+tab", "up"])
async def test_back_and_forth_and_pasted(key: str) -> None:
    app, _ = slow()
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        for first, second in FORWARD:
            screen.query_one(f"#{second}", Input).focus()
            await pilot.pause()
            burst(pilot, *EMPTY, "paste:two\nlines", key, *EMPTY, "a", "paste:one", "tab", "end", "!", key, "end", "?")
            await until(pilot, lambda first=first: values(pilot, first)[0].endswith("?"))  # type: ignore[misc]
            assert values(pilot, first, second) == ["aone?", "two!"]


async def test_back_from_the_buttons() -> None:
    app, _ = slow()
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        screen.query_one("#save").focus()
        await pilot.pause()
        burst(pilot, "shift+tab", *EMPTY, *"ab", "tab", "tab", "shift+tab", "shift+tab", "end", "c")
        await until(pilot, lambda: values(pilot, "setup-name") == ["abc"])


async def test_all_fields_in_one_burst() -> None:
    app, controller = slow()
    async with app.run_test(size=(120, 60)) as pilot:
        await opened(pilot)
        texts = {"model": "/m/x", "data": "/d.jsonl", "out": "/o", "python": "/py", "boundaries": "1,2,3", "final": "post",
                 "max_seq_len": "512", "samples": "7", "tp": "2", "tokens_in_flight": "4096", "dump_dir": "/dumps",
                 "port": "31000", "server_args": "--a b"}  # fmt: skip
        burst(pilot, *(key for text in texts.values() for key in (*text, "tab")), *"mine", "ctrl+s")
        await until(pilot, lambda: values(pilot, "setup-name") == ["mine"])
        assert dict(screen_of(pilot)._draft.texts) == texts
        assert controller.setup_box.saved == [], "the box has not told yet whether it will do"


@pytest.mark.parametrize("key", ["ctrl+s", "ctrl+r"])
async def test_what_is_saved_has_the_keys_before(key: str) -> None:
    app, controller = setup(plan=CHOSEN)
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: screen.made.ready)
        screen.query_one("#input-samples", Input).focus()
        await pilot.pause()
        burst(pilot, *"123", *["tab"] * 6, *"mine", key)
        await until(pilot, lambda: bool(controller.setup_box.saved))
        ((name, plan, _),) = controller.setup_box.saved
        assert (name, plan.samples) == ("mine", 123)


async def test_a_path_that_is_no_longer_what_the_box_looked_at_is_not_saved() -> None:
    app, controller = setup(plan=CHOSEN)
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: screen.made.ready)
        field(pilot, "out").input.focus()
        await pilot.pause()
        burst(pilot, "end", "2", "ctrl+s", "3")
        await until(pilot, lambda: field(pilot, "out").input.value == "/data/hidden23")
        assert controller.setup_box.saved == []


async def test_what_is_typed_behind_esc_is_the_dashboard_s() -> None:
    app, _ = slow()
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        model = field(pilot, "model").input
        burst(pilot, *"/m", "escape", "?")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert screen not in app.screen_stack
        assert model.value == "/m"


# -- tab and what is right ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("slash", ["", "/"])
async def test_tab_leaves_a_folder_that_is_what_is_asked_for(slash: str, missing: int) -> None:
    model = dataclasses.replace(MODEL, missing=("a",) * missing, missing_count=missing)
    app, controller = setup(seen=dataclasses.replace(SEEN, model=model))
    controller.setup_box.names = (PathEntry("Kimi-K2.5", True), PathEntry("Kimi-K2.5-more", True))
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        await pilot.press(*"/m/Kimi-K2.5", *slash)
        await until(pilot, lambda: "weights" in {one.what for one in screen.made.fields.get("model", ())})
        await until(pilot, lambda: field(pilot, "model").listing)
        await pilot.press("tab")
        assert (app.focused, field(pilot, "model").input.value) == (field(pilot, "data").input, f"/m/Kimi-K2.5{slash}")


async def test_tab_goes_deeper_where_the_folder_is_a_wrong_answer() -> None:
    app, controller = setup()
    fact = dataclasses.replace(MODEL.fact, error="config.json is missing")
    controller.setup_box.seen = dataclasses.replace(
        controller.setup_box.seen, model=dataclasses.replace(MODEL, fact=fact)
    )
    controller.setup_box.names = (PathEntry("models", True),)
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        await pilot.press(*"/models")
        await until(pilot, lambda: bool(screen.made.fields.get("model")))
        await named(pilot, "model")
        await pilot.press("tab")
        assert (app.focused, field(pilot, "model").input.value) == (field(pilot, "model").input, "/models/")


async def test_tab_never_waits_for_the_box_and_completes_what_it_knows() -> None:
    app, controller = slow()
    async with app.run_test(size=(120, 60)) as pilot:
        await opened(pilot)
        burst(pilot, *"/m/Ki", "tab", "x")
        await until(pilot, lambda: field(pilot, "data").input.value == "x")
        controller.setup_box.free.set()  # type: ignore[attr-defined]
        await pilot.press("shift+tab")
        await named(pilot, "model")
        assert field(pilot, "model").input.value == "/m/Ki", "nobody is there any more"
        burst(pilot, "tab", "y")
        await until(pilot, lambda: field(pilot, "model").input.value == "/m/Kimi-K2.5/y")


async def test_a_slash_at_the_end_asks_nothing_anew() -> None:
    app, _ = setup(plan=CHOSEN)
    async with app.run_test(size=(120, 60)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: screen.made.ready)
        await pilot.press("end", "/")
        assert field(pilot, "model").input.value == "/m/Kimi-K2.5/"
        assert screen.made.ready
        assert screen.made.plan.model == "/m/Kimi-K2.5"
