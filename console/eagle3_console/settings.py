"""What a person wants of the console, whichever box it shows: ``$XDG_CONFIG_HOME/eagle3-console/config.toml``.

Every key may be missing. The file is read when a screen opens; with a mistake in it none does.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from eagle3_console import tomlfile
from eagle3_console.errors import UsageError
from eagle3_console.events import Level
from eagle3_console.profiles.lines import Path as KeyPath
from eagle3_console.profiles.lines import line_of
from eagle3_console.tomlfile import Fault, FaultyFile, TomlFile, nearest

Desktop: TypeAlias = Literal["off", "osc9", "osc777"]
_DESKTOP = ("off", "osc9", "osc777")
_LEVELS: tuple[Level, ...] = ("info", "warning", "error")
DEFAULT_THEME = "eagle-dark"


@dataclasses.dataclass(frozen=True)
class AlertSettings:
    """How somebody is told who does not look at the screen, each way from a level on."""

    bell: bool | Level = True
    """Ring the terminal's bell: for every alert, for none, or from a level on."""
    desktop: Desktop = "off"
    """A desktop notification through the terminal: ``osc9`` (iTerm2, WezTerm, Windows Terminal) or ``osc777`` (urxvt, foot)."""
    desktop_from: Level = "info"
    webhook: str = dataclasses.field(default="", repr=False)
    """An http or https address that each alert is posted to as JSON; empty: none. A secret: whoever has it can post."""
    webhook_from: Level = "info"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The whole file. A value that is not in it is the default."""

    theme: str = DEFAULT_THEME
    """One of ours, or of Textual's."""
    readonly: bool = False
    """Watch only, as with ``--readonly``: no key changes anything on the box."""
    mouse: bool = True
    """Take the mouse. Without it the terminal marks and copies as it always does."""
    alerts: AlertSettings = AlertSettings()
    """How somebody is told who does not look at the screen."""
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Id of a key (``eagle3-console config show`` lists them) -> the keys it has instead, as Textual names them."""
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)
    """Name of a value, as ``alerts.bell`` or ``keys.log.follow`` -> the line of the file that gave it."""


def path() -> Path:
    """Where the file lies, or would lie."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "eagle3-console" / "config.toml"


def load() -> Settings:
    """The settings of this person; the defaults where there is no file.

    Raises:
        UsageError: the file has mistakes; all of them are in the text.
    """
    try:
        return read(path())
    except FaultyFile as error:
        raise UsageError(f"The settings cannot be used:\n{error}") from None


def read(file: Path) -> Settings:
    """Read one file; the defaults where it is not there.

    Raises:
        FaultyFile: with every mistake.
    """
    if not file.exists():
        return Settings()
    return parse(tomlfile.read_text(file), file)


def parse(text: str, file: Path) -> Settings:
    """Read settings from text; `file` is for the mistakes alone.

    Raises:
        FaultyFile: see `read`.
    """
    reader = _Reader(str(file), tomlfile.parse(text, file))
    settings = reader.settings()
    if reader.faults:
        raise FaultyFile(sorted(reader.faults, key=lambda fault: fault.line))
    return settings


class _Reader:
    """Takes one file apart and collects its faults."""

    def __init__(self, name: str, file: TomlFile) -> None:
        self._name = name
        self._file = file
        self.faults: list[Fault] = []
        self._lines: dict[str, int] = {}

    def settings(self) -> Settings:
        content = dict(self._file.content)
        keys, alerts = content.pop("keys", {}), content.pop("alerts", {})
        values = self._values((), content, _GENERAL)
        if self._is_table("alerts", alerts):
            values["alerts"] = AlertSettings(**self._values(("alerts",), alerts, _ALERTS))
        if self._is_table("keys", keys):
            values["keys"] = self._keys(_flat(keys))
        return Settings(**values, lines=self._lines)

    def _is_table(self, name: str, value: Any) -> bool:
        if not isinstance(value, dict):
            self._fault((name,), f"must be a table, [{name}], not a value")
        return isinstance(value, dict)

    def _values(self, table: KeyPath, given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
        good: dict[str, Any] = {}
        known = {*checks, "keys", "alerts"} if not table else set(checks)
        for name, value in given.items():
            if name not in checks:
                elsewhere = not table and name in _ALERTS
                kind = "table" if isinstance(value, dict) else "key"
                text = "this key belongs in [alerts]" if elsewhere else f"there is no such {kind}{nearest(name, known)}"
                self._fault((*table, name), text)
            elif wrong := checks[name](value):
                self._fault((*table, name), wrong)
            else:
                good[name] = value
                self._lines[_dotted((*table, name))] = line_of(self._file.lines, (*table, name))
        return good

    def _keys(self, given: Mapping[KeyPath, Any]) -> dict[str, str]:
        from eagle3_console.keys import IDS, KEYS
        from eagle3_console.ui.keynames import RESERVED, normal

        own: dict[str, str] = {}
        for place, value in given.items():
            name = _dotted(place)
            if name not in IDS:
                self._fault(("keys", *place), f"there is no key with this id{nearest(name, IDS)}")
                continue
            written = value if isinstance(value, list) else [value]
            if not written or not all(isinstance(one, str) and one for one in written):
                self._fault(("keys", *place), 'must be a key in quotes, like "F", or a list of them')
                continue
            try:
                names = [normal(one) for one in written]
            except ValueError as error:
                self._fault(("keys", *place), str(error))
                continue
            taken = next((one for one in names if one in RESERVED), None)
            if taken is not None:
                self._fault(("keys", *place), f"the key {taken!r} cannot be taken: it {RESERVED[taken]}")
            own[name] = ",".join(names)
            self._lines[f"keys.{name}"] = line_of(self._file.lines, ("keys", *place))
        used: dict[str, str] = {}
        for key in sorted(KEYS, key=lambda key: key.id in own):  # so that the fault is at a line of this file
            for one in own.get(key.id, key.keys).split(","):
                if one in used:
                    place = next((place for place in given if _dotted(place) == key.id), ())
                    self._fault(
                        ("keys", *place), f"the key {one!r} is used twice, by {used[one]} too: move one of them"
                    )
                used[one] = key.id
        return own

    def _fault(self, place: KeyPath, text: str) -> None:
        self.faults.append(Fault(self._name, line_of(self._file.lines, place), _dotted(place), text))


Check: TypeAlias = Callable[[Any], str]
"""What is wrong with a value; empty: nothing."""


def _switch(value: Any) -> str:
    return "" if isinstance(value, bool) else f"must be true or false, not {value!r}"


def _bell(value: Any) -> str:
    if isinstance(value, bool) or value in _LEVELS:
        return ""
    return f"must be true, false, {_one_of(_LEVELS)}, not {value!r}"


def _level(value: Any) -> str:
    return "" if value in _LEVELS else f"must be {_one_of(_LEVELS)}, not {value!r}"


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _desktop(value: Any) -> str:
    return "" if value in _DESKTOP else f"must be {_one_of(_DESKTOP)}, not {value!r}"


def _webhook(value: Any) -> str:
    if value == "":
        return ""
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        return "must be an address like https://host/path (what is there is not shown: it may be a secret)"
    return ""


def _theme(value: Any) -> str:
    if value == DEFAULT_THEME:
        return ""
    from eagle3_console.ui.themes import NAMES

    return "" if value in NAMES else f"there is no theme {value!r}{nearest(str(value), NAMES)}"


_GENERAL: dict[str, Check] = {"theme": _theme, "readonly": _switch, "mouse": _switch}
_ALERTS: dict[str, Check] = {
    "bell": _bell,
    "desktop": _desktop,
    "desktop_from": _level,
    "webhook": _webhook,
    "webhook_from": _level,
}


def _dotted(place: KeyPath) -> str:
    return ".".join(map(str, place))


def _flat(table: Mapping[str, Any]) -> dict[KeyPath, Any]:
    """``log.follow = "F"`` in TOML is a table in a table; in quotes it is one name. Both are one id here."""
    found: dict[KeyPath, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= {(name, *rest): one for rest, one in _flat(value).items()}
        else:
            found[(name,)] = value
    return found
