"""What a link to a box can do, and what it may ask a person."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

STDERR_TAIL = 64 * 1024
"""Bytes of standard error that are kept; the rest is read and dropped, so that it never blocks standard output."""


@dataclasses.dataclass(frozen=True)
class Completed:
    """A program that ended."""

    exit_status: int
    """128 + n where signal n ended it, as a shell counts."""
    stdout: bytes
    stderr: bytes
    """The last `STDERR_TAIL` bytes."""


class Channel(Protocol):
    """A program that runs on the box, with its standard input and output. Closing it ends the input."""

    async def read(self, n: int) -> bytes:
        """Up to `n` bytes of standard output, as soon as there are any; empty at its end.

        Raises:
            LinkLost: the link broke; what came before it has been read.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Write all of `data` to standard input; waits while the box is slow.

        Raises:
            LinkLost: the link broke.
            ChannelClosed: the program ended, or `close` was called.
        """
        ...

    def stderr_tail(self) -> bytes:
        """The last `STDERR_TAIL` bytes that the program wrote to standard error."""
        ...

    async def close(self) -> None:
        """End the input, give the program a moment to end by itself, then let go of it. Never raises for a lost link.

        A program that ignores the end of its input is not killed (SSH cannot): it loses its pipes.
        """
        ...

    async def wait(self) -> int | None:
        """Exit status (128 + n for signal n), or `None` if the link went away first and nobody knows.

        Output must be read by somebody meanwhile, or a program that fills the pipe never ends.
        """
        ...


class Link(Protocol):
    """A way to run programs on a box. Every error is a `LinkError` whose text is a sentence for a person."""

    @property
    def target(self) -> str:
        """What a person calls the box."""
        ...

    async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
        """Run ``/bin/sh -c <script> sh <argv...>``, whatever the login shell is, and wait for its end.

        Args:
            script: POSIX shell; ``"$1"`` is ``argv[0]``.
            argv: any text without NUL bytes: nothing in it is ever interpreted.
            stdin: all the input.
            timeout: seconds, waiting for a free channel included.

        Raises:
            LinkLost: the link broke before the exit status came. The program may or may not have run.
            LinkTimeout: it took longer than `timeout`. It may still be running on the box.
            ChannelRefused: the box allows no further session on this connection.
            ShellRefused: the login shell does not run programs.
        """
        ...

    async def open(self, script: str, *, argv: Sequence[str] = ()) -> Channel:
        """Start ``/bin/sh -c <script> sh <argv...>`` and talk to it; returns when it has started.

        Raises:
            LinkLost, LinkTimeout, ChannelRefused, ShellRefused: as for `run`.
        """
        ...

    async def ping(self) -> float:
        """Seconds for a question to the box's SSH server and its answer.

        Raises:
            LinkLost: the link broke.
        """
        ...

    async def close(self) -> None:
        """End the connection. Programs that were detached on the box go on."""
        ...

    async def __aenter__(self) -> Link: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Prompter(Protocol):
    """Where a person is asked. `None` (or `False`) means: nobody answers, or the person declined."""

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        """Whether to trust a box that was never seen before. `fingerprint` reads ``SHA256:…``, as ssh-keygen -l."""
        ...

    async def password(self, prompt: str) -> str | None:
        """A password; `prompt` says whose."""
        ...

    async def passphrase(self, path: str) -> str | None:
        """The passphrase of the key file `path`."""
        ...

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        """Keyboard-interactive questions of the server: (text, whether typing may be shown) each."""
        ...
