"""The set-up by keyboard: against a real agent on real trees, and for the rare cases against a scripted box."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eagle3_console.cli import build_parser
from eagle3_console.commands.context import make_plan, make_session
from eagle3_console.controller import SessionController
from eagle3_console.link.errors import LinkLost
from eagle3_console.plan import Plan
from eagle3_console.profiles import hosts
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.setup import asking
from eagle3_console.ui.setup.fields import PathField
from eagle3_console.ui.setup.report import ReportScreen
from eagle3_console.ui.setup.screen import SetupScreen
from eagle3_remote.protocol import DataLook, Looked, PathEntry, PortFact, PythonFact, SmokeRate
from tests.console.homes import make_user
from tests.console.test_setup import DATA, OUT, SEEN, facts
from tests.ui.scenes import LIVE, READY, RUNNING, arrived, console
from tests.ui.setup_scenes import CHOSEN, NOTHING_RAN, setup
from tests.ui.test_keys import appears, text_of


async def until(pilot: Pilot[None], true: Callable[[], bool], what: str = "") -> None:
    """Wait for what a person would wait for."""
    for _ in range(900):
        if true():
            return
        await pilot.pause(0.05)
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    raise AssertionError(f"{what}\n{text_of(app)}")


def screen_of(pilot: Pilot[None]) -> SetupScreen:
    assert isinstance(pilot.app.screen, SetupScreen), pilot.app.screen
    return pilot.app.screen


def field(pilot: Pilot[None], name: str) -> PathField:
    return screen_of(pilot).query_one(f"#field-{name}", PathField)


async def named(pilot: Pilot[None], name: str) -> None:
    """Until the box has told how what stands in a path field goes on."""
    await until(pilot, lambda: field(pilot, name).completes, f"{name} has nothing to complete")


# -- a real agent ---------------------------------------------------------------------------------------------------------


class Recording(SessionController):
    """The real controller, but that the whole run is only noted: what it needs is in tests/e2e."""

    ran: Plan | None = None

    async def run_all(self) -> str:
        self.ran = self.plan
        return "# the report"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_user(tmp_path, monkeypatch)


def real(user: Path, *words: str) -> tuple[ConsoleApp, Recording]:
    args = hosts.with_remembered(
        build_parser()[0].parse_args(["open", "local", "--box-dir", str(user / "box"), *words])
    )
    controller = Recording(make_session(args), make_plan(args))
    return ConsoleApp(controller, "local", ascii_signs=False), controller


async def opened(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, SetupScreen), "the set-up does not open by itself")
    await until(pilot, lambda: bool(screen_of(pilot).made.box), "the box is not looked at")


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_from_the_empty_screen_to_the_started_run(user: Path, size: tuple[int, int]) -> None:
    app, controller = real(user)
    before = sorted(os.listdir(user))
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press(*"~/mod")
        await named(pilot, "model")
        await pilot.press("tab")
        await until(pilot, lambda: field(pilot, "model").input.value == "~/models/")
        await pilot.press(*"Kimi")
        await named(pilot, "model")
        await pilot.press("tab")  # two begin so: the chosen one is marked
        await until(pilot, lambda: "Kimi K2.5" in text_of(app))
        await pilot.press("down", "enter") if field(pilot, "model").input.value == "~/models/Kimi" else None
        await until(pilot, lambda: field(pilot, "model").input.value != "~/models/Kimi")
        field(pilot, "model").input.value = "~/models/Kimi K2."
        await named(pilot, "model")
        await pilot.press("end", "tab")
        await until(pilot, lambda: field(pilot, "model").input.value == "~/models/Kimi K2.5/")
        await until(pilot, lambda: "all 1 files are whole" in text_of(app))
        await pilot.press("enter", *"~/tok")
        await named(pilot, "data")
        await pilot.press("tab")
        await until(pilot, lambda: field(pilot, "data").input.value == "~/tokenized_data.jsonl")
        await pilot.press("enter", *"~/hidden states")
        await until(pilot, lambda: screen_of(pilot).made.ready, "not ready")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: controller.ran is not None)
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        await pilot.press("escape")
    plan = controller.ran
    assert plan is not None
    assert (plan.model, plan.data) == (str(user / "models/Kimi K2.5"), str(user / "tokenized_data.jsonl"))
    assert (plan.out, plan.boundaries, plan.final) == (str(user / "hidden states"), (2, 30, 58), "pre")
    assert plan.python == str(user / "venv/bin/python")
    (profile,) = (user / "cfg/eagle3-console/profiles").iterdir()
    assert profile.name == "kimi-k2.5-local.toml"
    assert sorted(os.listdir(user)) == sorted([*before, "box", "cfg", "state"])
    again, second = real(user)
    assert (second.plan.model, second.plan.out, second.plan.server_args) == (plan.model, plan.out, plan.server_args)
    async with again.run_test(size=size) as pilot:
        await until(pilot, lambda: again.state.snapshot is not None)
        await pilot.pause(0.2)
        assert not isinstance(again.screen, SetupScreen), "it knows everything: the dashboard comes first"
        await pilot.press("o")
        await until(pilot, lambda: isinstance(again.screen, SetupScreen))
        await until(pilot, lambda: screen_of(pilot).made.ready)
        assert field(pilot, "out").input.value == str(user / "hidden states")
        await pilot.press("ctrl+s")  # this host's own profile: replaced without a question
        await until(pilot, lambda: not isinstance(again.screen, SetupScreen))
        await pilot.press("E")
        await until(pilot, lambda: second.ran is not None)


async def test_leaving_leaves_nothing_behind(user: Path) -> None:
    app, controller = real(user)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opened(pilot)
        await pilot.press(*"~/models/Kimi K2.5")
        await until(pilot, lambda: "model" in screen_of(pilot).made.fields)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))
        await appears(pilot, "nothing was saved")
        await pilot.press("E")
        await appears(pilot, "Not now")
    assert controller.plan.model == ""
    assert not (user / "cfg").exists()
    assert not (user / "state").exists()


async def test_what_will_not_do_is_pointed_at_and_not_saved(user: Path) -> None:
    (user / "models/Kimi K2.5/model.safetensors").write_bytes(b"cut")
    app, _ = real(user)
    async with app.run_test(size=(120, 35)) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+s")
        assert app.focused is field(pilot, "model").input
        for name, text in (("model", "~/models/Kimi K2.5"), ("data", "~/tokenized_data.jsonl"), ("out", "~/no/where")):
            field(pilot, name).input.value = text
        await until(pilot, lambda: {"model", "data", "out"} <= screen_of(pilot).made.fields.keys())
        await appears(pilot, "1 of 1 files are missing")
        await appears(pilot, "there is no folder")
        await pilot.press("ctrl+s")
        await pilot.pause(0.1)
        assert app.focused is field(pilot, "model").input
        assert isinstance(app.screen, SetupScreen)
    assert not (user / "cfg").exists()


# -- a scripted box -------------------------------------------------------------------------------------------------------


async def test_the_names_below_a_path() -> None:
    wrong = dataclasses.replace(DATA, error="it is no data")  # what is right already is not completed
    app, _ = setup(seen=dataclasses.replace(SEEN, data=wrong))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        await pilot.press("enter", *"/m/")
        for words in ("Qwen3-235B [new]/", "→ /mnt/nfs/qwen", "link to nothing (/gone)", "4.10 kB"):
            await appears(pilot, words)
        await appears(pilot, "3 more. tab completes, down chooses")  # once the box has judged what is typed so far
        await pilot.press("down", "down", "enter")
        assert field(pilot, "data").input.value == "/m/Qwen3-235B [new]/"
        field(pilot, "data").input.value = "/m/n"
        await named(pilot, "data")
        await pilot.press("end", "tab")
        assert field(pilot, "data").input.value == "/m/notes.txt"
        await pilot.press("tab")
        assert app.focused is field(pilot, "out").input


@pytest.mark.parametrize("name", ["esc\x1b[2J", "caf\udce9"])
async def test_a_name_that_a_terminal_would_obey_or_cannot_take_stays_out_of_the_field(name: str) -> None:
    app, controller = setup()
    controller.setup_box.names, word = (PathEntry(name, True),), name[:3]
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        await pilot.press(*f"/m/{word}")
        await named(pilot, "model")
        assert not set(name[3:]) & {"\x1b", "\udce9"} & set(text_of(app))
        await pilot.press("tab")
        await appears(pilot, "cannot be shown")
        assert field(pilot, "model").input.value == f"/m/{word}"


async def test_every_proposal_can_be_changed_and_comes_back() -> None:
    app, controller = setup(plan=CHOSEN)
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: screen_of(pilot).made.ready)
        tp = screen_of(pilot).query_one("#input-tp")
        tp.focus()
        await pilot.press("4")
        await appears(pilot, "yours; proposed: 8")
        assert screen_of(pilot).made.plan.tp == 4
        assert "as proposed" not in text_of(app)
        await pilot.press("backspace", "tab")
        await until(pilot, lambda: tp.value == "8")  # type: ignore[attr-defined]
        await pilot.press("ctrl+s")
        ((name, plan, _),) = controller.setup_box.saved
        assert (name, plan.tp, controller.plan.tp) == ("kimi-k2.5-gpu-box", 8, 8)
        assert controller.calls == []


async def test_what_is_the_person_s_and_proposed_alike_says_so() -> None:
    app, _ = setup(plan=dataclasses.replace(CHOSEN, boundaries=(2, 30, 58), tp=8, port=30000, said=frozenset({"port"})))
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: screen_of(pilot).made.ready)
        for reason in ("2, N//2 and N-3 of N = 61", "595 GB", "it is free"):
            await appears(pilot, f"yours, as proposed: {reason}")
        assert "; proposed: " not in text_of(app)


async def test_the_plan_says_how_long_it_takes_by_the_last_smoke_run() -> None:
    app, _ = setup(plan=CHOSEN, seen=dataclasses.replace(SEEN, smoke=SmokeRate(32, 10_000.0)))
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await appears(pilot, "about 28 m 50 s at 10,000 tokens/s, by the 32 samples")


FULL = dataclasses.replace(
    CHOSEN, python="/venv/bin/python", tp=4, port=31000, boundaries=(3, 31, 59), final="post", dump_dir="/fast/d",
    max_seq_len=4096, samples=7, tokens_in_flight=8192, server_args=("--attention-backend", "triton", "--x" * 40),
    model="/m/" + "long-" * 20,
)  # fmt: skip


@pytest.mark.parametrize("plan", [None, FULL], ids=["proposed", "from a plan"])
async def test_every_field_shows_the_beginning_of_what_counts_in_it(plan: Plan | None) -> None:
    app, _ = setup(plan=plan)
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o") if plan else None
        await until(pilot, lambda: bool(screen_of(pilot).made.box))
        screen = screen_of(pilot)
        args = screen.query_one("#input-server_args", Input)
        args.focus()
        args.value = "--y" * 30
        await pilot.press("end")
        await until(pilot, lambda: args.render_line(0).text.startswith("…"), "the place of the cursor is not shown")
        screen.query_one("#setup-name").focus()
        await until(pilot, lambda: args.render_line(0).text.startswith("--y--y"), "not shown from its beginning")
        assert screen.made.texts["server_args"] == "--y" * 30
        for name, text in screen.made.texts.items():
            shown = screen.query_one(f"#input-{name}", Input).render_line(0).text.rstrip()
            assert shown == text or (shown.endswith("…") and text.startswith(shown[:-1])) or not text, (name, shown)


async def test_typing_on_behind_what_is_proposed_loses_no_key() -> None:
    app, _ = setup(plan=CHOSEN)
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: screen_of(pilot).made.ready)
        args = screen_of(pilot).query_one("#input-server_args", Input)
        proposed = args.value
        args.focus()
        await pilot.pause()
        await pilot.press("end", *" --x 1", "tab")
        await until(pilot, lambda: args.value == f"{proposed} --x 1")


async def test_a_link_that_is_lost_is_told_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AGAIN", 0.05)
    app, controller = setup()
    controller.setup_box.fault = LinkLost("The link to gpu-box is gone.")
    async with app.run_test(size=(120, 35)) as pilot:
        await appears(pilot, "The link to gpu-box is gone.")
        controller.setup_box.fault = None
        await appears(pilot, "8 × NVIDIA H200")
        assert "is gone" not in text_of(app)


TAKEN = Looked(port=PortFact(30001, True), asked=PortFact(30000, False, "pid 7 (user x, y)"))
INSIDE = dataclasses.replace(OUT, error="it lies inside the dataset /data/old")


@pytest.mark.parametrize(
    ("plan", "seen", "refusal", "at"),
    [
        ({"port": 30000, "said": frozenset({"port"})}, {"box": TAKEN}, "", "port"),
        ({"python": "/p"}, {"data": DataLook("/data/t.jsonl", python_error="/p could not be started.")}, "", "python"),
        ({}, {"out": INSIDE}, "", "out"),
        ({}, {}, "Port 30000 is taken by pid 7 (user x, y): choose another port.", ""),
    ],
    ids=["port", "python", "output", "the server's own plan"],
)
async def test_what_is_refused_is_not_started(
    plan: dict[str, Any], seen: dict[str, Any], refusal: str, at: str
) -> None:
    """The key leads to what is at fault and says it; nothing is saved, nothing is run."""
    known = facts()
    known = dataclasses.replace(known, pythons=(*known.pythons, PythonFact("/p", "--python", "3.11.7", "0.5.9")))
    app, controller = setup(
        plan=dataclasses.replace(CHOSEN, **plan), seen=dataclasses.replace(SEEN, facts=known, **seen)
    )
    controller.setup_box.refusal = refusal
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, SetupScreen))
        await until(pilot, lambda: not screen_of(pilot).made.missing)
        await until(pilot, lambda: bool(screen_of(pilot).made.failures) or bool(screen_of(pilot)._asking.launch_fault))
        await pilot.press("ctrl+r")
        await pilot.pause(0.1)
        if at:
            assert app.focused is screen_of(pilot).query_one(f"#input-{at}")
        assert [one.title for one in app._notifications] == ["not saved"]
        assert (controller.setup_box.saved, controller.calls) == ([], [])


async def test_a_running_server_says_what_waits_for_its_restart() -> None:
    app, _ = setup([LIVE, arrived(READY, RUNNING)])
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.pause(0.1)
        assert not isinstance(app.screen, SetupScreen)
        await pilot.press("o")
        await appears(pilot, "A server runs. Data, Output, Longest and Samples count from the next extraction on")
        assert field(pilot, "model").input.value == "/models/kimi-k2.5"
        screen_of(pilot).query_one("#input-tp").focus()
        await pilot.press("4")
        await appears(pilot, "A server runs: only its restart changes Tensor par. (R on the dashboard).")


async def test_what_the_running_server_goes_against_is_saved_and_not_started() -> None:
    """The line above, the line below and the key say the same; saving alone is possible."""
    app, controller = setup([LIVE, arrived(READY)], plan=dataclasses.replace(CHOSEN, model="/models/kimi-k2.5"))
    looked = dataclasses.replace(SEEN.model, fact=dataclasses.replace(SEEN.model.fact, path="/models/kimi-k2.5"))  # type: ignore[union-attr,type-var]
    controller.setup_box.seen = dataclasses.replace(SEEN, model=looked)
    async with app.run_test(size=(120, 45), notifications=True) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, SetupScreen) and screen_of(pilot).made.ready)
        await appears(pilot, "ctrl+r saves and starts everything")
        boundaries = screen_of(pilot).query_one("#input-boundaries", Input)
        boundaries.value = "1,3,6"
        await until(pilot, lambda: screen_of(pilot).made.plan.boundaries == (1, 3, 6))
        await until(pilot, lambda: screen_of(pilot).made.ready)
        assert "ctrl+r saves and starts everything" not in text_of(app)
        await appears(pilot, "A server runs: only its restart changes Boundaries")
        await appears(pilot, "ctrl+s saves it; then R")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: app.focused is boundaries)
        assert (controller.setup_box.saved, controller.calls) == ([], [])
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not isinstance(app.screen, SetupScreen))
        assert controller.plan.boundaries == (1, 3, 6)
        assert controller.calls == []


@pytest.mark.parametrize("kind", ["readonly", "named", "no set-up"])
async def test_it_does_not_open_by_itself(kind: str) -> None:
    if kind == "no set-up":
        app, _ = console(NOTHING_RAN)
    else:
        app, _ = setup(plan=CHOSEN if kind == "named" else None, readonly=kind == "readonly")  # type: ignore[assignment]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.pause(0.1)
        assert not isinstance(app.screen, SetupScreen)
        await pilot.press("o")
        await pilot.pause(0.1)
        assert isinstance(app.screen, SetupScreen) is (kind == "named")


async def test_the_report_of_a_whole_run_is_shown_as_it_is() -> None:
    app, controller = setup(plan=CHOSEN)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.state.snapshot is not None)
        await pilot.press("E")
        await appears(pilot, "Everything is stored [all of it].")
        assert controller.calls == ["run_all"]
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert not isinstance(app.screen, ReportScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("state", ["empty", "chosen"])
def test_pictures(snap_compare: Callable[..., bool], size: tuple[int, int], state: str) -> None:
    app, _ = setup(plan=CHOSEN if state == "chosen" else None)

    async def still(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.state.snapshot is not None)
        if state == "chosen":
            await pilot.press("o")
            await until(pilot, lambda: isinstance(app.screen, SetupScreen))
            await appears(pilot, "every sample") if size[1] > 24 else None
            await until(pilot, lambda: screen_of(pilot)._asking.launch is not None)
        else:
            await appears(pilot, "Kimi-K2.5/")
            await until(pilot, lambda: bool(screen_of(pilot).made.box))
        for one in app.screen.query("Input"):
            one.cursor_blink = False  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)

    assert snap_compare(app, terminal_size=size, run_before=still)
