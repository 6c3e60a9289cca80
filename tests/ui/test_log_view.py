"""The log never moves under a reader, and finds what is looked for."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from eagle3_console.settings import Settings
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.log_buffer import LogBuffer
from eagle3_console.ui.widgets.log_view import LogView
from eagle3_remote.protocol import Phase, PhaseSpan
from tests.ui.scenes import FAILED, LIVE, READY, arrived, console
from tests.ui.test_keys import text_of


class LogApp(App[None]):
    """A log view alone."""

    def __init__(self, capacity: int = 1_000) -> None:
        super().__init__()
        self.view = LogView(LogBuffer(capacity, 100_000))

    def compose(self) -> ComposeResult:
        yield self.view


def numbered(start: int, count: int) -> bytes:
    return "".join(f"line {number}\n" for number in range(start, start + count)).encode()


def shown(view: LogView) -> list[str]:
    return [view.render_line(y).text.strip() for y in range(view.size.height)]


async def test_a_followed_log_shows_its_end() -> None:
    app = LogApp()
    async with app.run_test(size=(40, 10)) as pilot:
        app.view.feed(numbered(0, 5_000))
        await pilot.pause(0.2)
        assert shown(app.view) == [f"line {number}" for number in range(4_990, 5_000)]


async def test_the_reader_stays_while_fifty_thousand_lines_arrive_and_the_ring_prunes() -> None:
    app = LogApp(capacity=1_000)
    async with app.run_test(size=(40, 10)) as pilot:
        view = app.view
        view.feed(numbered(0, 1_000))
        await pilot.pause(0.2)
        await pilot.press("pageup", "pageup")
        top, before = view.top, shown(view)
        assert before[0] == f"line {top}"
        for batch in range(50):
            view.feed(numbered(1_000 + 1_000 * batch, 1_000))
            if batch % 10 == 0:
                await pilot.pause(0.12)
        await pilot.pause(0.2)
        assert view.buffer.first > 900
        assert view.top == top
        assert shown(view) == before
        assert view.new_lines == 50_000
        await pilot.press("down")
        assert shown(view)[0] == f"line {top + 1}"
        view.follow()
        await pilot.pause(0.2)
        assert shown(view)[-1] == "line 50999"
        assert view.buffer.end - view.buffer.first <= 51_000
        view.feed(numbered(51_000, 10))
        assert view.buffer.end - view.buffer.first == 1_000


async def test_the_mouse_wheel_stops_the_following() -> None:
    app = LogApp()
    async with app.run_test(size=(40, 10)) as pilot:
        app.view.feed(numbered(0, 200))
        await pilot.pause(0.2)
        app.view.scroll_relative(y=-3, animate=False, immediate=True)
        await pilot.pause(0.2)
        assert not app.view.following
        before = shown(app.view)
        app.view.feed(numbered(200, 200))
        await pilot.pause(0.2)
        assert shown(app.view) == before


async def test_a_resize_keeps_the_end_in_sight() -> None:
    app = LogApp()
    async with app.run_test(size=(40, 20)) as pilot:
        app.view.feed(numbered(0, 200))
        await pilot.pause(0.2)
        await pilot.resize_terminal(40, 6)
        await pilot.pause(0.2)
        assert app.view.following
        assert shown(app.view)[-1] == "line 199"


async def test_markup_and_escapes_are_text() -> None:
    app = LogApp()
    async with app.run_test(size=(60, 5)) as pilot:
        app.view.feed(b"[bold]not bold[/bold] \x1b[2Jstill here\n")
        await pilot.pause(0.2)
        assert shown(app.view)[0] == "[bold]not bold[/bold] still here"


async def test_text_marked_with_the_mouse_is_what_is_copied() -> None:
    app = LogApp(capacity=50)
    async with app.run_test(size=(40, 10)) as pilot:
        app.view.feed(numbered(0, 200))
        await pilot.pause(0.2)
        await pilot.mouse_down(app.view, offset=(5, 2))
        await pilot.hover(app.view, offset=(4, 4))
        await pilot.mouse_up(app.view, offset=(4, 4))
        await pilot.pause(0.2)
        text = app.screen.get_selected_text()
        assert text is not None
        assert text.startswith("192\nline 193\nline")
        assert not app.view.following


LONG = b"short\n" + b"0123456789" * 10 + b" the end\n"


async def test_a_line_that_is_cut_says_so_and_is_read_sideways() -> None:
    app = LogApp()
    async with app.run_test(size=(42, 5)) as pilot:
        app.view.feed(LONG)
        await pilot.pause(0.2)
        width = app.view.room
        seen = [row for row in shown(app.view) if row]
        assert seen == ["short", ("0123456789" * 10)[: width - 1] + ">"]
        await pilot.press("right")
        await pilot.pause(0.1)
        assert app.view.column == width // 2 + 1
        row = shown(app.view)[1]
        assert (row[0], row[-1], len(row)) == ("<", ">", width)
        assert shown(app.view)[0] == "<"
        await pilot.press(*["right"] * 9)
        await pilot.pause(0.1)
        assert shown(app.view)[1].endswith(" the end")
        assert app.view.text_to_copy().splitlines()[1] == LONG.decode().splitlines()[1]
        await pilot.press(*["left"] * 9)
        await pilot.pause(0.1)
        assert [row for row in shown(app.view) if row] == seen


async def test_a_line_of_wide_letters_is_read_to_its_end() -> None:
    app = LogApp()
    async with app.run_test(size=(42, 5)) as pilot:
        app.view.feed(("\u6f22" * 60 + "!\n").encode())
        await pilot.pause(0.2)
        await pilot.press(*["right"] * 9)
        await pilot.pause(0.1)
        assert shown(app.view)[0].endswith("!")


@pytest.mark.parametrize("letter", ["x", "\u6f22", "\U0001f600", "e\u0301"], ids=["narrow", "wide", "emoji", "joined"])
async def test_the_first_key_moves_a_line_of_whatever_letters(letter: str) -> None:
    app = LogApp()
    async with app.run_test(size=(42, 5)) as pilot:
        app.view.feed((letter * (100 // cell_len(letter)) + "!\n").encode())
        await pilot.pause(0.2)
        assert app.view.virtual_size.width == 101
        await pilot.press("right")
        await pilot.pause(0.1)
        assert app.view.column == app.view.room // 2 + 1
        assert shown(app.view)[0].startswith("<")


async def test_the_first_key_moves_a_line_that_the_wheel_brought_into_sight() -> None:
    """It was in sight at no beat before: nothing of its width is known yet."""
    app = LogApp()
    async with app.run_test(size=(42, 5)) as pilot:
        app.view.feed(b"short\n" * 20 + LONG + b"short\n" * 50)
        await pilot.pause(0.2)
        app.view.scroll_to(y=20, animate=False, immediate=True)
        await pilot.pause(0.1)
        assert shown(app.view)[1].endswith(">")
        await pilot.press("right")
        await pilot.pause(0.1)
        assert app.view.column == app.view.room // 2 + 1


@pytest.mark.parametrize("letter", ["x", "\u6f22", "\U0001f600", "e\u0301"], ids=["narrow", "wide", "emoji", "joined"])
async def test_the_first_match_behind_whatever_letters_is_brought_into_sight(letter: str) -> None:
    app = LogApp()
    async with app.run_test(size=(42, 5)) as pilot:
        app.view.feed((letter * (60 // cell_len(letter)) + "the end\n").encode())
        await pilot.pause(0.2)
        assert app.view.search(re.compile("the end"))
        await pilot.pause(0.1)
        assert "the end" in shown(app.view)[0]


async def test_a_match_beyond_the_edge_is_brought_into_sight() -> None:
    app = LogApp()
    async with app.run_test(size=(42, 5)) as pilot:
        app.view.feed(LONG)
        await pilot.pause(0.2)
        assert app.view.search(re.compile("the end"))
        await pilot.pause(0.1)
        assert "the end" in shown(app.view)[1]
        assert app.view.search(re.compile("short"))
        await pilot.pause(0.1)
        assert shown(app.view)[0] == "short"


# With the whole console around it.


async def searching(pilot: Pilot[None], app: ConsoleApp, text: str) -> None:
    await pilot.press("slash", *text, "enter")
    await pilot.pause(0.2)


@pytest.fixture
def app() -> ConsoleApp:
    return console([LIVE, arrived()])[0]


def title(app: ConsoleApp) -> str:
    return str(app.log_panel.border_title)


async def test_search_goes_to_the_last_match_then_around(app: ConsoleApp) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", b"".join(b"line %d\n" % n + b"ERROR here\n" * (n % 100 == 50) for n in range(300)), 0)
        await pilot.pause(0.2)
        await searching(pilot, app, "error")
        assert "match 3 of 3" in title(app)
        assert "ERROR here" in shown(app.log_panel.view)
        await pilot.press("n")
        assert "match 1 of 3" in title(app)
        await pilot.press("N", "N")
        assert "match 2 of 3" in title(app)
        app.log_panel.feed("job", b"ERROR late\n", app.log_panel._next_offset or 0)
        await pilot.pause(0.2)
        assert "match 2 of 4" in title(app)
        assert "standing still, 1 new line " in title(app)
        await pilot.press("y")
        assert app.clipboard == "ERROR here"
        await pilot.press("escape")
        assert "match" not in title(app)


async def test_a_search_without_a_match_says_so(app: ConsoleApp) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", b"line\n", 0)
        await searching(pilot, app, "no [such")
        assert "not found: no [such (as text)" in title(app)
        await searching(pilot, app, "such")
        assert title(app).endswith("not found: such")


@pytest.mark.parametrize("tmux", [True, False])
async def test_in_tmux_a_copy_says_what_to_do_if_it_does_not_arrive(
    app: ConsoleApp, monkeypatch: pytest.MonkeyPatch, tmux: bool
) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0" if tmux else "")
    said: list[str] = []
    app.notify = lambda message, **_: said.append(message)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", b"line\n", 0)
        await pilot.pause(0.2)
        await pilot.press("y")
    assert said[-1].startswith("copied 1 line")
    assert ("set-clipboard on, or w writes a file" in said[-1]) is tmux


async def test_follow_pause_top_and_end(app: ConsoleApp) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", numbered(0, 500), 0)
        await pilot.pause(0.2)
        assert "following" in title(app)
        await pilot.press("g")
        assert shown(app.log_panel.view)[0] == "line 0"
        app.log_panel.feed("job", numbered(500, 214), len(numbered(0, 500)))
        await pilot.pause(0.2)
        assert "standing still, 214 new lines" in title(app)
        assert shown(app.log_panel.view)[0] == "line 0"
        await pilot.press("G")
        await pilot.pause(0.2)
        assert shown(app.log_panel.view)[-1] == "line 713"
        await pilot.press("f")
        assert "standing still" in title(app)
        await pilot.press("f")
        await pilot.pause()
        assert "following" in title(app)


@pytest.mark.parametrize(("right", "left"), [("right", "left"), (")", "("), ("f7", "f6")])
async def test_the_title_says_from_which_column(right: str, left: str) -> None:
    keys = {"log.left": "f6", "log.right": "f7"} if right == "f7" else {}
    app = console([LIVE, arrived()], settings=Settings(keys=keys))[0]
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", b"x" * 300 + b"\n", 0)
        await pilot.pause(0.2)
        assert "column" not in title(app)
        row = next(line for line in text_of(app).splitlines() if "xxx" in line)
        assert "x>" in row, "the sign is in sight, beside the scroll bar"
        await pilot.press(right)
        await pilot.pause(0.1)
        assert f"from column {app.log_panel.view.room // 2 + 1}" in title(app)
        assert "following" in title(app)
        await pilot.press(left)
        await pilot.pause(0.1)
        assert "column" not in title(app)


@pytest.mark.parametrize("move", ["home", "wheel"])
async def test_the_column_in_the_title_is_the_one_in_sight_whatever_moved_the_lines(app: ConsoleApp, move: str) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        view = app.log_panel.view
        app.log_panel.feed("job", (b"x" * 300 + b"\n") * 100, 0)
        await pilot.pause(0.2)
        await pilot.press("right", "right")
        await pilot.pause(0.1)
        assert f"from column {view.column}" in title(app)
        if move == "home":
            await pilot.press("home")
        else:
            view.scroll_to(x=0, animate=False)
        await pilot.pause(0.3)
        assert view.column == 1
        assert "column" not in title(app)
        await pilot.press("up")
        await pilot.press("end")
        await pilot.pause(0.3)
        assert "following" in title(app)


@pytest.mark.parametrize("following", [True, False])
async def test_what_was_not_found_can_be_read_at_eighty_columns(following: bool) -> None:
    app = console([LIVE, arrived()])[0]
    async with app.run_test(size=(80, 24)) as pilot:
        app.log_panel.feed("server-20270115t080000-3f2a", numbered(0, 50), 0)
        await pilot.pause(0.2)
        if not following:
            await pilot.press("l", "f")
        await searching(pilot, app, "[Pre")
        await pilot.pause(0.2)
        assert "not found: [Pre (as text)" in text_of(app)


async def test_a_filter_that_no_line_passes_says_so(app: ConsoleApp) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", numbered(0, 50), 0)
        await pilot.pause(0.2)
        await pilot.press("ampersand", *"nowhere", "enter")
        await pilot.pause(0.2)
        assert [line for line in shown(app.log_panel.view) if line] == ["no line matches (esc: all lines)"]
        app.log_panel.feed("job", b"nowhere else\n", len(numbered(0, 50)))
        await pilot.pause(0.2)
        assert [line for line in shown(app.log_panel.view) if line] == ["nowhere else"]
        await pilot.press("ampersand", *"nobody", "enter", "escape")
        await pilot.pause(0.2)
        assert not any("no line" in line for line in shown(app.log_panel.view))


async def test_bytes_are_shown_once(app: ConsoleApp) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        panel = app.log_panel
        panel.feed("job", b"one\ntwo\n", 0)
        panel.feed("job", b"two\nthree\n", 4)
        panel.feed("job", b"four\n", 1_000)
        await pilot.pause(0.2)
        text = [line for line in shown(panel.view) if line]
        assert text == ["one", "two", "three", "four"]  # who reads the log tells of a gap
        panel.feed("other", b"tail\n", 5_000)
        await pilot.pause(0.2)
        text = [line for line in shown(panel.view) if line]
        assert text == ["[console] the first 5,000 bytes are in the file", "tail"]
        assert "other" in title(app)


RANKS = (
    b"[2026-01-02 03:04:05] server_args=ServerArgs()\n"
    b"[2026-01-02 03:04:06 TP0] Load weight begin.\n"
    b"[2026-01-02 03:04:06 TP1] Load weight begin.\n"
    b"[2026-01-02 03:04:07 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
    b'  File "x.py", line 1, in run\n'
    b"ValueError: no room\n"
    b"[2026-01-02 03:04:08 TP0] WARNING: late\n"
)


def lines(app: ConsoleApp) -> list[str]:
    return [line for line in shown(app.log_panel.view) if line]


async def test_the_log_is_filtered_by_rank_and_level_and_goes_on(app: ConsoleApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        app.log_panel.feed("job", RANKS, 0)
        await pilot.pause(0.2)
        await pilot.press("L", "L")
        await pilot.pause(0.2)
        assert [line[-20:] for line in lines(app)] == [
            "t recent call last):",
            '"x.py", line 1, in run'[-20:],
            "ValueError: no room",
        ]
        assert "all ranks, error: 3 of 7 lines" in title(app)
        await pilot.press("L", "K", "K")
        await pilot.pause(0.2)
        assert "TP1: 4 of 7 lines" in title(app)
        await searching(pilot, app, "weight")
        assert "match 1 of 1" in title(app)
        app.log_panel.feed(
            "job", b"[2026-01-02 03:04:09 TP1] more weight\n[2026-01-02 03:04:09 TP0] other\n", len(RANKS)
        )
        await pilot.pause(0.2)
        assert lines(app)[-1].endswith("more weight")
        assert "match 1 of 2" in title(app)
        assert "TP1: 5 of 9 lines" in title(app)
        await pilot.press("escape", "escape")
        await pilot.pause(0.2)
        assert app.log_panel.text().count("\n") == 9
        assert "lines (p, l)" not in title(app)
        app.log_panel.feed("other", b"[2026-01-02 03:04:10] new\n", 0)
        await pilot.press("L", "L", "L", "K")
        await pilot.pause(0.2)
        assert lines(app) == ["[2026-01-02 03:04:10] new"]


PHASES = (
    b"early, without a stamp\n"
    b"[2026-01-02 03:04:05] server_args=ServerArgs()\n"
    b"[2026-01-02 03:04:06 TP0] Load weight begin.\n"
    b"  [bold]goes on[/bold]\n"
    b"[2026-01-02 03:04:08 TP0] The server is fired up and ready to roll!\n"
)
SPANS = (
    PhaseSpan(Phase.SPAWNING, None),
    PhaseSpan(Phase.INITIALISING, 0.0, 1767323045.0),
    PhaseSpan(Phase.LOADING_WEIGHTS, 1.0, 1767323046.0),
    PhaseSpan(Phase.READY, 3.0, 1767323048.0),
)


async def test_the_log_is_filtered_by_phase_and_goes_on() -> None:
    phased = dataclasses.replace(READY, log=dataclasses.replace(READY.log, spans=SPANS))
    app = console([LIVE, arrived(phased)])[0]
    async with app.run_test(size=(130, 40)) as pilot:
        app.log_panel.feed("job", PHASES, 0)
        app.take(arrived(phased))
        seen = []
        for _ in range(5):
            await pilot.press("P")
            await pilot.pause(0.2)
            seen.append(lines(app))
        one, two, three, four, everything = seen
        assert one == ["early, without a stamp"]
        assert two == ["[2026-01-02 03:04:05] server_args=ServerArgs()"]
        assert three == ["[2026-01-02 03:04:06 TP0] Load weight begin.", "[bold]goes on[/bold]"]
        assert four == ["[2026-01-02 03:04:08 TP0] The server is fired up and ready to roll!"]
        assert len(everything) == 5
        await pilot.press("P", "P", "P", "P")
        app.log_panel.feed("job", b"[2026-01-02 03:04:09] serving\n", len(PHASES))
        await pilot.pause(0.2)
        assert "all ranks, ready: 2 of 6 lines (K, L, P, &)" in title(app)


async def test_a_log_of_no_known_phase_stays_as_it_is(app: ConsoleApp) -> None:
    async with app.run_test(size=(100, 40)) as pilot:
        app.log_panel.feed("job", PHASES, 0)
        await pilot.press("P")
        await pilot.pause(0.2)
        assert len(lines(app)) == 5


async def test_the_root_cause_is_marked_in_words_and_not_copied() -> None:
    failed = dataclasses.replace(FAILED, log=dataclasses.replace(FAILED.log, root_cause="ValueError: no room"))
    app = console([LIVE, arrived(failed)])[0]
    async with app.run_test(size=(120, 40)) as pilot:
        app.log_panel.feed("job", RANKS, 0)
        app.take(arrived(failed))
        await pilot.pause(0.2)
        assert [line for line in lines(app) if "root cause" in line] == ["ValueError: no room  <- root cause"]
        assert "root cause" not in app.log_panel.text()
        await searching(pilot, app, "no room")
        assert "ValueError: no room  <- root cause" in lines(app)
        await pilot.press("y")
        assert app.clipboard == "ValueError: no room"
        app.take(arrived(READY))
        await pilot.pause(0.2)
        assert not [line for line in lines(app) if "root cause" in line]


async def test_c_goes_to_the_line_that_names_the_cause() -> None:
    failed = dataclasses.replace(FAILED, log=dataclasses.replace(FAILED.log, root_cause="ValueError: no room"))
    app = console([LIVE, arrived(failed)])[0]
    async with app.run_test(size=(120, 40)) as pilot:
        app.log_panel.feed("job", numbered(0, 300), 0)
        await pilot.press("c")
        assert app.log_panel.view.following  # not there: told, and nothing moved
        app.log_panel.feed("job", RANKS + numbered(300, 300), len(numbered(0, 300)))
        await pilot.press("K", "c")
        await pilot.pause(0.2)
        view = app.log_panel.view
        assert view.current is not None
        assert view.buffer.line(view.current) == "ValueError: no room"
        assert "ValueError: no room  <- root cause" in lines(app)
        assert len(view.buffer.find(re.compile("line 299"))) == 1  # the filter is off


def saved(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


async def test_w_saves_what_is_shown_in_a_new_file(
    app: ConsoleApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("w")
        assert saved(tmp_path) == {}
        app.log_panel.feed("job-1", RANKS, 0)
        await pilot.press("w", "L", "L", "w")
        await pilot.pause(0.2)
        files = saved(tmp_path)
        assert files["job-1.log"].encode() == RANKS
        assert files["job-1-2.log"].splitlines()[-1] == "ValueError: no room"
        assert len(files) == 2


async def test_and_shows_only_the_lines_that_match_and_goes_on(app: ConsoleApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        app.log_panel.feed("job", RANKS, 0)
        await pilot.pause(0.2)
        await pilot.press("ampersand", *"no room", "enter")
        await pilot.pause(0.2)
        assert [line[-7:] for line in lines(app)] == ["no room"]
        assert "all ranks, with no room: 1 of " in title(app)
        app.log_panel.feed("job", b"there is no room [here]\nother\n", len(RANKS))
        await pilot.pause(0.2)
        assert lines(app)[-1] == "there is no room [here]"
        await pilot.press("ampersand", *"room [", "enter")
        await pilot.pause(0.2)
        assert lines(app) == ["there is no room [here]"]
        assert "with room [ (as text): 1 of " in title(app)
        await searching(pilot, app, "[here")
        assert "match 1 of 1 (as text) (n, N)" in title(app)
        await searching(pilot, app, "here")
        assert "match 1 of 1 (n, N)" in title(app)
        await pilot.press("ampersand", "enter")
        await pilot.pause(0.2)
        assert lines(app)[-1] == "other"
        await pilot.press("ampersand", *"no room", "enter", "escape", "escape")
        await pilot.pause(0.2)
        assert lines(app)[-1] == "other"
