"""A real terminal around a real process: it is given back as it was, however the console ends, and rings when it should."""

from __future__ import annotations

import collections
import os
import re
import signal
from collections.abc import Iterator

import pytest

from eagle3_console.ui import themes
from eagle3_console.ui.glyphs import ascii_only
from tests.ui.terminal import BUSY, CRASHING, PROGRAM, SENT, Terminal

ALTERNATE_ON, ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"
MOUSE_OFF, CURSOR_ON = b"\x1b[?1000l", b"\x1b[?25h"


@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP), (b"q", 0)]
)
def test_the_terminal_is_given_back(end: signal.Signals | bytes, code: int) -> None:
    terminal = Terminal()
    before = terminal.modes()
    terminal.read_until(b"RUNNING")
    assert terminal.modes() != before
    assert ALTERNATE_ON in terminal.seen
    assert ALTERNATE_OFF not in terminal.seen
    if isinstance(end, bytes):
        os.write(terminal.master, end)
    else:
        terminal.process.send_signal(end)
    assert terminal.finish(before) == code
    after = restored(terminal)
    if end != signal.SIGHUP:
        assert b"go on on root@gpu-box." in after[after.index(ALTERNATE_OFF) :].replace(b"\r\n", b" ")


def restored(terminal: Terminal) -> bytes:
    """What was written since the screen opened; it ended with giving everything back."""
    after = terminal.seen[terminal.seen.index(ALTERNATE_ON) :]
    assert ALTERNATE_OFF in after
    assert MOUSE_OFF in after
    assert CURSOR_ON in after
    return after


def test_the_terminal_is_given_back_after_a_fault_of_the_console() -> None:
    terminal = Terminal(CRASHING)
    before = terminal.modes()
    terminal.read_until(b"RUNNING")
    terminal.type(b"f")
    assert terminal.finish(before) != 0
    after = restored(terminal)
    assert b"ZeroDivisionError" in after[after.index(ALTERNATE_OFF) :]


def test_ctrl_c_detaches_nothing_by_itself_and_an_interrupt_gives_the_terminal_back() -> None:
    terminal = Terminal()
    before = terminal.modes()
    terminal.read_until(b"RUNNING")
    terminal.type(b"\x03")
    for _ in range(5):
        terminal.read(0.2)
    assert terminal.process.poll() is None
    terminal.process.send_signal(signal.SIGINT)
    terminal.finish(before)
    restored(terminal)


def test_a_resize_while_an_extraction_runs_is_survived() -> None:
    terminal = Terminal(BUSY, size=(200, 60))
    terminal.read_until(b"RUNNING")
    down = [(200 - step * 8, 60 - step * 48 // 20) for step in range(21)]
    for size in [*down, *reversed(down), (40, 12), (200, 60), (1, 1), (120, 35)]:
        terminal.resize(*size)
        terminal.read(0.05)
        assert terminal.process.poll() is None, terminal.seen[-3000:]
    terminal.type(b"q")
    assert terminal.finish() == 0
    assert b"Traceback" not in terminal.seen
    restored(terminal)


def test_an_alert_rings_and_is_shown_on_the_desktop() -> None:
    terminal = Terminal(BUSY, size=(120, 35))
    terminal.read_until(b"\a\x1b" + SENT)
    terminal.type(b"q")
    assert terminal.finish() == 0
    assert terminal.seen.count(SENT) == 1


def test_the_c_locale_gets_ascii() -> None:
    terminal = Terminal(LANG="C")
    terminal.read_until(b"RUNNING")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.finish()
    assert terminal.seen.isascii()


def colours(seen: str) -> Iterator[tuple[int | None, int | None]]:
    """Foreground and background of every character that is no blank, as the terminal would keep them."""
    fore = back = None
    for found in re.finditer(r"\x1b\[([0-9;]*)m|\x1b[^a-zA-Z]*[a-zA-Z]|([^\s\x1b])", seen):
        for code in (int(code or 0) for code in (found[1] or "0").split(";")) if found[1] is not None else ():
            if code == 0:
                fore = back = None
            elif code in range(30, 38) or code in range(90, 98):
                fore = code
            elif code in range(40, 48) or code in range(100, 108):
                back = code
        if found[2]:
            yield fore, back


@pytest.mark.parametrize("theme", [theme.name for theme in themes.OWN])
def test_sixteen_colours_are_enough(theme: str) -> None:
    terminal = Terminal(PROGRAM.replace("eagle-dark", theme), TERM="xterm")
    terminal.read_until(b"RUNNING")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.finish()
    seen = terminal.seen.decode()
    assert "38;2;" not in seen
    assert "38;5;" not in seen
    pairs = collections.Counter(colours(seen))
    assert len(pairs) > 3
    assert not [pair for pair in pairs if None not in pair and pair[0] == pair[1] - 10]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "en_US.utf8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, True),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
        ({"LC_CTYPE": "UTF-8"}, False),
    ],
)
def test_what_the_locale_says(environ: dict[str, str], expected: bool) -> None:
    assert ascii_only(environ) is expected
