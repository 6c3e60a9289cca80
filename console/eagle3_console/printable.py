"""Text of others as one line that a terminal can be given. Pure."""

from __future__ import annotations

import re

MAX_CHARACTERS = 2000
"""Longer lines are cut on the screen; the file has them whole."""

_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|[\x1b\x9b]\[?[0-?]*[ -/]*[@-~]"  # CSI and two-character escapes
)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def plain(text: str) -> str:
    """One line without anything that a terminal would obey; tabs become spaces."""
    return text if text.isprintable() else _UNSAFE.sub(_visible, _SEQUENCES.sub("", text.expandtabs(8)))


def safe(text: str) -> str:
    """As `plain`, and cut where it is longer than anybody reads."""
    text = plain(text)
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]} [+{len(text) - MAX_CHARACTERS} characters]"
    return text


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"^{chr(code + 64)}" if code < 32 else f"<{code:02X}>"


def last_segment(text: str) -> str:
    """What stands in the line after every ``\\r`` in it: the last segment that is not empty."""
    if "\r" not in text:
        return text
    return next((segment for segment in reversed(text.split("\r")) if segment), "")
