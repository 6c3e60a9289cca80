"""The console in a real tmux: its pane is given back, however the console ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import ROOT
from tests.ui.terminal import CRASHING, PROGRAM


class Tmux:
    """A server of tmux of its own, in a pseudo-terminal, with one window that runs a shell."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._socket = f"eagle3-test-{uuid.uuid4().hex[:8]}"
        self("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "sh")

    def __call__(self, *words: str) -> str:
        ran = subprocess.run(["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=True, cwd=ROOT)
        return ran.stdout.strip()

    def format(self, name: str) -> str:
        return self("display-message", "-p", "#{" + name + "}")

    def run(self, program: str) -> None:
        self("send-keys", "-l", f"{sys.executable} -c '{program}'; echo left with $?\n")

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not true():
            assert time.monotonic() < end, self("capture-pane", "-p")
            time.sleep(0.05)

    def shows(self, words: str) -> bool:
        return words in self("capture-pane", "-p")


@pytest.fixture
def tmux(needs: Callable[[bool, str], None]) -> Iterator[Tmux]:
    found = subprocess.run(["sh", "-c", "command -v tmux"], capture_output=True).returncode == 0
    needs(found, "tmux is not installed")
    made = Tmux((120, 35))
    yield made
    with contextlib.suppress(subprocess.CalledProcessError):
        made("kill-server")


@pytest.mark.parametrize("end", ["TERM", "HUP", "INT", "a fault", "q"])
def test_a_pane_of_tmux_is_given_back(tmux: Tmux, end: str) -> None:
    tmux.run(CRASHING if end == "a fault" else PROGRAM)
    tmux.until(lambda: tmux.shows("RUNNING"))
    assert tmux.format("alternate_on") == "1"
    if end in ("a fault", "q"):
        tmux("send-keys", "q" if end == "q" else "f")
    else:
        shell = tmux.format("pane_pid")
        subprocess.run(["pkill", f"-{end}", "-P", shell], check=True)
    tmux.until(lambda: tmux.shows("left with "))
    assert [tmux.format(name) for name in ("alternate_on", "mouse_any_flag", "cursor_flag")] == ["0", "0", "1"]
    tmux("send-keys", "-l", "echo typed-$((20+3))\n")
    tmux.until(lambda: tmux.shows("typed-23"))


def test_a_pane_that_changes_its_size_is_drawn_anew(tmux: Tmux) -> None:
    tmux("send-keys", "-l", f"{sys.executable} -m eagle3_console replay --at 3:30 --speed 0.5\n")
    tmux.until(lambda: tmux.shows("samples/s now"))
    for columns, rows, seen in ((200, 60, "kv 3,354,142 tokens"), (50, 12, "hidden"), (120, 35, "╭─ 5 Events")):
        tmux("resize-window", "-x", str(columns), "-y", str(rows))
        tmux.until(lambda seen=seen: tmux.shows(seen))  # type: ignore[misc]
        tmux.until(lambda columns=columns: _width(tmux) > columns - 12)  # type: ignore[misc]
    tmux("send-keys", "q")
    tmux.until(lambda: tmux.shows("Left the recording"))


def _width(tmux: Tmux) -> int:
    return max((len(line) for line in tmux("capture-pane", "-p").splitlines()), default=0)
