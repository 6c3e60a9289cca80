"""Asking on the terminal, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RefusingPrompter:
    """Nobody is there: everything is declined, and the error that follows says what to do."""

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        return False

    async def password(self, prompt: str) -> str | None:
        return None

    async def passphrase(self, path: str) -> str | None:
        return None

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        return None


class TerminalPrompter:
    """Asks on the controlling terminal, as ssh does, whatever standard input and output are. Without one it declines."""

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        text = (
            f"The host key of {host} is not known here.\n"
            f"{algorithm} key fingerprint: {fingerprint}\n"
            "Compare it with the box's own (there: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub).\n"
        )
        question = "Trust it and store it (yes/no)? "
        while True:
            answer = await _in_thread(_ask, text + question, True)
            if answer is None:
                return False
            word = answer.strip().lower()
            if word in ("yes", "y", "no", "n"):
                return word[0] == "y"
            text, question = "", "Please type yes or no: "

    async def password(self, prompt: str) -> str | None:
        return await _in_thread(_ask, prompt, False)

    async def passphrase(self, path: str) -> str | None:
        return await _in_thread(_ask, f"Passphrase for {path}: ", False)

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        head = "".join(f"{printable(text)}\n" for text in (title, instructions) if text.strip())
        answers = []
        for text, show in prompts:
            question, head = head + printable(text), ""
            answer = await _in_thread(_ask, question, show)
            if answer is None:
                return None
            answers.append(answer)
        return answers


def printable(text: str) -> str:
    """What a server wants shown, without control characters: it must not steer the terminal."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def _ask(prompt: str, show: bool) -> str | None:
    """A line from the controlling terminal; `None` at its end or without one."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    with os.fdopen(descriptor, "r+b", buffering=0) as terminal:
        if show:
            terminal.write(prompt.encode(errors="replace"))
            line = _line(terminal.readline)
        else:
            before = termios.tcgetattr(terminal)
            hidden = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
            try:
                # echo off before the prompt shows: whoever types at once must not see it
                termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
                terminal.write(prompt.encode(errors="replace"))
                line = _line(terminal.readline)
            finally:
                termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
                terminal.write(b"\n")
    return line


def _line(read: Callable[[], bytes]) -> str | None:
    data = read()
    return data.decode(errors="surrogateescape").rstrip("\r\n") if data else None


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking question in a thread of its own, which does not hold up the end of the program after ctrl-c.

    The terminal is put back as it was when the question is given up.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = function(*args, **kwargs)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    before = _terminal_state()
    threading.Thread(target=work, name="terminal question", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        if before is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(sys.__stderr__ or 2, termios.TCSANOW, before)
        raise


def _terminal_state() -> list[Any] | None:
    try:
        return list(termios.tcgetattr(sys.__stderr__ or 2))
    except (termios.error, OSError, ValueError):
        return None
