"""Messages to and from plain JSON values."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: Any) -> Any:
    """A message as plain JSON values. Enums become their words, tuples lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
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
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: a list is needed, not {type(value).__name__}")
        item = typing.get_args(kind)[0]
        return tuple(_decode(item, part, f"{where}[{i}]") for i, part in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: an object is needed, not {type(value).__name__}")
        item = typing.get_args(kind)[1]
        return {str(key): _decode(item, part, f"{where}.{key}") for key, part in value.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type, kind), value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: {kind.__name__} is needed, not {type(value).__name__}")
    return value


def _decode_dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: an object is needed, not {type(value).__name__}")
    hints = typing.get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            given[field.name] = _decode(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**given)
