"""A real pseudo-terminal around a real process."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence

from tests.conftest import ROOT

PROGRAM = """
import asyncio
import sys
from eagle3_console.ui.app import ConsoleApp
from tests.ui.scenes import SCENES, TARGET, ScriptedController
from eagle3_console.settings import Settings
app = ConsoleApp(ScriptedController(SCENES["trouble"]), TARGET, Settings(theme="eagle-dark"))
asyncio.run(app.run_async())
sys.exit(app.return_code)
"""
"""The screen on a scene, until it is left."""
CRASHING = PROGRAM.replace("asyncio.run(", "ConsoleApp.action_follow = lambda self: 1 / 0\nasyncio.run(")
"""The screen, which has a fault that the key f brings out."""
BUSY = """
import asyncio
import dataclasses
import sys
from eagle3_console.events import LogArrived
from eagle3_console.settings import AlertSettings, Settings
from eagle3_console.ui.app import ConsoleApp
from eagle3_remote.protocol import ExtractState
from tests.ui.scenes import LIVE, NOW, READY, RUNNING, TARGET, ScriptedController, arrived, log_bytes
class Running(ScriptedController):
    async def events(self):
        yield LIVE
        for n in range(10 ** 6):
            state = ExtractState.PAUSED if n == 20 else ExtractState.RUNNING
            yield arrived(READY, dataclasses.replace(RUNNING, stored=n, state=state, sentence="[the] dump is full"), NOW + n)
            yield LogArrived("job", log_bytes(50), n * len(log_bytes(50)))
            await asyncio.sleep(0.1)
wanted = AlertSettings(bell="warning", desktop="osc9", desktop_from="warning")
app = ConsoleApp(Running(), TARGET, Settings(alerts=wanted))
asyncio.run(app.run_async())
sys.exit(app.return_code)
"""
"""An extraction that goes on, and pauses once."""
SENT = b"]9;eagle3-console: root@gpu-box: warning: extraction paused: [the] dump is full\a"


class Terminal:
    """A program in a pseudo-terminal of its own.

    Args:
        program: Python source.
        words: instead of a program: arguments of the console's own command.
        size: columns and rows.
        env: added to the environment.
    """

    def __init__(
        self, program: str = PROGRAM, words: Sequence[str] = (), size: tuple[int, int] = (80, 24), **env: str
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(*size)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
        for name in ("TMUX", "COLUMNS", "LINES"):
            kept.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, *(["-m", "eagle3_console", *words] if words else ["-c", program])],
            cwd=ROOT,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
            start_new_session=True,
            preexec_fn=self._own_the_terminal,
        )
        self.seen = b""

    def _own_the_terminal(self) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, rows: int) -> None:
        """Another size; the kernel sends SIGWINCH."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[object]:
        """The line discipline: echo, signals and so on."""
        return termios.tcgetattr(self.slave)

    def type(self, keys: bytes) -> None:
        """As a person does."""
        os.write(self.master, keys)

    def read_until(self, words: bytes, seconds: float = 60) -> None:
        """Read until `words` were written, or the terminal is closed."""
        end = time.monotonic() + seconds
        while words not in self.seen and time.monotonic() < end and self.read(0.2):
            pass
        assert words in self.seen, self.seen[-2000:]

    def read(self, seconds: float) -> bool:
        """Read what comes, waiting so long for it. False: the terminal is closed."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def finish(self, before: list[object] | None = None) -> int:
        """Read to the end; the exit code. With `before`: the terminal's modes are those again."""
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.2)
        if self.process.poll() is None:
            self.process.kill()
            raise AssertionError(f"it does not end: {self.seen[-3000:]!r}")
        while select.select([self.master], [], [], 0.2)[0] and self.read(0):
            pass
        after = self.modes()
        os.close(self.master)
        os.close(self.slave)
        assert before is None or after == before, "the terminal is left in another mode"
        return self.process.returncode


class Drained:
    """A terminal that somebody reads all the time, and keeps nothing of it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.bytes = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._terminal.process.poll() is None and self._terminal.read(0.2):
            self.bytes += len(self._terminal.seen)
            self._terminal.seen = b""
