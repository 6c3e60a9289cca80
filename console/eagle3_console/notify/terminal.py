"""What is written to a terminal so that it rings, or shows a notification on the desktop that it runs on. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from eagle3_console.printable import plain
from eagle3_console.settings import Desktop

BELL = "\a"
TITLE = "eagle3-console"
_MAX_TEXT = 240


def notification(kind: Desktop, text: str, environ: Mapping[str, str]) -> str:
    """The escape sequence for one line of text; empty where `kind` is ``off``.

    Args:
        environ: of this process: inside tmux the sequence has to be passed through (``set -g allow-passthrough on``).
    """
    line = plain(text).replace(";", ",")  # a semicolon would end the text, or begin another command
    line = line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 3] + "..."
    if kind == "osc9":
        sequence = f"\x1b]9;{TITLE}: {line}\a"
    elif kind == "osc777":
        sequence = f"\x1b]777;notify;{TITLE};{line}\a"
    else:
        return ""
    if environ.get("TMUX") or environ.get("TERM", "").startswith("tmux"):
        escaped = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{escaped}\x1b\\"
    return sequence
