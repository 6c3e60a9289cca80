"""What changed between two JSON values. A snapshot says mostly what the one before it said."""

from __future__ import annotations

from typing import Any

_WHOLE = "="
"""``{"=": value}`` in a delta: this value instead of the old one. No field of a message has this name."""


def diff(old: Any, new: Any) -> Any:
    """What `apply` needs to make `new` of `old`; ``{}`` where nothing changed in an object or a list of one length."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return {key: diff(old[key], value) for key, value in new.items() if old[key] != value}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return {str(i): diff(old[i], value) for i, value in enumerate(new) if old[i] != value}
    return {_WHOLE: new} if isinstance(new, dict) else new


def apply(old: Any, delta: Any) -> Any:
    """The new value. Neither argument is changed; what did not change is shared with `old`.

    Raises:
        ValueError: the delta does not belong to `old`.
    """
    if not isinstance(delta, dict):
        return delta
    if delta.keys() == {_WHOLE}:
        return delta[_WHOLE]
    try:
        if isinstance(old, list):
            new_list = list(old)
            for index, change in delta.items():
                new_list[int(index)] = apply(old[int(index)], change)
            return new_list
        if isinstance(old, dict):
            return {**old, **{key: apply(old[key], change) for key, change in delta.items()}}
    except (KeyError, IndexError) as error:
        raise ValueError(f"a change of something that was not there: {error}") from error
    raise ValueError(f"a change of {type(old).__name__}, which has no parts")
