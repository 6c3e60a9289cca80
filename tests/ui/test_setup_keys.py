"""The set-up's keys: where a refusal leads, what tab and esc do, and what saving replaces."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eagle3_console.profiles import write
from eagle3_console.settings import Settings
from eagle3_console.setup.draft import FIELDS
from eagle3_console.ui.setup.report import ReportScreen
from eagle3_console.ui.setup.screen import SetupScreen
from eagle3_remote.protocol import DatasetLook, ExtractStatus, PathEntry
from tests.console.homes import make_user
from tests.console.test_setup import OUT, SEEN
from tests.ui.scenes import LIVE, NOW, READY, RUNNING, arrived
from tests.ui.setup_scenes import CHOSEN, setup
from tests.ui.test_keys import appears, text_of
from tests.ui.test_setup import field, real, screen_of, until

BEGUN = DatasetLook("/m/Kimi-K2.5", True, "/data/t.jsonl", (3, 31, 59), "pre", 0, 4000, 10_000, False, False)


def footer(pilot: Pilot[None]) -> str:
    return text_of(pilot.app).splitlines()[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("tp", "3", "64 heads cannot be shared by 3 GPUs"),
        ("boundaries", "2,30,99", "boundary 99 is asked and there are 61 layers"),
        ("boundaries", "2,30,58", "was begun with 3,31,59"),
    ],
)
@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_saving_leads_to_the_field_at_fault(name: str, typed: str, words: str, size: tuple[int, int]) -> None:
    out = dataclasses.replace(OUT, exists=True, is_dir=True, dataset=BEGUN) if "begun" in words else OUT
    app, controller = setup(plan=CHOSEN, seen=dataclasses.replace(SEEN, out=out))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: screen_of(pilot).made.ready)
        setting = screen_of(pilot).query_one(f"#input-{name}", Input)
        setting.focus()
        setting.value = typed
        await until(pilot, lambda: not screen_of(pilot).made.ready)
        field(pilot, "model").input.focus()
        await pilot.press("ctrl+s")
        assert app.focused is setting
        await appears(pilot, f"{FIELDS[name].label} will not do yet: ")
        assert words in screen_of(pilot).made.fields[name][-1].sentence
        assert not any(
            one.level == "FAIL" for asked in ("model", "data", "out") for one in screen_of(pilot).made.fields[asked]
        )
        assert controller.setup_box.saved == []


async def test_tab_on_an_empty_field_goes_on_and_enters_nothing() -> None:
    app, controller = setup()
    controller.setup_box.names = (PathEntry("/", True), PathEntry("~", True))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        for name, after in (("model", "data"), ("data", "out")):
            await until(pilot, lambda name=name: field(pilot, name).listing)  # type: ignore[misc]
            await until(pilot, lambda: "tab next" in footer(pilot))
            await pilot.press("tab")
            assert (app.focused, field(pilot, name).input.value) == (field(pilot, after).input, "")
        await until(pilot, lambda: field(pilot, "out").listing)
        await pilot.press("tab", "tab")
        assert field(pilot, "out").input.value == ""
        await pilot.press("shift+tab", "shift+tab", "~")
        await until(pilot, lambda: "tab complete" in footer(pilot), "what is typed is completed")


async def test_an_empty_output_offers_the_folder_of_the_data() -> None:
    app, controller = setup(plan=dataclasses.replace(CHOSEN, out=""))
    controller.setup_box.names = (PathEntry("/", True), PathEntry("~", True))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: screen_of(pilot)._asking.seen.data is not None)
        field(pilot, "out").input.focus()
        await until(pilot, lambda: field(pilot, "out").listing)
        await pilot.press("down", "enter")
        assert field(pilot, "out").input.value == "/data/"


async def test_a_relative_output_says_where_it_will_lie() -> None:
    out = dataclasses.replace(OUT, path="/root/hidden", parent="/root")
    app, _ = setup(plan=dataclasses.replace(CHOSEN, out="hidden"), seen=dataclasses.replace(SEEN, out=out))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await appears(pilot, "on the box this is /root/hidden")


async def test_esc_closes_the_list_and_then_leaves_and_the_footer_says_which() -> None:
    app, _ = setup()
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        await until(pilot, lambda: field(pilot, "model").listing)
        await until(pilot, lambda: "esc close list" in footer(pilot))
        assert "esc leave" not in footer(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: "esc leave" in footer(pilot))
        assert "close list" not in footer(pilot)
        assert isinstance(app.screen, SetupScreen)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_user(tmp_path, monkeypatch)


async def test_another_profile_is_replaced_only_when_the_same_key_confirms(user: Path) -> None:
    words = [f"--{name}={user / path}" for name, path in
             (("model", "models/Kimi K2.5"), ("data", "tokenized_data.jsonl"), ("out", "hidden"))]  # fmt: skip
    write.save("mine", 'description = "of before"\n', replace=False)
    kept = write.path_of("mine")

    async def name_it(pilot: Pilot[None], name: str) -> None:
        await until(pilot, lambda: pilot.app.state.snapshot is not None)  # type: ignore[attr-defined]
        await pilot.press("o")
        await until(pilot, lambda: screen_of(pilot).made.ready)
        screen_of(pilot).query_one("#setup-name", Input).value = name
        await pilot.pause()

    app, _ = real(user, *words)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await name_it(pilot, "mine")
        await pilot.press("ctrl+s")
        await appears(pilot, "There is a profile mine already")
        await pilot.press("ctrl+r")  # another key is no confirmation
        await pilot.pause(0.1)
        assert isinstance(app.screen, SetupScreen)
        assert "of before" in kept.read_text()
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        await pilot.press("escape")
        assert "of before" not in kept.read_text()
        await name_it(pilot, "mine")  # it is the one in use now
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))

    again, _ = real(user, *words)  # the host remembers it, and it was not loaded
    async with again.run_test(size=(120, 35)) as pilot:
        await name_it(pilot, "mine")
        await pilot.press("ctrl+s")
        await pilot.pause(0.1)
        assert isinstance(again.screen, SetupScreen)


@pytest.mark.parametrize(
    ("extract", "words"),
    [
        (RUNNING, "The check and the report of this run wait for you: f8 and f9 on the screen. "),
        (None, "The other steps of this run are not begun without the console: E on the screen goes on with them. "),
    ],
)
async def test_leaving_a_whole_run_says_what_of_it_waits(extract: ExtractStatus | None, words: str) -> None:
    keys = Settings(keys={"verify": "f8", "report": "f9"})
    app, controller = setup([LIVE, arrived(READY)], plan=CHOSEN, settings=keys)
    over = asyncio.Event()

    async def run_all() -> str:
        await over.wait()
        return "# over"

    controller.run_all = run_all  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        before = app.farewell()
        await pilot.press("E")
        await pilot.pause(0.1)
        controller.queue.put_nowait(arrived(READY, extract, NOW + 1))
        await until(pilot, lambda: app.state.as_of == NOW + 1)
        assert words in app.farewell()
        over.set()
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        assert app.farewell() == before or extract is not None
        assert words not in app.farewell()


async def test_what_was_typed_is_there_when_the_set_up_is_opened_again() -> None:
    app, controller = setup()
    said: list[str] = []
    app.notify = lambda message, **_: said.append(message)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        for at, typed in (("setup-name", "mine"), ("input-samples", "500"), ("input-model", "/m/Kimi")):
            screen_of(pilot).query_one(f"#{at}").focus()
            await pilot.pause()
            await pilot.press(*typed)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))
        assert "what you typed is kept until the console ends" in said[-1]
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        boxes = [screen_of(pilot).query_one(f"#{at}", Input) for at in ("setup-name", "input-samples", "input-model")]
        await until(pilot, lambda: [box.value for box in boxes] == ["mine", "500", "/m/Kimi"])
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))
    assert controller.plan.samples == 0


async def test_where_nothing_was_typed_nothing_is_said_to_be_kept() -> None:
    app, _ = setup()
    said: list[str] = []
    app.notify = lambda message, **_: said.append(message)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))
        assert "nothing was saved" in said[-1]
        assert "is kept" not in said[-1]
