"""Names of keys: what a person writes, what Textual calls it, what the footer shows."""

from __future__ import annotations

import difflib
import string

from textual.binding import Binding
from textual.keys import Keys

_PUNCTUATION: dict[str, str] = {
    sign: next(iter(Binding.make_bindings([Binding(sign, "")]))).key for sign in string.punctuation.replace(",", "")
}
_SIGNS = {name: sign for sign, name in _PUNCTUATION.items()}
_LETTERS = frozenset(string.ascii_letters + string.digits)
_SPECIAL = frozenset(
    one.value
    for one in Keys
    if one.value.isidentifier() and len(one.value) > 1 and not one.value.startswith(("scr", "cpr"))
) | {"space", "comma"}
_OTHER_WORDS = {"esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "del": "delete"}
_SHORT = {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn", "question_mark": "?", "comma": ","}
_MODIFIERS = ("ctrl", "alt", "shift")


def normal(written: str) -> str:
    """Textual's name of a key: ``?`` is ``question_mark``, ``esc`` is ``escape``.

    Raises:
        ValueError: there is no such key; with a sentence.
    """
    if written in _PUNCTUATION:
        return _PUNCTUATION[written]
    *modifiers, key = written.split("+") if written != "+" else [written]
    unknown = [one for one in modifiers if one not in _MODIFIERS]
    if unknown:
        raise ValueError(f"there is no key {written!r}: {unknown[0]!r} is none of ctrl, alt, shift")
    key = _OTHER_WORDS.get(key, _PUNCTUATION.get(key, key))
    if key not in _LETTERS and key not in _SPECIAL and key not in _SIGNS:
        raise ValueError(f"there is no key {written!r}{_near(key)}")
    if modifiers == ["shift"] and key in _LETTERS:
        raise ValueError(f"there is no key {written!r}: write the capital letter {key.upper()!r}")
    if modifiers == ["ctrl"] and key in string.ascii_uppercase:
        raise ValueError(f"there is no key {written!r}: write 'ctrl+{key.lower()}'")
    return "+".join([*modifiers, key])


def _near(key: str) -> str:
    near = difflib.get_close_matches(key, [*_SPECIAL, *_SIGNS], n=1, cutoff=0.7)
    return (
        f"; did you mean {near[0]!r}" if near else "; write a letter, a sign, or a name like 'f5', 'escape', 'ctrl+f'"
    )


def shown(keys: str) -> str:
    """What the footer shows for a binding: its first key, short."""
    *modifiers, key = keys.split(",")[0].split("+")
    key = _SHORT.get(key, _SIGNS.get(key, key))
    marks = "".join({"ctrl": "^"}.get(one, f"{one}+") for one in modifiers)
    return f"{marks}{key}"


RESERVED = {
    "tab": "goes from one thing to the next",
    "shift+tab": "goes from one thing to the one before",
    "enter": "confirms",
    "ctrl+c": "is the terminal's own for interrupting, and says here that nothing stops",
    "ctrl+q": "detaches, whatever else is open",
    "up": "moves in the log",
    "down": "moves in the log",
    "left": "moves in the log",
    "right": "moves in the log",
    "pageup": "moves in the log",
    "pagedown": "moves in the log",
    "j": "moves in the log",
    "k": "moves in the log",
    "b": "moves in the log",
    "space": "moves in the log",
}
"""Keys that stand for one thing in every console, and which."""
