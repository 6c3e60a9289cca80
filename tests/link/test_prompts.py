"""Questions on a real terminal, and none where there is no terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from eagle3_console.link.prompts import printable

SCRIPT = """
import asyncio, sys
from eagle3_console.link.prompts import TerminalPrompter
print("answer:", repr(asyncio.run(eval(sys.argv[1], {"p": TerminalPrompter()}))))
"""


class Terminal:
    """A program on a pseudo-terminal of its own, with other things on its standard input and output."""

    def __init__(self, question: str) -> None:
        self._main, self._side = pty.openpty()

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(self._side, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._side,
            preexec_fn=own_terminal,
        )
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        until = time.monotonic() + 30
        while text not in self.shown:
            assert time.monotonic() < until, self.shown
            if select.select([self._main], [], [], 0.2)[0]:
                self.shown += os.read(self._main, 4096)

    def type(self, text: bytes) -> None:
        os.write(self._main, text)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._side)[3] & termios.ECHO)

    def until_hidden(self) -> None:
        until = time.monotonic() + 30
        while self.echoes():
            assert time.monotonic() < until
            time.sleep(0.01)

    def answer(self) -> str:
        out, _ = self.process.communicate(timeout=30)
        return out.decode().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._main)
        os.close(self._side)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize("terminal", ["p.password('Password for root@box: ')"], indirect=True)
def test_a_password_is_not_shown(terminal: Terminal) -> None:
    terminal.wait_for(b"Password for root@box: ")
    terminal.until_hidden()
    terminal.type("gehe¡m\n".encode())
    assert terminal.answer() == "answer: 'gehe¡m'"
    terminal.wait_for(b"\n")
    assert b"gehe" not in terminal.shown
    assert terminal.echoes()


@pytest.mark.parametrize("terminal", ["p.accept_host_key('box:22', 'ED25519', 'SHA256:abc')"], indirect=True)
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (b"yes\n", "True"),
        (b"no\n", "False"),
        (b"y\n", "True"),
        (b"n\n", "False"),
        (b"yeah\nYES\n", "True"),
        (b"\nno\n", "False"),
    ],
)
def test_a_new_host_key_needs_a_clear_answer(terminal: Terminal, typed: bytes, answer: str) -> None:
    terminal.wait_for(b"(yes/no)? ")
    assert b"SHA256:abc" in terminal.shown
    for line in typed.splitlines(True):
        terminal.type(line)
        if line in (b"yeah\n", b"\n"):
            terminal.wait_for(b"Please type yes or no: ")
    assert terminal.answer() == f"answer: {answer}"


@pytest.mark.parametrize(
    "terminal", ["p.challenge('T', 'say', [('Code: ', True), ('\\x1b[2JPin: ', False)])"], indirect=True
)
def test_questions_of_a_server_cannot_steer_the_terminal(terminal: Terminal) -> None:
    terminal.wait_for(b"say\r\nCode: ")
    terminal.type(b"123\n")
    terminal.wait_for(b"?[2JPin: ")
    terminal.until_hidden()
    terminal.type(b"9\n")
    assert terminal.answer() == "answer: ['123', '9']"


@pytest.mark.parametrize("terminal", ["p.passphrase('/keys/id')"], indirect=True)
def test_ctrl_c_ends_it_at_once_and_the_terminal_shows_typing_again(terminal: Terminal) -> None:
    terminal.wait_for(b"Passphrase for /keys/id: ")
    terminal.until_hidden()
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.answer() == ""
    assert terminal.process.returncode != 0
    assert terminal.echoes()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("p.password('?')", "None"),
        ("p.passphrase('k')", "None"),
        ("p.accept_host_key('h','a','f')", "False"),
        ("p.challenge('','',[('x',True)])", "None"),
    ],
)
def test_without_a_terminal_nobody_is_asked(question: str, answer: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, question],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=60,
    )
    assert done.stdout.decode().strip() == f"answer: {answer}", done.stderr
    assert done.stderr == b""


def test_control_characters_are_not_shown() -> None:
    assert printable("a\x1b]0;x\x07\nb\u202e") == "a?]0;x?\nb?"


def test_what_only_names_errors_does_not_load_the_ssh_library() -> None:
    code = "import sys; import eagle3_console.link.errors, eagle3_console.link.base, eagle3_console.link.target; print('asyncssh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"False"
