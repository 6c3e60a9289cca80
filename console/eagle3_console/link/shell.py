"""One command line that every login shell reads alike, and the mark that tells our output from what login scripts print.

sshd hands the command line to the account's login shell, which may be bash, zsh, dash, csh or fish. They disagree about quotes: fish takes a
backslash inside single quotes, csh takes ``!`` and no newline there, and old csh has no words of more than 1,024 bytes. So the real command
travels in single-quoted words of harmless characters, everything else as octal escapes for ``printf %b`` (POSIX), and only /bin/sh undoes it.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence

MAX_COMMAND_BYTES = 120_000
"""Linux takes at most 131,072 bytes in one argument, and the login shell gets all of it as one (MAX_ARG_STRLEN)."""
_WORD_BYTES = 800
_LITERAL = frozenset(range(0x20, 0x7F)) - set(b"'\\!")


def new_mark() -> str:
    """A line that no login script prints."""
    return f"eagle3-begin-{secrets.token_hex(12)}"


def command_line(script: str, argv: Sequence[str], mark: str) -> str:
    """The command line for a login shell: prints `mark` and a newline to both outputs, then becomes ``sh -c script sh argv...``.

    Raises:
        ValueError: a NUL byte, or more than `MAX_COMMAND_BYTES`.
    """
    words = ["/bin/sh", "-c", script, "sh", *argv]
    if any("\0" in word for word in words):
        raise ValueError("A command or an argument for the box contains a NUL byte, which no program can take.")
    inner = f"echo {mark}; echo {mark} >&2; exec {' '.join(shlex.quote(word) for word in words)}"
    line = '/bin/sh -c \'eval "$(printf %b "$@")"\' sh ' + " ".join(f"'{word}'" for word in _encode(inner))
    if len(line) > MAX_COMMAND_BYTES:
        raise ValueError(
            f"A command for the box is {len(line):,} bytes long and {MAX_COMMAND_BYTES:,} are possible. Send large data over its input."
        )
    return line


def _encode(text: str) -> list[str]:
    words = [""]
    for byte in text.encode("utf-8", "surrogateescape"):
        if byte in _LITERAL:
            piece = chr(byte)
        elif byte == 0x0A:
            piece = "\\n"
        else:
            piece = f"\\0{byte:03o}"
        if len(words[-1]) + len(piece) > _WORD_BYTES:
            words.append("")
        words[-1] += piece
    return words
