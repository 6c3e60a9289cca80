"""What of a set-up a server that runs already goes against. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eagle3_console.plan import Plan
from eagle3_console.setup.draft import FIELDS, Seen

_REFUSED = ("boundaries", "final")
"""An extraction is refused by a server that has others; whatever else a server has counts only where it was typed."""
_UNSEEN = ("--api-key", "--host")
"""Arguments of a running server that a plan has no word for."""


def waiting(plan: Plan, typed: Mapping[str, str], running: Plan, seen: Seen) -> tuple[str, ...]:
    """Names of the fields that differ from what a running server was started with, and wait for its restart.

    Args:
        plan: what would be started.
        typed: the person's own texts; a path counts as it was typed, too, for the server may have been given it so.
        running: what the server was started with.
    """
    names = [name for name, field in FIELDS.items() if field.restart and (name in typed or name in _REFUSED)]
    return tuple(
        name for name in names if typed.get(name) != getattr(running, name) and _differs(name, plan, running, seen)
    )


def _differs(name: str, plan: Plan, running: Plan, seen: Seen) -> bool:
    mine, theirs = getattr(plan, name), getattr(running, name)
    if name == "boundaries":
        theirs = theirs or (seen.model.boundaries if seen.model is not None else ())  # unnamed: SGLang's default
    if name in _REFUSED and not (mine and theirs):
        return False  # not known yet
    if name == "server_args":
        return _options(mine) != _options(theirs)
    return bool(mine != theirs)


def _options(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Each option with its values; in which order they were typed does not matter."""
    options: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not options:
            name, equals, value = word.partition("=")
            options.append([name, value] if equals else [name])
        else:
            options[-1].append(word)
    return sorted(tuple(one) for one in options if one[0] not in _UNSEEN)
