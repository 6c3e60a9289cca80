"""Several boxes: a line each, each box's own screen behind its line, and the alerts of all in one list."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from eagle3_console import fleet
from eagle3_console.events import Connection, ConnectionChanged, Event
from eagle3_console.state import initial, reduce
from eagle3_console.ui.draw_fleet import draw_box_line, draw_head, draw_total, table
from eagle3_console.ui.draw_server import PHASE_NAMES
from eagle3_console.ui.fleet import FleetApp
from eagle3_console.ui.glyphs import ASCII, UNICODE
from eagle3_console.ui.widgets.help import HelpScreen
from eagle3_remote.protocol import Phase
from tests.ui.scenes import NOW, SCENES, ScriptedController

REFUSED = [
    ConnectionChanged(
        Connection("refused", "login refused for root on h4: tried id_ed25519; the server allows publickey", NOW)
    )
]
BOXES: dict[str, list[Event]] = {
    "root@gpu-a": SCENES["extracting"],
    "root@gpu-b": SCENES["loading"],
    "gpu-c": SCENES["lost"],
    "root@gpu-d.example.org": list(REFUSED),
    "gpu-e": SCENES["failed"],
}


def several(names: list[str] | None = None, **options: Any) -> tuple[FleetApp, dict[str, ScriptedController]]:
    controllers = {host: ScriptedController(BOXES[host]) for host in names or BOXES}
    app = FleetApp(
        [(host, controller, None) for host, controller in controllers.items()],
        wall=lambda: NOW,
        ascii_signs=options.pop("ascii_signs", False),
        **options,
    )
    return app, controllers


async def played(pilot: Pilot[None], controllers: dict[str, ScriptedController]) -> None:
    for controller in controllers.values():
        await controller.played.wait()
    await pilot.pause(0.6)  # longer than a beat


def shown(app: FleetApp) -> list[str]:
    return app.list.list.render().plain.splitlines()


async def test_a_line_a_box_and_their_sum() -> None:
    app, controllers = several()
    async with app.run_test(size=(160, 45)) as pilot:
        await played(pilot, controllers)
        head, a, b, c, d, e, sums = shown(app)
        assert head.split() == ["box", "link", "server", "stored", "/s", "size", "ETA", "disk", "last", "alert"]
        for words in ("▶ root@gpu-a", "● connected", "busy", "3,731/10,000", "11.8", "370 GB", "1 h 30 m", "ok"):
            assert words in a
        assert " weights " in b
        assert "○ waiting" in c
        assert "3,731/10,000" in c
        assert "○ refused" in d
        assert "login refused for root on h4" in d
        assert "failed" in e
        assert "server failed" in e
        assert "5 boxes, 3 connected" in sums
        assert "7,462/20,000" in sums
        assert "740 GB" in sums
        assert sums.split()[5] == "11.8", "the rate of a box that is not connected is not known"


async def test_enter_opens_a_box_and_esc_comes_back() -> None:
    app, controllers = several()
    async with app.run_test(size=(120, 35)) as pilot:
        await played(pilot, controllers)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.screen is app.boxes[1].dashboard
        assert app.target == "root@gpu-b"
        assert app.state is app.boxes[1].state
        await pilot.press("z", "escape")
        assert app.screen is app.boxes[1].dashboard, "first the zoom is left"
        await pilot.press("escape")
        assert app.screen is app.list
        await pilot.press("up", "enter")
        await pilot.pause()
        assert app.screen is app.boxes[0].dashboard
        assert "Prefill batch" in app.log_panel.text(), "what came before it was opened is there"
        await pilot.press("escape", "down", "enter")
        await pilot.pause()
        assert app.screen is app.boxes[1].dashboard, "a second time"


async def test_keys_act_on_the_box_that_is_open_and_on_none_in_the_list() -> None:
    app, controllers = several()
    async with app.run_test(size=(120, 35)) as pilot:
        await played(pilot, controllers)
        await pilot.press("t", "d", "s", "R", "x", "e", "p")
        await pilot.pause()
        assert {host: controller.calls for host, controller in controllers.items()} == {host: [] for host in BOXES}
        assert app.screen is app.list
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("t")
        await pilot.pause()
        assert controllers["root@gpu-a"].calls == ["probe"]
        await pilot.press("escape", "down", "down", "r")
        await pilot.pause()
        assert controllers["gpu-c"].calls == ["reconnect_now"]
        assert controllers["root@gpu-a"].calls == ["probe"]


async def test_what_goes_wrong_is_told_to_the_box_it_was_done_on() -> None:
    app, controllers = several()
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()
        raise RuntimeError("no rows came back")

    controllers["root@gpu-a"].probe = slow  # type: ignore[method-assign]
    async with app.run_test(size=(120, 35)) as pilot:
        await played(pilot, controllers)
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("t")
        await pilot.press("escape", "down", "enter")
        await pilot.pause()
        assert app.target == "root@gpu-b"
        gate.set()
        await pilot.pause(0.2)
        assert "probe: no rows came back" in app.boxes[0].state.alerts[-1].text
        assert not [alert for alert in app.boxes[1].state.alerts if "no rows" in alert.text]


async def test_help_and_leaving() -> None:
    app, controllers = several()
    async with app.run_test(size=(120, 35)) as pilot:
        await played(pilot, controllers)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert app.screen is app.list
        told = app.farewell()
        assert "The extraction (3,731 of 10,000 samples) and the server go on on root@gpu-a." in told
        assert told.endswith(f"Come back with: eagle3-console {' '.join(BOXES)}")
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_click_marks_and_opens() -> None:
    app, controllers = several()
    async with app.run_test(size=(120, 35)) as pilot:
        await played(pilot, controllers)
        await pilot.click(app.list.list, offset=(5, 5))
        assert app.list.list.selected == 4
        await pilot.click(app.list.list, offset=(5, 5))
        await pilot.pause()
        assert app.screen is app.boxes[4].dashboard


async def test_more_boxes_than_lines() -> None:
    hosts = {f"node-{number:03d}": ScriptedController(SCENES["extracting"]) for number in range(60)}
    app = FleetApp([(host, one, None) for host, one in hosts.items()], wall=lambda: NOW, ascii_signs=False)
    async with app.run_test(size=(80, 24)) as pilot:
        await played(pilot, hosts)
        await pilot.press("end")
        lines = shown(app)
        assert len(lines) <= 24
        assert any("▶ node-059" in line for line in lines)
        await pilot.press("home", *["down"] * 20)
        assert any("▶ node-020" in line for line in shown(app))


def lines() -> list[fleet.BoxLine]:
    found = []
    for host, events in BOXES.items():
        state = initial(NOW, host)
        for event in events:
            state = reduce(state, event)
        found.append(fleet.line(host, state))
    return found


@pytest.mark.parametrize("width", [20, 40, 60, 72, 79, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_no_line_is_wider_than_the_screen(width: int, glyphs: Any) -> None:
    boxes = lines()
    room = table(width, [box.host for box in boxes])
    drawn = [draw_box_line(box, room, width, glyphs, NOW, True) for box in boxes]
    drawn += [draw_head(room, width, glyphs), draw_total(fleet.total(boxes), room, width, glyphs)]
    assert max(line.cell_length for line in drawn) <= width


def test_what_never_goes_at_80_columns() -> None:
    boxes = lines()
    room = table(80, [box.host for box in boxes])
    line = draw_box_line(boxes[0], room, 80, UNICODE, NOW, False).plain
    for words in ("root@gpu-a", "connected", "busy", "3,731/10,000", "11.8", "370 GB", "1 h 30 m", "ok"):
        assert words in line
    assert room.alert == 0


@pytest.mark.parametrize("phase", [phase.value for phase in Phase])
def test_no_phase_is_cut(phase: str) -> None:
    box = dataclasses.replace(lines()[0], phase=phase)
    word = draw_box_line(box, table(80, ["h"]), 80, UNICODE, NOW, False).plain.split("connected")[1].split("  ")[1]
    assert 2 < len(word.strip()) <= 10
    assert word.strip() in (phase, *PHASE_NAMES.values(), "down", "no answer")


def test_no_number_is_cut() -> None:
    box = dataclasses.replace(
        lines()[0], stored=123_456, total=12_000_000, bytes_stored=10**15, samples_per_s=123_456.0
    )
    line = draw_box_line(box, table(80, ["h"]), 80, UNICODE, NOW, False).plain
    assert "123k/12000k" in line
    assert "1.00 PB" in line
    assert "123k " in line


def test_alerts_of_all_newest_first() -> None:
    states = []
    for host, events in BOXES.items():
        state = initial(NOW, host)
        for event in events:
            state = reduce(state, event)
        states.append((host, state))
    found = fleet.alerts(states)
    assert {host for host, _ in found} == {"gpu-c", "root@gpu-d.example.org", "gpu-e"}
    assert [alert.at for _, alert in found] == sorted((alert.at for _, alert in found), reverse=True)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_fleet_screen(snap_compare: Callable[..., bool], size: tuple[int, int]) -> None:
    app, controllers = several()

    async def when_still(pilot: Pilot[None]) -> None:
        await played(pilot, controllers)

    assert snap_compare(app, terminal_size=size, run_before=when_still)


def test_fleet_screen_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, controllers = several()

    async def when_still(pilot: Pilot[None]) -> None:
        await played(pilot, controllers)

    assert snap_compare(app, terminal_size=(80, 24), run_before=when_still)
