"""What a profile may say: every table and key, its kind, and the option of the command line that it stands for. Data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Check = Callable[[Any], str]
"""What is wrong with a value, as ``must be ..., not ...``; empty: nothing."""


@dataclasses.dataclass(frozen=True)
class Key:
    """One key."""

    check: Check
    option: str = ""
    """The attribute of the parsed command line that it gives; empty: none of its own."""


def text(value: Any) -> str:
    """Words."""
    return "" if isinstance(value, str) and value else f"must be text in quotes, not {_shown(value)}"


def one_of(*words: str) -> Check:
    """One of some words."""

    def check(value: Any) -> str:
        return "" if value in words else f"must be {' or '.join(words)}, not {_shown(value)}"

    return check


def whole(least: int, most: int | None = None) -> Check:
    """A whole number in a range."""
    span = f"from {least} on" if most is None else f"from {least} to {most}"

    def check(value: Any) -> str:
        good = isinstance(value, int) and not isinstance(value, bool)
        good = good and value >= least and (most is None or value <= most)
        return "" if good else f"must be a whole number {span}, not {_shown(value)}"

    return check


def figure(value: Any) -> str:
    """A number above 0."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    return "" if good else f"must be a number above 0, not {_shown(value)}"


def boundaries(value: Any) -> str:
    """Layer boundaries."""
    good = isinstance(value, list) and value != []
    good = good and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    if not good:
        return f"must be a list of whole numbers from 0 on, like [2, 30, 58], not {_shown(value)}"
    return "" if len(set(value)) == len(value) else f"names one boundary twice: {_shown(value)}"


def variable(value: Any) -> str:
    """The value of an environment variable."""
    good = isinstance(value, str) and "\0" not in value
    return "" if good else f'must be text in quotes, like "{value}", not {_shown(value)}'


def flag(value: Any) -> str:
    """The value of one of SGLang's own flags: a switch, a word, a number, or a list of words and numbers."""
    values = value if isinstance(value, list) else [value]
    good = all(isinstance(one, str | int | float) for one in values)
    if not good or (isinstance(value, list) and any(isinstance(one, bool) for one in value)):
        return f"must be true, false, text, a number or a list of these, not {_shown(value)}"
    return ""


def _shown(value: Any) -> str:
    kinds = {dict: "a table", bool: str(value).lower()}
    return kinds.get(type(value)) or (repr(value) if len(repr(value)) < 60 else f"{repr(value)[:56]} ...")


TABLES: dict[str, dict[str, Key]] = {
    "": {"description": Key(text)},
    "server": {
        "model": Key(text, "model"),
        "tp": Key(whole(1, 1024), "tp"),
        "port": Key(whole(1, 65535), "port"),
        "python": Key(text, "python"),
        "attention-backend": Key(text),
    },
    "dump": {
        "boundaries": Key(boundaries, "boundaries"),
        "final": Key(one_of("pre", "post"), "final"),
        "dir": Key(text, "dump_dir"),
    },
    "extract": {
        "data": Key(text, "data"),
        "out": Key(text, "out"),
        "max-seq-len": Key(whole(1), "max_seq_len"),
        "samples": Key(whole(1), "samples"),
        "tokens-in-flight": Key(whole(1), "tokens_in_flight"),
        "on-bad": Key(one_of("skip", "stop"), "on_bad"),
    },
}
"""Table -> its keys; the empty name is what stands before the first table."""

OPEN_TABLES: dict[str, Check] = {"flags": flag, "env": variable}
"""Tables whose keys are SGLang's, or the environment's."""

REFERENCE: dict[str, Key] = {
    "figure": Key(figure),
    "unit": Key(text),
    "what": Key(text),
    "origin": Key(text),
}
"""The keys of each ``[[reference]]``, all needed: a figure that somebody reports, not measured here."""

ELSEWHERE = {
    "model": "[server] model",
    "model-path": "[server] model",
    "tp": "[server] tp",
    "tp-size": "[server] tp",
    "tensor-parallel-size": "[server] tp",
    "port": "[server] port",
    "attention-backend": "[server] attention-backend",
}
"""Flags that have a key of their own."""

OURS = {
    "EAGLE3_DUMP_DIR": "[dump] dir",
    "SGLANG_HS_DUMP_DIR": "[dump] dir",
    "EAGLE3_BOUNDARIES": "[dump] boundaries",
    "EAGLE3_FINAL": "[dump] final",
}
"""Variables that have a key of their own."""
