"""Events and states as JSON values and back. Bytes of a log are text in which a byte that is no UTF-8 is a lone surrogate."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

from eagle3_console.events import Event
from eagle3_console.keys import SHOWN
from eagle3_console.state import ConsoleState
from eagle3_remote import protocol

FORMAT = 1
"""Changed when an older console could not read the file."""
CHECKPOINT, END, SNAPSHOT = "Checkpoint", "End", "SnapshotArrived"
COLUMNS = ("seconds", "kind", "data")
EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(Event)}


@dataclasses.dataclass(frozen=True)
class Header:
    """The first line."""

    format: int
    console: str
    """Version of the console that wrote it."""
    target: str
    """What a person typed to get to the box."""
    started_at: float
    """Unix seconds."""
    note: str = ""
    """What was recorded, in a sentence; empty: a person's own session."""
    columns: tuple[str, ...] = COLUMNS


def encode_event(event: Event) -> Any:
    """The fields of an event as JSON values."""
    return {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}


def decode_event(kind: str, data: Any) -> Event:
    """The event that `encode_event` was given.

    Raises:
        ValueError: no such event, or not its fields; the text says which.
    """
    if kind not in EVENTS:
        raise ValueError(f"no event is called {kind}")
    if not isinstance(data, dict):
        raise ValueError(f"{kind}: an object is needed, not {type(data).__name__}")
    hints = typing.get_type_hints(EVENTS[kind])
    fields = {key: to_bytes(value) if hints.get(key) is bytes else value for key, value in data.items()}
    return typing.cast(Event, protocol.decode(EVENTS[kind], fields))


def encode_state(state: ConsoleState) -> dict[str, Any]:
    """A state as JSON values, without the points of the plots and the keys, which are the viewer's."""
    return typing.cast(dict[str, Any], protocol.encode(dataclasses.replace(state, history=(), keys={})))


def decode_state(data: Any) -> ConsoleState:
    """The state, without the points of the plots.

    Raises:
        ValueError: written by a console whose state is another.
    """
    return dataclasses.replace(protocol.decode(ConsoleState, data), keys=SHOWN)


def line(seconds: float, kind: str, data: Any) -> bytes:
    """One line of the file."""
    return json.dumps([round(seconds, 3), kind, data], separators=(",", ":")).encode() + b"\n"


def to_bytes(text: Any) -> bytes:
    """The bytes of a log.

    Raises:
        ValueError: not a text.
    """
    if not isinstance(text, str):
        raise ValueError(f"bytes of a log: a text is needed, not {type(text).__name__}")
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    """The bytes of a log as text, every byte kept."""
    return data.decode("utf-8", "surrogateescape")


def _plain(value: Any) -> Any:
    return to_text(value) if isinstance(value, bytes) else protocol.encode(value)
