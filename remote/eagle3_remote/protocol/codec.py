"""Messages to and from plain JSON values."""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import functools
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: Any) -> Any:
    """A message as plain JSON values. Enums become their words, tuples and sets lists, bytes base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(encode(item) for item in value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, collections.abc.Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], value: Any) -> T:
    """A message from plain JSON values. Unknown keys are ignored, so that a newer side may say more.

    Raises:
        ValueError: a required field is missing or has the wrong type; the text names it.
    """
    return typing.cast(T, _decode(kind, value, kind.__name__))


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in typing.get_args(kind):
            return None
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return _decode(inner[0], value, where)
    if origin in (tuple, frozenset):
        if not isinstance(value, list):
            raise ValueError(f"{where}: a list is needed, not {type(value).__name__}")
        items = typing.get_args(kind)
        if origin is frozenset or items[1:] == (Ellipsis,):
            items = items[:1] * len(value)
        elif len(items) != len(value):
            raise ValueError(f"{where}: {len(items)} values are needed, not {len(value)}")
        pairs = zip(items, value, strict=True)
        return origin(_decode(item, part, f"{where}[{i}]") for i, (item, part) in enumerate(pairs))
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise ValueError(f"{where}: one of {', '.join(map(str, typing.get_args(kind)))} is needed, not {value!r}")
        return value
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, dict):
            raise ValueError(f"{where}: an object is needed, not {type(value).__name__}")
        item = typing.get_args(kind)[1]
        return {str(key): _decode(item, part, f"{where}.{key}") for key, part in value.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type, kind), value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is bytes and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{where}: the number is too large") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: {kind.__name__} is needed, not {type(value).__name__}")
    return value


def _decode_dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: an object is needed, not {type(value).__name__}")
    given = {}
    for name, hint, needed in _fields(kind):
        if name in value:
            given[name] = _decode(hint, value[name], f"{where}.{name}")
        elif needed:
            raise ValueError(f"{where}.{name} is missing")
    return kind(**given)


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it must be given. Kept: finding the types of a snapshot takes longer than decoding it."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    )
