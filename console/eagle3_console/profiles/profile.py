"""One profile: read from TOML, with every mistake named at once by file, line and key. Pure but for `read`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from eagle3_console import tomlfile
from eagle3_console.profiles import schema
from eagle3_console.profiles.lines import Path as KeyPath
from eagle3_console.profiles.lines import line_of
from eagle3_console.tomlfile import Fault, FaultyFile, nearest, read_text

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAG = re.compile(r"[a-z0-9][a-z0-9_-]*")


class ProfileError(FaultyFile):
    """A profile cannot be used; `faults` has every reason."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A figure that somebody reports: no measurement of this project."""

    figure: float
    unit: str
    what: str
    origin: str


@dataclasses.dataclass(frozen=True)
class Profile:
    """What a profile says."""

    name: str
    path: str
    description: str
    options: dict[str, Any]
    """By the attribute of the parsed command line that each stands for."""
    flags: dict[str, tuple[str, ...]]
    """SGLang's own flags, ``--name`` -> its words; a switch has none."""
    env: dict[str, str]
    references: tuple[Reference, ...] = ()


def read(path: Path) -> Profile:
    """Read a profile from a file.

    Raises:
        ProfileError: it cannot be read, is no TOML, or says what a profile cannot say.
    """
    try:
        text = read_text(path)
    except FaultyFile as error:
        raise ProfileError(error.faults) from None
    return parse(text, path)


def parse(text: str, path: Path) -> Profile:
    """Read a profile from text; `path` gives it its name.

    Raises:
        ProfileError: see `read`.
    """
    try:
        file = tomlfile.parse(text, path)
    except FaultyFile as error:
        raise ProfileError(error.faults) from None
    checker = _Checker(str(path), file.lines)
    checker.all(file.content)
    if checker.faults:
        raise ProfileError(sorted(checker.faults, key=lambda fault: fault.line))
    return _profile(file.content, path)


def _profile(content: Mapping[str, Any], path: Path) -> Profile:
    options = {
        key.option: content[table][name]
        for table, keys in schema.TABLES.items()
        for name, key in keys.items()
        if key.option and name in content.get(table, {})
    }
    if "boundaries" in options:
        options["boundaries"] = tuple(sorted(options["boundaries"]))
    flags = {name: value for name, value in content.get("flags", {}).items() if value is not False}
    backend = content.get("server", {}).get("attention-backend")
    if backend is not None:
        flags = {"attention-backend": backend, **flags}
    return Profile(
        name=path.stem,
        path=str(path),
        description=content.get("description", ""),
        options=options,
        flags={f"--{name}": _words(value) for name, value in flags.items()},
        env=dict(content.get("env", {})),
        references=tuple(
            Reference(float(one["figure"]), one["unit"], one["what"], one["origin"])
            for one in content.get("reference", ())
        ),
    )


def _words(value: Any) -> tuple[str, ...]:
    if value is True:
        return ()
    return tuple(str(one) for one in value) if isinstance(value, list) else (str(value),)


class _Checker:
    """Collects every fault of one file."""

    def __init__(self, file: str, lines: dict[KeyPath, int]) -> None:
        self._file = file
        self._lines = lines
        self.faults: list[Fault] = []

    def all(self, content: Mapping[str, Any]) -> None:
        tables = {*schema.TABLES, *schema.OPEN_TABLES, "reference"} - {""}
        for name, value in content.items():
            if name == "reference":
                self._references(value)
            elif name in tables and not isinstance(value, dict):
                self._fault((name,), f"must be a table, [{name}], not a value")
            elif name in schema.TABLES and name:
                self._keys((name,), value, schema.TABLES[name])
            elif name in schema.OPEN_TABLES:
                self._open(name, value)
            elif isinstance(value, dict):
                self._fault((name,), f"there is no table [{name}]{nearest(name, tables)}")
            else:
                self._keys((), {name: value}, schema.TABLES[""])

    def _keys(self, table: KeyPath, given: Mapping[str, Any], keys: Mapping[str, schema.Key]) -> None:
        for name, value in given.items():
            if name not in keys:
                self._fault((*table, name), self._unknown(name, table, keys))
            elif wrong := keys[name].check(value):
                self._fault((*table, name), wrong)

    def _unknown(self, name: str, table: KeyPath, keys: Collection[str]) -> str:
        for other, its_keys in schema.TABLES.items():
            if name in its_keys and other:
                return f"this key belongs in [{other}]"
        where = f" in [{table[0]}]" if table else " before the first table"
        also = "; SGLang's own flags go in [flags]" if table == ("server",) else ""
        return f"there is no such key{where}{nearest(name, keys)}{also}"

    def _open(self, table: str, given: Mapping[str, Any]) -> None:
        own = schema.ELSEWHERE if table == "flags" else schema.OURS
        pattern, what = (_FLAG, "a flag without its dashes") if table == "flags" else (_VARIABLE, "a variable's name")
        for name, value in given.items():
            if not pattern.fullmatch(name):
                self._fault((table, name), f"must be {what}{_nearest_spelling(name, table)}")
            elif name in own:
                self._fault((table, name), f"has a key of its own: {own[name]}")
            elif wrong := schema.OPEN_TABLES[table](value):
                self._fault((table, name), wrong)

    def _references(self, value: Any) -> None:
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self._fault(("reference",), "must be an array of tables, [[reference]]")
            return
        for number, one in enumerate(value):
            self._keys(("reference", number), one, schema.REFERENCE)
            missing = [name for name in schema.REFERENCE if name not in one]
            if missing:
                self._fault(("reference", number), f"lacks {', '.join(missing)}")

    def _fault(self, path: KeyPath, text: str) -> None:
        key = ".".join(str(part) for part in path if isinstance(part, str))
        self.faults.append(Fault(self._file, line_of(self._lines, path), key, text))


def _nearest_spelling(name: str, table: str) -> str:
    bare = name.strip("-").lower()
    return f": {bare}" if table == "flags" and _FLAG.fullmatch(bare) else ""
