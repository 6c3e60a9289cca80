"""A real pseudo-terminal around a real process: it is given back as it was, however the console ends."""

from __future__ import annotations

import collections
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from eagle3_console.ui import themes
from eagle3_console.ui.glyphs import ascii_only
from tests.conftest import ROOT

PROGRAM = """
import asyncio
import sys
from eagle3_console.ui.app import ConsoleApp
from tests.ui.scenes import SCENES, TARGET, ScriptedController
from eagle3_console.settings import Settings
app = ConsoleApp(ScriptedController(SCENES["trouble"]), TARGET, Settings(theme=sys.argv[1]))
asyncio.run(app.run_async())
sys.exit(app.return_code)
"""
ALTERNATE_ON, ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"
MOUSE_OFF, CURSOR_ON = b"\x1b[?1000l", b"\x1b[?25h"


class Terminal:
    """The console in a pseudo-terminal of 80 x 24."""

    def __init__(self, theme: str = "eagle-dark", **env: str) -> None:
        self.master, slave = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, theme],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**kept, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "LANG": "C.UTF-8", **env},
            start_new_session=True,
        )
        os.close(slave)
        self.seen = b""

    def read_until(self, words: bytes, seconds: float = 60) -> None:
        """Read until `words` were written, or the terminal is closed."""
        end = time.monotonic() + seconds
        while words not in self.seen and time.monotonic() < end and self._read(0.2):
            pass
        assert words in self.seen, self.seen[-2000:]

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def finish(self) -> int:
        """Read to the end; the exit code."""
        while self.process.poll() is None:
            self._read(0.2)
        while select.select([self.master], [], [], 0.2)[0] and self._read(0):
            pass
        os.close(self.master)
        return self.process.returncode


@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP), (b"q", 0)]
)
def test_the_terminal_is_given_back(end: signal.Signals | bytes, code: int) -> None:
    terminal = Terminal()
    terminal.read_until(b"RUNNING")
    assert ALTERNATE_ON in terminal.seen
    assert ALTERNATE_OFF not in terminal.seen
    if isinstance(end, bytes):
        os.write(terminal.master, end)
    else:
        terminal.process.send_signal(end)
    assert terminal.finish() == code
    after = terminal.seen[terminal.seen.index(ALTERNATE_ON) :]
    assert ALTERNATE_OFF in after
    assert MOUSE_OFF in after
    assert CURSOR_ON in after
    if end != signal.SIGHUP:
        assert b"go on on root@gpu-box." in after[after.index(ALTERNATE_OFF) :].replace(b"\r\n", b" ")


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
    terminal = Terminal(theme, TERM="xterm")
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
