"""A person's own keys and theme; the palette; the footer; what alerts were missed."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot

from eagle3_console import losses
from eagle3_console.events import Alert, AlertRaised, Connection, ConnectionChanged, Event, SnapshotArrived
from eagle3_console.keys import KEYS, SHOWN
from eagle3_console.settings import Settings
from eagle3_console.state import initial, reduce
from eagle3_console.ui import themes
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.draw import View
from eagle3_console.ui.draw_extraction import draw_extraction
from eagle3_console.ui.draw_server import draw_server
from eagle3_console.ui.glyphs import UNICODE
from eagle3_console.ui.palette import Everything
from eagle3_console.ui.possible import why_not
from eagle3_remote.protocol import ExtractState, Phase, Restart
from tests.ui.scenes import FAILED, LIVE, NOW, READY, RUNNING, SCENES, arrived, console, gauges, snapshot
from tests.ui.test_keys import EXTRACTING, IDLE, SERVING, appears, settled, text_of


def footer(app: ConsoleApp) -> str:
    return text_of(app).splitlines()[-1]


async def test_a_key_of_ones_own_takes_the_place_of_ours() -> None:
    app, controller = console(SERVING, settings=Settings(keys={"probe": "e", "extract.start": "t", "log.top": "f2"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        await pilot.press("e")
        await settled(pilot)
        await pilot.press("t")
        await settled(pilot)
        assert controller.calls == ["probe", "extract_start"]
        assert "e probe" in footer(app)
        assert "t extract" in footer(app)
        await pilot.press("g")
        assert app.log_panel.view.following
        await pilot.press("f2")
        assert not app.log_panel.view.following


async def test_the_same_key_confirms_also_when_it_is_ones_own() -> None:
    app, controller = console(SERVING, settings=Settings(keys={"server.restart": "f5"}))
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("f5")
        await settled(pilot)
        assert "Restart (f5)" in text_of(app)
        await pilot.press("R")
        await settled(pilot)
        assert controller.calls == []
        await pilot.press("f5")
        await settled(pilot)
        assert controller.calls == ["server_restart radix_cache=False"]


OURS = re.compile(
    r"(?<![\w'`.-])(?:[a-zA-Z&]|\([a-zA-Z&]\))(?=(?: (?:starts|restarts|resumes|extracts|tries|holds|lets|follows|opens|detaches)\b)|\))"
)


WRITTEN = re.compile(
    r"(?<![\w(])\([a-zA-Z0-9&/?]\)"
    r"|(?<![\w'`.+-])[a-zA-Z&](?= (?:starts|restarts|resumes|extracts|tries|holds|lets|follows|opens|shows|copies|detaches|stops)\b)"
)


def texts_in_the_code() -> Iterator[str]:
    """Every string of the console and of what it sends to the box, but for what is written for developers."""
    root = Path(__file__).parents[2]
    for file in (file for folder in ("console", "remote", "patch") for file in sorted((root / folder).rglob("*.py"))):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield node.value


def test_no_key_is_written_into_a_text() -> None:
    """Where a person may have another one, it comes from the table; the keys of the report are its own."""
    assert [text for text in texts_in_the_code() if WRITTEN.search(text)] == ["Report (esc leaves, y copies)"]


def sentences() -> Iterator[str]:
    """What alerts, reasons, panels and the checklist say, of every scene there is, where every key is another one."""
    keyed = {name: f"<{name}>" for name in SHOWN}
    extras: dict[str, list[Event]] = {
        "paused": [LIVE, arrived(READY, dataclasses.replace(RUNNING, state=ExtractState.PAUSED, held="request"))],
        "stopped": [LIVE, arrived(READY, dataclasses.replace(RUNNING, state=ExtractState.STOPPED))],
        "broken": [LIVE, arrived(FAILED, dataclasses.replace(RUNNING, state=ExtractState.FAILED, failed=9))],
        "bad": [LIVE, arrived(READY, dataclasses.replace(RUNNING, rejected=900))],
        "stuck": [LIVE, arrived(dataclasses.replace(READY, phase=Phase.STUCK))],
        "silent": [LIVE, arrived(dataclasses.replace(READY, phase=Phase.UNRESPONSIVE))],
        "gone": [LIVE, arrived(dataclasses.replace(READY, phase=Phase.EXITED), RUNNING)],
        "unpatched": [LIVE, arrived(dataclasses.replace(READY, log=dataclasses.replace(READY.log, markers=())))],
        "full": [LIVE, SnapshotArrived(snapshot(READY, RUNNING, box=gauges(output_free=10**9)), NOW)],
        "started again": [LIVE, arrived(dataclasses.replace(READY, restarts=(Restart(NOW, "", "signal 9"),)))],
        "no advice": [LIVE, arrived(dataclasses.replace(FAILED, log=dataclasses.replace(FAILED.log, advice=None)))],
        "patch refused": [LIVE, arrived(dataclasses.replace(READY, log=dataclasses.replace(READY.log, refused="no room")))],
        "slow": [LIVE, *(arrived(READY, dataclasses.replace(RUNNING, bytes_per_s=1e9 if n < 230 else 1e8), NOW + 2 * n) for n in range(300))],
        "nothing yet": SERVING,
        "refused": [ConnectionChanged(Connection("refused", "no", NOW))],
        "lost": [ConnectionChanged(Connection("waiting", "no", NOW)), ConnectionChanged(Connection("waiting", "no", NOW + 99))],
    }  # fmt: skip
    for events in [*(SCENES[name] for name in SCENES if name != "lost"), *extras.values()]:
        state = initial(NOW, "box", keyed)
        for event in events:
            if not isinstance(event, AlertRaised):
                state = reduce(state, event)
        yield from (f"{alert.text} {alert.cure}" for alert in state.alerts)
        yield from (why_not(key.act, state, False) for key in KEYS if key.act and key.act not in ("setup", "run_all"))
        yield from (step.detail for step in state.steps)
        yield from losses.of_extraction_stop(state.snapshot, keyed)
        for draw in (draw_server, draw_extraction):
            yield from (str(line) for line in draw(View(state, NOW, UNICODE, 300, 40)))


def test_no_sentence_names_a_key_that_is_another_one_now() -> None:
    said = [text for text in sentences() if text]
    assert not [text for text in said if OURS.search(text)]
    named = {name for name in SHOWN if any(f"<{name}>" in text for text in said)}
    assert named == {
        "server.start", "server.restart", "extract.start", "extract.pause", "deploy", "reconnect", "verify", "stop", "focus.4",
    }  # fmt: skip


async def test_the_log_s_title_and_the_help_name_ones_own_keys() -> None:
    app, _ = console(
        SERVING, settings=Settings(keys={"log.follow": "f5", "log.rank": "f6", "copy": "f7", "detach": "f8"})
    )
    said: list[str] = []
    app.notify = lambda message, **_: said.append(message)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=(160, 110)) as pilot:
        app.log_panel.feed("job", b"[2026-01-02 03:04:05] one\n", 0)
        await pilot.press("f5")
        await appears(pilot, "(f5 follows)")
        await pilot.press("L")
        await appears(pilot, "(f6, L, P, &)")
        await pilot.press("ctrl+c")
        assert said[-1].startswith("ctrl+c stops nothing; f8 detaches")
        await pilot.press("question_mark")
        await appears(pilot, "f7 copies it")


async def test_the_settings_may_say_that_one_only_watches() -> None:
    app, controller = console(SERVING, settings=Settings(readonly=True))
    async with app.run_test() as pilot:
        await settled(pilot)
        await pilot.press("t")
        await settled(pilot)
        assert controller.calls == []
        assert "read-only" in text_of(app)


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
async def test_the_footer_shows_what_works_now_and_always_the_way_out(width: int) -> None:
    app, _ = console(EXTRACTING)
    async with app.run_test(size=(width, 35)) as pilot:
        await settled(pilot)
        line = footer(app)
        assert "? help" in line
        assert "q detach" in line
        assert " s start" not in line
        assert "e extract" not in line
        if width >= 80:
            for words in ("p pause", "R restart", "t probe", "v verify", "x stop", "l log", "^p all"):
                assert words in line


@pytest.mark.parametrize(("height", "shown"), [(8, "25"), (12, "125"), (16, "1235"), (24, "12345")])
async def test_a_low_terminal_hides_panels_by_rule_and_says_how_many(height: int, shown: str) -> None:
    app, _ = console("trouble")
    async with app.run_test(size=(80, height)) as pilot:
        await settled(pilot)
        panels = {panel.id for panel in app.screen.query(".panel") if panel.display and panel.region.height}
        assert panels == {f"panel-{number}" for number in shown}
        assert all(panel.region.bottom < height for panel in app.screen.query(".panel") if panel.id in panels)
        hidden = 5 - len(shown)
        assert ("hidden" in footer(app)) == bool(hidden)
        if hidden:
            assert f"{hidden} panel" in footer(app)
        await pilot.press("l")  # one that is hidden is shown alone
        await settled(pilot)
        assert "Prefill batch" in text_of(app)
        assert "hidden" not in footer(app)
        await pilot.press("escape")
        await settled(pilot)
        assert "3,731 / 10,000" in text_of(app)
        assert "11.8 samples/s" in text_of(app)


async def test_the_footer_calls_pause_resume_while_paused() -> None:
    app, controller = console(EXTRACTING)
    async with app.run_test(size=(100, 35)) as pilot:
        await settled(pilot)
        assert "p pause" in footer(app)
        controller.queue.put_nowait(arrived(READY, dataclasses.replace(RUNNING, state=ExtractState.PAUSED), NOW + 1))
        await settled(pilot)
        assert "p resume" in footer(app)


async def test_a_click_on_the_footer_is_the_key() -> None:
    app, controller = console(SERVING)
    async with app.run_test(size=(120, 35)) as pilot:
        await settled(pilot)
        at = footer(app).index("t probe")
        for offset in (at, at + 4):
            await pilot.click("#keys", offset=(offset, 0))
            await settled(pilot)
        assert controller.calls == ["probe", "probe"]


async def palette(pilot: Pilot[None], words: str) -> None:
    await pilot.press("ctrl+p")
    await settled(pilot)
    assert CommandPalette.is_open(pilot.app)
    await pilot.press(*words)
    for _ in range(200):
        if "box: deploy" not in text_of(pilot.app):  # type: ignore[arg-type]
            return
        await pilot.pause(0.05)


@pytest.mark.parametrize(
    ("scene", "said", "calls"),
    [
        (SERVING, "server: probe", ["probe"]),
        (IDLE, "not now: The server does not serve yet: not running.", []),
    ],
    ids=["possible", "not now"],
)
async def test_the_palette_does_by_name_what_is_possible_and_says_why_the_rest_is_not(
    scene: list[Event], said: str, calls: list[str]
) -> None:
    app, controller = console(scene)
    async with app.run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        await palette(pilot, "probe")
        await appears(pilot, said)
        await pilot.press("down", "enter")
        await settled(pilot)
        assert controller.calls == calls


async def test_the_palette_has_every_key_under_the_words_of_footer_and_help() -> None:
    app, _ = console(EXTRACTING)
    async with app.run_test() as pilot:
        await settled(pilot)
        found = {hit.text async for hit in Everything(app.screen).discover()}
        assert {name for name in found if name.startswith("theme: ")} == {
            f"theme: {theme.name}" for theme in themes.OWN
        }
        assert {name for name in found if not name.startswith("theme: ")} == {
            f"{key.group}: {key.label}" for key in app.keys if key.id != "palette"
        }


async def test_a_theme_is_taken_by_name_and_the_settings_give_the_first() -> None:
    app, _ = console(SERVING, settings=Settings(theme="eagle-light"))
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await settled(pilot)
        assert app.theme == "eagle-light"
        await palette(pilot, "blueorange")
        await appears(pilot, "theme: eagle-blue-orange")
        await pilot.press("down", "enter")
        await settled(pilot)
        assert app.theme == "eagle-blue-orange"
        await appears(pilot, 'theme = "eagle-blue-orange" in')


def contrast(one: str, other: str) -> float:
    """The ratio of the Web Content Accessibility Guidelines, 1 to 21."""
    from textual.color import Color

    def luminance(text: str) -> float:
        parts = [value / 255 for value in Color.parse(text).rgb]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", themes.OWN, ids=lambda theme: theme.name)
def test_every_colour_of_a_theme_can_be_read_on_its_ground(theme: object) -> None:
    assert isinstance(theme, type(themes.DARK))
    for name in ("foreground", "accent", "success", "warning", "error"):
        for ground in ("background", "surface"):
            ratio = contrast(getattr(theme, name), getattr(theme, ground))
            assert ratio >= 4.5, f"{name} on {ground}: {ratio:.1f}"


async def test_a_screenshot_is_saved_beside_the_ones_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app, _ = console(SERVING)
    async with app.run_test(size=(100, 35), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+s", "ctrl+s")
        await appears(pilot, "saved")
    assert sorted(os.listdir(tmp_path)) == ["eagle3-console-2.svg", "eagle3-console.svg"]
    assert "gpu-box" in (tmp_path / "eagle3-console.svg").read_text()


def alert(number: int, level: str = "error") -> AlertRaised:
    text = f"trouble [{number}] with a path /data/hidden/{'x' * 60}"
    return AlertRaised(Alert(NOW - 1000 + number, level, f"c{number}", text, f"cure number {number}"))  # type: ignore[arg-type]


async def test_errors_that_nobody_looked_at_are_counted_in_the_header() -> None:
    app, controller = console([LIVE, arrived(READY), *(alert(number) for number in range(3)), alert(3, "warning")])
    async with app.run_test(size=(100, 35)) as pilot:
        await settled(pilot)
        header = text_of(app).splitlines()[0]
        assert "✗ 3 new errors (a)" in header
        await pilot.press("a")
        await settled(pilot)
        assert "new error" not in text_of(app).splitlines()[0]
        controller.queue.put_nowait(alert(5))
        await settled(pilot)
        assert "new error" not in text_of(app).splitlines()[0]  # it is on the screen
        await pilot.press("a")
        controller.queue.put_nowait(alert(6))
        await settled(pilot)
        assert "✗ 1 new error (a)" in text_of(app).splitlines()[0]


async def test_the_history_shows_every_alert_with_its_cure_and_scrolls() -> None:
    app, _ = console([LIVE, arrived(READY), *(alert(number) for number in range(40))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        await settled(pilot)
        seen = text_of(app)
        assert "trouble [39]" in seen
        assert "cure number 39" in seen
        assert "trouble [0]" not in seen
        await pilot.press("end")
        await settled(pilot)
        assert "cure number 0" in text_of(app)
        assert "trouble [39]" not in text_of(app)
        await pilot.press("home")
        await settled(pilot)
        assert "trouble [39]" in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert "1 Server" in text_of(app)
