"""A plan as a profile: the TOML text, and the file."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3_console.errors import UsageError
from eagle3_console.plan import Plan
from eagle3_console.profiles import schema
from eagle3_console.profiles.profile import ProfileError, parse
from eagle3_console.profiles.store import own_folder
from eagle3_remote.protocol import is_secret, is_secret_flag

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def text_of(plan: Plan, description: str) -> str:
    """The profile that gives `plan` again.

    Variables and arguments that are secrets are left out: the file may be handed on.

    Raises:
        UsageError: an argument of SGLang has a key of its own or none, or a path is not UTF-8.
    """
    tables: dict[str, dict[str, Any]] = {"server": {}, "dump": {}, "extract": {}}
    for table, keys in schema.TABLES.items():
        for name, key in keys.items():
            value = getattr(plan, key.option) if key.option else None
            if value not in (None, "", 0, ()):
                tables[table][name] = value
    given = flags_of(plan.server_args)
    tables["flags"] = {name: value for name, value in given.items() if not is_secret_flag(f"--{name}")}
    backend = tables["flags"].pop("attention-backend", None)
    if backend is not None:
        tables["server"]["attention-backend"] = backend
    tables["env"] = {name: value for name, value in plan.server_env.items() if not is_secret(name, value)}
    left_out = sorted(plan.server_env.keys() - tables["env"].keys())
    left_out += sorted(f"--{name}" for name in given.keys() - tables["flags"].keys())
    lines = [f"description = {_toml(description)}"]
    for table, content in tables.items():
        if content:
            lines += ["", f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in content.items())]
    lines += [f"# left out, for it may be a secret: {name}; say it on the command line" for name in left_out]
    text = "\n".join(lines) + "\n"
    try:
        text.encode("utf-8")
        parse(text, Path("profile.toml"))
    except UnicodeEncodeError:
        raise UsageError("A path with bytes that are no UTF-8 cannot be kept in a profile: rename it.") from None
    except ProfileError as error:
        raise UsageError(f"This cannot be kept in a profile: {error.faults[0].key}: {error.faults[0].text}") from None
    return text


def flags_of(words: Sequence[str]) -> dict[str, Any]:
    """``--name value`` words as a profile's [flags]; of two of one name the last counts."""
    flags: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            flags[name] = [value] if equals else []
        elif not name:
            raise UsageError(f"SGLang's arguments begin with --, not with {word!r}.")
        else:
            flags[name].append(word)
    for name, values in flags.items():
        if name in schema.ELSEWHERE and name != "attention-backend":  # a key of its own, but no field
            raise UsageError(f"--{name} has a field of its own ({schema.ELSEWHERE[name]}): set it there.")
        flags[name] = values[0] if len(values) == 1 else values or True
    return flags


def path_of(name: str) -> Path:
    """Where a profile of the person's own of this name lies.

    Raises:
        UsageError: it cannot be the name of one.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a profile: letters, digits, '.', '_' and '-', at most 64, no '.' in front."
        )
    return own_folder() / f"{name}.toml"


class ProfileExists(UsageError):
    """There is a profile of this name, and it was not to be replaced."""


def save(name: str, text: str, *, replace: bool) -> Path:
    """Write a profile, whole or not at all.

    Raises:
        ProfileExists: there is one of this name and it is not to be replaced.
        UsageError: it cannot be written.
    """
    path = path_of(name)
    if path.exists() and not replace:
        raise ProfileExists(f"There is a profile {name} already ({path}).")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise UsageError(f"The profile {path} cannot be written: {error.strerror}.") from None
    return path


def write_atomic(path: Path, text: str) -> None:
    """Write beside `path` and rename.

    Raises:
        OSError: it cannot be written.
    """
    number, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(beside, 0o600)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
