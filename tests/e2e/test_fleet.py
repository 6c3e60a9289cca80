"""Several boxes over real SSH, each with a home, keys and an agent of its own; nothing needs SGLang here."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from eagle3_console.cli import build_parser
from eagle3_console.commands.boxes import dial_all
from eagle3_console.controller import SessionController
from eagle3_console.demo.box import EmbeddedBox, embedded_box
from eagle3_console.headless import Narrator
from eagle3_console.plan import Plan
from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from eagle3_console.ui.fleet import FleetApp
from tests.e2e.conftest import Hosted, console


@contextlib.asynccontextmanager
async def boxes(root: Path, count: int) -> AsyncIterator[list[EmbeddedBox]]:
    """So many boxes, reached with one key and one file of host keys, but for the last, which refuses the login."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for number in range(count):
            home = root / f"box{number}"
            home.mkdir()
            found.append(await stack.enter_async_context(embedded_box(home, {})))
        one_key(found)
        yield found


def one_key(found: list[EmbeddedBox]) -> None:
    """The first box's key opens all but the last."""
    first = found[0].identity_file.parent
    (first / "known_hosts").write_text("".join((box.known_hosts).read_text() for box in found))
    for box in found[1:-1]:
        shutil.copy(first / "authorized_keys", box.identity_file.parent / "authorized_keys")


def login(found: list[EmbeddedBox]) -> list[str]:
    first = found[0]
    return [
        "-F",
        "none",
        "-i",
        str(first.identity_file),
        "--known-hosts",
        str(first.known_hosts),
        "--python",
        sys.executable,
    ]


async def until(pilot: Pilot[None], true: object) -> None:
    assert callable(true)
    for _ in range(600):
        if true():
            return
        await pilot.pause(0.1)
    app = pilot.app
    assert isinstance(app, FleetApp)
    raise AssertionError([(box.host, box.state.connection) for box in app.boxes])


async def test_three_boxes_one_refuses_one_is_cut_and_comes_back(tmp_path: Path) -> None:
    async with boxes(tmp_path, 3) as found:
        args = build_parser()[0].parse_args(["open", *(box.address for box in found), *login(found)])
        dialled = await dial_all(args, Narrator(quiet=True))
        assert [one.fault is None for one in dialled] == [True, True, False]
        app = FleetApp(
            [(one.host, SessionController(one.session, Plan(), first=one.fault), None) for one in dialled],
            ascii_signs=False,
        )
        async with app.run_test(size=(120, 35)) as pilot:
            a, b, c = app.boxes
            await until(pilot, lambda: a.state.snapshot is not None and b.state.snapshot is not None)
            assert c.state.connection.word == "refused"
            shown = app.list.list.render().plain  # type: ignore[attr-defined]
            assert shown.count("● connected") == 2
            assert "○ refused" in shown
            assert "3 boxes, 2 connected" in shown
            since = b.state.connection.since
            found[1].cut()
            await until(pilot, lambda: b.state.connection.live and b.state.connection.since != since)
            assert a.state.connection.live
            await pilot.press("down", "enter")
            await until(pilot, lambda: app.screen is b.dashboard)
            await pilot.press("escape")
            # the door is opened: the person asks once more, and the box is there
            shutil.copy(found[0].identity_file.parent / "authorized_keys", found[2].identity_file.parent)
            await pilot.press("down", "r")
            await until(pilot, lambda: c.state.snapshot is not None)
            assert c.state.connection.live
            await pilot.press("q")
        for one in dialled:
            await one.session.leave()
    assert (tmp_path / "box0" / "home" / ".eagle3-console").is_dir()
    assert (tmp_path / "box1" / "home" / ".eagle3-console").is_dir()


@pytest.fixture
def hosted(tmp_path: Path) -> object:
    running = []
    for number in range(3):
        home = tmp_path / f"box{number}"
        home.mkdir()
        running.append(Hosted(home, {}))
    yield running
    for one in running:
        one.close()


def test_status_of_several_boxes(hosted: list[Hosted], tmp_path: Path) -> None:
    found = [one.box for one in hosted]
    one_key(found)
    record = tmp_path / "look.ndjson"
    words = [*(box.address for box in found), "127.0.0.1:1", *login(found), "--json", "--record", record]
    ran = console("status", *words, timeout=120)
    assert ran.code == 4, ran.err
    told = json.loads(ran.out)
    assert [one["host"] for one in told] == [*(box.address for box in found), "127.0.0.1:1"]
    assert [one["link"] for one in told] == ["connected", "connected", "refused", "lost"]
    assert [one["phase"] for one in told] == ["not-running", "not-running", None, None]
    assert told[2]["sentence"]
    recorded = sorted(tmp_path.glob("look-*.ndjson"))
    assert len(recorded) == 4
    players = [Player(Recording(path)) for path in recorded]
    for player in players:
        player.advance(1e9)
    assert sorted(player.state.connection.word for player in players) == ["connected", "connected", "lost", "refused"]
    text = console("status", found[0].address, *login(found))
    assert text.code == 0, text.err
    assert text.out.startswith(f"{found[0].address}: server not-running")


def test_the_screen_on_several_boxes_needs_a_terminal_before_anybody_is_asked(hosted: list[Hosted]) -> None:
    found = [one.box for one in hosted]
    ran = console(found[0].address, found[1].address, *login(found))
    assert ran.code == 2
    assert "The list of boxes needs a terminal." in ran.err
    assert "connecting" not in ran.err
