"""Every key does what the footer and the help say; what would lose something asks first."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from textual.pilot import Pilot
from textual.widgets import Button

from eagle3_console.errors import Stopped
from eagle3_console.events import Connection, ConnectionChanged, SnapshotArrived
from eagle3_console.keys import KEYS
from eagle3_console.settings import Settings
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.setup.report import ReportScreen
from eagle3_console.ui.widgets.dialog import AskDialog
from eagle3_console.ui.widgets.help import HelpScreen
from eagle3_console.ui.widgets.report_dialog import ReportDialog
from eagle3_remote.protocol import ExtractState, Phase, Problem, ServerStatus, Steering, VerifyReport
from tests.ui.scenes import (
    FINISHED,
    LIVE,
    LOADING,
    NOW,
    READY,
    RUNNING,
    SCENES,
    SPEC,
    TARGET,
    VERIFIED,
    arrived,
    console,
    snapshot,
)

IDLE = [LIVE, arrived(ServerStatus(Phase.NOT_RUNNING, "no server"))]
SERVING = [LIVE, arrived(READY)]
EXTRACTING = [LIVE, arrived(READY, RUNNING)]
PAUSED = dataclasses.replace(RUNNING, state=ExtractState.PAUSED, sentence="paused by hand")
DONE = [LIVE, arrived(ServerStatus(Phase.NOT_RUNNING, "no server"), FINISHED)]
BESIDE = dataclasses.replace(snapshot(READY, FINISHED), steering=Steering("alice@mbp", NOW - 60, mine=False))
LOST = ConnectionChanged(Connection("lost", "trying again in 2 s", NOW))


def text_of(app: ConsoleApp, selector: str = "Screen") -> str:
    """What stands on the screen, as text."""
    return "\n".join(
        "".join(segment.text for segment in line) for line in app.screen._compositor.render_strips(app.size)
    )


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause(0.02)


async def appears(pilot: Pilot[None], text: str) -> None:
    """What is drawn later than the rest: on a busy machine a moment is not enough."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    for _ in range(900):
        if text in text_of(app):
            return
        await pilot.pause(0.05)
    raise AssertionError(f"{text!r} does not appear in\n{text_of(app)}")


@pytest.mark.parametrize(
    ("scene", "key", "call"),
    [
        (IDLE, "d", "deploy"),
        (SERVING, "t", "probe"),
        (SERVING, "e", "extract_start"),
        ([LIVE, arrived(READY, FINISHED)], "e", "extract_start"),
        ([LOST], "r", "reconnect_now"),
        (EXTRACTING, "p", "extract_pause"),
        ([LIVE, arrived(READY, PAUSED)], "p", "extract_resume"),
        (EXTRACTING, "v", "verify"),
        (DONE, "m", "report"),
        ([LIVE, SnapshotArrived(BESIDE, NOW)], "m", "report"),
    ],
)
async def test_a_key_calls_its_act(scene: list[object], key: str, call: str) -> None:
    app, controller = console(scene)  # type: ignore[arg-type]
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press(key)
        await settled(pilot)
        assert controller.calls == [call]


@pytest.mark.parametrize(
    ("scene", "keys"),
    [
        (IDLE, "Rtexrpvm"),
        (SERVING, "srpv"),
        (EXTRACTING, "serE"),
        ([LIVE, arrived(LOADING)], "sterpv"),
        ([*EXTRACTING, LOST], "dsRtexpvm"),
        ([LIVE], "sRtexpvm"),
    ],
)
async def test_a_key_that_makes_no_sense_now_says_why_and_does_nothing(scene: list[object], keys: str) -> None:
    app, controller = console(scene)  # type: ignore[arg-type]
    said: list[str] = []
    app.notify = lambda message, **_: said.append(message)  # type: ignore[method-assign,assignment]
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press(*keys)
        await settled(pilot)
        assert controller.calls == []
        assert not isinstance(app.screen, AskDialog)
    assert len(said) == len(keys)
    assert all(text.endswith(".") for text in said)


async def test_a_start_shows_the_exact_line_first() -> None:
    app, controller = console(IDLE)  # type: ignore[arg-type]
    async with app.run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        await pilot.press("s")
        await appears(pilot, "env A=1 python -m sglang.launch_server --disable-radix-cache")
        assert "# why: [it] is so" in text_of(app)
        assert controller.calls == []
        await pilot.press("s")
        await settled(pilot)
        assert controller.calls == ["server_start"]


async def test_a_line_that_the_box_refuses_shows_why() -> None:
    app, controller = console(IDLE)  # type: ignore[arg-type]
    controller.fault = RuntimeError("SGLang 0.5.9 has no --atention-backend.")
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("s")
        await appears(pilot, "SGLang 0.5.9 has no --atention-backend.")
        await pilot.press("escape")
        await settled(pilot)
        assert controller.calls == []


@pytest.mark.parametrize("confirm", [["R"], ["tab", "enter"], ["right", "enter"]])
async def test_a_restart_asks_and_the_same_key_or_enter_confirms(confirm: list[str]) -> None:
    app, controller = console(SERVING)
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("R")
        await settled(pilot)
        assert isinstance(app.screen, AskDialog)
        assert "Restart the server with the radix cache off?" in text_of(app)
        assert "[server-restart] 38 samples in flight" in text_of(app)
        assert controller.calls == []
        await pilot.press(*confirm)
        await settled(pilot)
        assert controller.calls == ["server_restart radix_cache=False"]


@pytest.mark.parametrize("cancel", ["enter", "escape", "q"])
async def test_the_focus_is_on_cancel(cancel: str) -> None:
    app, controller = console(SERVING)
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("R")
        await settled(pilot)
        assert isinstance(app.focused, Button)
        assert app.focused.id == "cancel"
        await pilot.press(cancel)
        await settled(pilot)
        assert not isinstance(app.screen, AskDialog)
        assert controller.calls == []


INTERRUPTING = [
    (["R"], "server_restart radix_cache=False"),
    (["x", "s"], "server_stop"),
    (["x", "x"], "extract_stop"),
]


@pytest.mark.parametrize(("keys", "call"), INTERRUPTING)
async def test_what_interrupts_an_extraction_wants_the_name_of_the_host(keys: list[str], call: str) -> None:
    app, controller = console(EXTRACTING)
    async with app.run_test() as pilot:
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        assert "type the name of the host: gpu-box" in text_of(app)
        assert "38 samples in flight" in text_of(app)
        await pilot.press(*"qRx", "enter")
        await settled(pilot)
        assert "This is not gpu-box; nothing was done." in text_of(app)
        assert controller.calls == []
        await pilot.press(*["backspace"] * 3, *"gpu-box", "enter")
        await settled(pilot)
        assert controller.calls == [call]
        assert not isinstance(app.screen, AskDialog)


@pytest.mark.parametrize(("keys", "call"), INTERRUPTING)
async def test_an_interruption_is_cancelled_by_one_key_and_by_nothing_typed(keys: list[str], call: str) -> None:
    for leave in (["escape"], ["enter", "escape"], ["tab", "enter"]):
        app, controller = console(EXTRACTING)
        async with app.run_test() as pilot:
            await settled(pilot)
            for key in keys:
                await pilot.press(key)
                await settled(pilot)
            await pilot.press(*leave)
            await settled(pilot)
            assert not isinstance(app.screen, AskDialog)
            assert controller.calls == []


async def test_stop_says_what_each_choice_would_lose() -> None:
    app, _ = console(EXTRACTING)
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        assert "Stop what?" in text_of(app)
        assert "[extract-stop]" in text_of(app)
        assert "[server-stop]" in text_of(app)


async def test_verify_shows_counts_and_faults() -> None:
    app, controller = console(EXTRACTING)
    problem = Problem("hs_12.safetensors", "size", "is [cut] at 512 bytes")
    report = dataclasses.replace(VERIFIED, ok=False, problems=(problem,), problem_count=120, to_remake=1)

    async def verify() -> VerifyReport:
        return report

    controller.verify = verify  # type: ignore[method-assign]
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("v")
        await settled(pilot)
        assert isinstance(app.screen, ReportDialog)
        for words in (
            "120 faults",
            "samples 9,997",
            "hs_12.safetensors: size: is [cut] at 512 bytes",
            "and 119 more",
            "e makes the file that is missing or damaged again",
        ):
            assert words in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert not isinstance(app.screen, ReportDialog)


RADIX = dataclasses.replace(READY, spec=dataclasses.replace(SPEC, radix_cache=True), extra_key=True)
RADIX_ON = [LIVE, arrived(RADIX)]


@pytest.mark.parametrize(
    ("key", "call"), [("e", "extract_start extra_key"), ("R", "server_restart radix_cache=False"), ("escape", None)]
)
async def test_an_extraction_with_the_radix_cache_on_asks_how(key: str, call: str | None) -> None:
    app, controller = console(RADIX_ON)
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("e")
        await settled(pilot)
        assert "Extract without a restart" in text_of(app)
        assert "[extract-keyed]" in text_of(app)
        assert controller.calls == []
        await pilot.press(key)
        await settled(pilot)
        assert controller.calls == ([] if call is None else [call])


async def test_an_sglang_that_does_not_use_an_extra_key_can_only_be_restarted() -> None:
    app, controller = console([LIVE, arrived(dataclasses.replace(RADIX, extra_key=False))])
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("e")
        await settled(pilot)
        assert "Restart with it off" in text_of(app)
        assert "Extract without a restart" not in text_of(app)
        await pilot.press("e")
        await settled(pilot)
        assert controller.calls == []


async def test_stop_asks_for_the_server_alone_when_nothing_is_extracted() -> None:
    app, controller = console(SERVING)
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        assert "Stop server?" in text_of(app)
        assert "extract-stop" not in text_of(app)
        await pilot.press("x")
        await settled(pilot)
        assert controller.calls == ["server_stop"]


async def test_readonly_acts_on_nothing_and_says_so() -> None:
    app, controller = console(SERVING, readonly=True)
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press(*"dsRtexpvm")
        await settled(pilot)
        assert controller.calls == []
        assert "read-only" in text_of(app)
        assert "t probe" not in text_of(app)


async def test_while_another_console_steers_one_key_takes_over() -> None:
    steered = dataclasses.replace(snapshot(READY), steering=Steering("alice@mbp", NOW - 60, mine=False))
    app, controller = console([LIVE, SnapshotArrived(steered, NOW)])
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("t")
        await appears(pilot, "Another console steers this box: alice@mbp.")
        assert controller.calls == []
        assert "T take over" in text_of(app)
        await pilot.press("T")
        await settled(pilot)
        assert "alice@mbp steers since 07:59" in text_of(app)
        await pilot.press("T")
        await settled(pilot)
        assert controller.calls == ["take_over"]


async def test_what_goes_wrong_is_told_and_the_screen_stays() -> None:
    app, controller = console(SERVING)
    controller.fault = RuntimeError("port 30000 is in use by pid 77 [python]")
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("t")
        await settled(pilot)
        assert "probe: port 30000 is in use by pid 77 [python]" in text_of(app)
        await pilot.press("t")
        await settled(pilot)
        assert len(app.state.alerts) == 2


async def test_verify_says_which_key_comes_next() -> None:
    app, _ = console(DONE, settings=Settings(keys={"report": "f9"}))
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("v")
        await settled(pilot)
        assert "what comes next: f9, once this is closed." in text_of(app)
        await pilot.press("escape", "f9")
        await settled(pilot)
        assert isinstance(app.screen, ReportScreen)


async def test_what_was_stopped_on_request_is_told_without_an_error() -> None:
    app, controller = console(SERVING)
    controller.fault = Stopped("stopped by you, e goes on")
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("t")
        await settled(pilot)
        assert [(alert.level, alert.text) for alert in app.state.alerts] == [
            ("info", "probe: stopped by you, e goes on")
        ]
        assert "new error" not in text_of(app)


async def test_an_act_under_way_is_not_begun_twice() -> None:
    app, controller = console(SERVING)
    release = asyncio.Event()

    async def slow() -> None:
        controller.calls.append("probe")
        await release.wait()

    controller.probe = slow  # type: ignore[method-assign]
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("t", "t")
        await settled(pilot)
        assert controller.calls == ["probe"]
        release.set()
        await settled(pilot)
        await pilot.press("t")
        await settled(pilot)
        assert controller.calls == ["probe", "probe"]


async def test_numbers_focus_panels_and_z_zooms() -> None:
    app, _ = console("extracting")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for number, words in {
            1: "BUSY",
            2: "samples/s",
            3: "GPU 7",
            4: "Prefill batch",
            5: "extraction under way",
        }.items():
            await pilot.press(str(number), "z")
            await settled(pilot)
            visible = [panel.id for panel in app.screen.query(".panel") if panel.region.height]
            assert visible == [f"panel-{number}"]
            assert words in text_of(app)
            await pilot.press("escape")
            await settled(pilot)
        assert len([panel for panel in app.screen.query(".panel") if panel.region.height]) == 5


async def test_text_of_a_panel_can_be_marked_and_copied() -> None:
    app, _ = console(EXTRACTING)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.mouse_down("#panel-1", offset=(1, 1))
        await pilot.hover("#panel-1", offset=(5, 1))
        await pilot.mouse_up("#panel-1", offset=(5, 1))
        await settled(pilot)
        await pilot.press("y")
        assert app.clipboard.startswith("BUSY")


async def test_going_to_another_panel_leaves_the_zoom() -> None:
    app, _ = console("extracting")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("1", "z", "2")
        await settled(pilot)
        assert "11.8 samples/s" in text_of(app)


async def test_help_lists_every_key_and_why_it_does_nothing_now() -> None:
    app, _ = console(IDLE)
    async with app.run_test(size=(100, 80)) as pilot:
        await settled(pilot)
        await pilot.press("question_mark")
        await settled(pilot)
        assert isinstance(app.screen, HelpScreen)
        for key in app.keys:
            assert f"{key.shown:>6}  {key.help}" in text_of(app)
            if reason := app.why_not(key.act) if key.act else "":
                assert f"not now: {reason}" in text_of(app)
        assert "not now: No extraction is under way." in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert not isinstance(app.screen, HelpScreen)


def test_every_key_has_an_id_of_its_own() -> None:
    assert len({key.id for key in KEYS}) == len(KEYS)
    taken = [name for key in KEYS for name in key.keys.split(",")]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (EXTRACTING, "The extraction (3,731 of 10,000 samples) and the server go on on root@gpu-box."),
        (
            [LIVE, arrived(READY, PAUSED)],
            "The server goes on on root@gpu-box. The extraction (3,731 of 10,000 samples) stays paused: p on the screen resumes it.",
        ),
        (SERVING, "The server goes on on root@gpu-box."),
        (IDLE, "Detached from root@gpu-box."),
    ],
)
async def test_q_says_what_goes_on_and_how_to_come_back(scene: list[object], words: str) -> None:
    app, controller = console(scene)  # type: ignore[arg-type]
    async with app.run_test() as pilot:
        await settled(pilot)
        said = app.farewell()
        await pilot.press("q")
    assert said.startswith(words)
    assert said.endswith(f"Come back with: eagle3-console {TARGET}")
    assert controller.calls == []
    assert app.return_code == 0


async def test_a_session_that_ends_is_told() -> None:
    app, controller = console(SERVING)

    async def events():  # type: ignore[no-untyped-def]
        yield LIVE
        raise RuntimeError("the agent speaks protocol 2, this console 1")

    controller.events = events  # type: ignore[method-assign]
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        assert "the session ended: the agent speaks protocol 2, this console 1" in text_of(app)


async def test_the_screen_follows_the_events() -> None:
    app, controller = console(SERVING)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "nothing extracted yet" in text_of(app)
        controller.queue.put_nowait(SnapshotArrived(snapshot(READY, RUNNING, NOW + 1), NOW + 1))
        await settled(pilot)
        assert "3,731 / 10,000" in text_of(app)
        controller.queue.put_nowait(LOST)
        await settled(pilot)
        shown = text_of(app)
        assert "shown as of 08:00:01" in shown
        assert "trying again in 2 s" in shown
        assert "3,731 / 10,000" in shown
        await appears(pilot, "r reconnect")  # the footer is built anew


@pytest.mark.parametrize("scene", sorted(SCENES))
async def test_no_size_breaks_the_screen(scene: str) -> None:
    app, _ = console(scene)
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((40, 12), (79, 23), (120, 24), (119, 60), (250, 70), (30, 8)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert TARGET in text_of(app)


async def test_eighty_by_twenty_four_holds_what_must_never_go() -> None:
    app, controller = console("extracting")
    async with app.run_test(size=(80, 24)) as pilot:
        controller.queue.put_nowait(arrived(READY, FINISHED))
        await settled(pilot)
        assert "9,997 of 10,000 stored" in text_of(app).splitlines()[22]
        controller.queue.put_nowait(arrived(READY, RUNNING, NOW + 60))
        await settled(pilot)
        shown = text_of(app)
        for words in ("BUSY", "3,731 / 10,000", "11.8 samples/s", "370 GB (345 GiB)", "1 h 30 m", "output", "dump"):
            assert words in shown
        assert "1.70 TB free" in shown
        assert "▲ warning" in shown.splitlines()[22]


async def test_a_terminal_without_utf8_gets_ascii_alone() -> None:
    app, _ = console("extracting", ascii_signs=True)
    async with app.run_test(size=(160, 45)) as pilot:
        await settled(pilot)
        assert text_of(app).isascii()
        await pilot.press("x")
        await settled(pilot)
        assert text_of(app).isascii()
        await pilot.press("escape", "question_mark")
        await settled(pilot)
        assert text_of(app).isascii()


async def test_the_report_is_drawn_as_text_and_says_how_to_keep_it() -> None:
    app, _ = console(DONE)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("m")
        await appears(pilot, "9,997 stored")
        for words in ("Hidden states in /data/hidden/kimi", f"eagle3-console report {TARGET} > FILE", "esc leaves"):
            assert words in text_of(app)
        for marks in ("# Hidden", "|---|"):
            assert marks not in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert app.screen is app.dashboard
