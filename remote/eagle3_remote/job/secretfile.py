"""The secrets of one job, apart from everything that is shown, logged or handed on: ``secret.json`` in its run directory.

The file is for its owner alone (0600, in a folder of 0700). Everything else of the job reads `HIDDEN` in their place.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.protocol.secret import HIDDEN, hide_argv, is_secret

FILE = "secret.json"


@dataclasses.dataclass(frozen=True)
class Secrets:
    """What is kept apart."""

    env: dict[str, str] = dataclasses.field(default_factory=dict)
    args: dict[str, str] = dataclasses.field(default_factory=dict)
    """``--flag`` -> its value; of one with several, ``--flag 2`` -> the second."""

    @classmethod
    def of(cls, env: Mapping[str, str], words: Sequence[str]) -> Secrets:
        """Those among variables and arguments."""
        args = {}
        for name, word, shown in zip(_names(words), words, hide_argv(words), strict=True):
            if shown != word:
                args[name] = word.removeprefix(shown.removesuffix(HIDDEN))
        secret = {name: value for name, value in env.items() if value and value != HIDDEN and is_secret(name, value)}
        return cls(secret, args)

    def __bool__(self) -> bool:
        return bool(self.env or self.args)

    def values(self) -> list[str]:
        """The secrets themselves, the longest first."""
        return sorted({*self.env.values(), *self.args.values()}, key=len, reverse=True)

    def restored(self, env: Mapping[str, str], words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Variables and arguments with what was hidden in them put back.

        Raises:
            KeyError: one is not kept here; its name.
        """
        full = {name: self.env[name] if value == HIDDEN else value for name, value in env.items()}
        out: list[str] = []
        for name, word in zip(_names(words), words, strict=True):
            if word == HIDDEN or word.partition("=")[2] == HIDDEN:
                out.append(word.removesuffix(HIDDEN) + self.args[name])
            else:
                out.append(word)
        return full, tuple(out)


def _names(words: Sequence[str]) -> list[str]:
    """The name in `Secrets.args` of each word's secret: its flag, and which of the flag's values it is."""
    names, flag, number = [], "", 0
    for word in words:
        flag, number = (word.partition("=")[0], 0) if word.startswith("--") else (flag, number + 1)
        names.append(flag if number < 2 else f"{flag} {number}")
    return names


def write(run_dir: Path, secrets: Secrets) -> None:
    """Keep them; nothing is written where there are none.

    Raises:
        OSError: the file could not be written.
    """
    if secrets:
        write_atomic(run_dir / FILE, json.dumps(dataclasses.asdict(secrets)).encode())


def read(run_dir: Path) -> Secrets:
    """Those of a job; none where there is no file."""
    record = read_json(run_dir / FILE) or {}
    env, args = record.get("env"), record.get("args")
    return Secrets(
        {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {},
        {str(key): str(value) for key, value in args.items()} if isinstance(args, dict) else {},
    )
