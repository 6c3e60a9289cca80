"""What a person has typed into the set-up, field by field, and what it means."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from eagle3_console.plan import Plan
from eagle3_remote.protocol import DataLook, Facts, Looked, ModelLook, OutLook, SmokeRate

AUTO, ALL, NEVER = "auto", "all", "never"
"""Words for "the default", "every sample" and "nothing is cut"."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One thing that is asked or proposed."""

    name: str
    label: str
    hint: str
    """What belongs there, for somebody who sees it the first time."""
    path: str = ""
    """A path on the box: ``any`` or ``folder``; empty: it is none."""
    restart: bool = False
    """A running server has to be restarted before a change counts."""


ASKED = (
    Field("model", "Model", "the model's folder on the box (config.json and the weights)", "folder", True),
    Field("data", "Data", "tokenized_data.jsonl, or Arrow or Parquet (file or folder)", "any"),
    Field("out", "Output", "the folder for the hidden states, made where it is missing", "folder"),
)
SETTINGS = (
    Field("python", "Python", "the Python on the box that has SGLang", "any", True),
    Field("boundaries", "Boundaries", "layers already done where states are taken, like 2,30,58", "", True),
    Field("final", "Final state", "pre or post: before or after the model's final norm", "", True),
    Field("max_seq_len", "Longest", "samples are cut to so many tokens; never: nothing is cut"),
    Field("samples", "Samples", "only the first so many; all: every one"),
    Field("tp", "Tensor par.", "so many GPUs hold the model together", "", True),
    Field("tokens_in_flight", "In flight", "tokens at the server at once; auto: four of its prefill chunks", "", True),
    Field("dump_dir", "Dumps", "where states lie on their way; auto: /dev/shm", "folder", True),
    Field("port", "Port", "of the SGLang server, on the box only", "", True),
    Field("server_args", "SGLang args", "further arguments of SGLang, as in a shell", "", True),
)
FIELDS = {field.name: field for field in (*ASKED, *SETTINGS)}


@dataclasses.dataclass(frozen=True)
class Draft:
    """What was typed. A field that was left alone, or emptied, is not in it: there the proposal counts."""

    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables for the server, from the command line or a profile: kept, not asked."""

    def typed(self, name: str, text: str) -> Draft:
        """With another text in one field; a path as `read` has it."""
        texts = {key: value for key, value in self.texts.items() if key != name}
        return dataclasses.replace(self, texts={**texts, name: read(name, text)} if text.strip() else texts)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the box told; `None` where it has not answered yet."""

    facts: Facts | None = None
    box: Looked | None = None
    """Disks, driver, and ports: the one asked for and the first free one."""
    model: ModelLook | None = None
    data: DataLook | None = None
    out: OutLook | None = None
    prefill_tps: float = 0.0
    """Prompt tokens a second that ``server bench`` measured with this model here; 0: it did not."""
    smoke: SmokeRate = dataclasses.field(default_factory=SmokeRate)
    """The rate that ``extract plan`` measured with this model here."""
    trouble: str = ""
    """Why the box cannot be asked."""


def read(name: str, text: str) -> str:
    """A text as it counts: the same path with slashes at its end is the same path."""
    return text.strip().rstrip("/") or "/" if FIELDS[name].path and text.strip() else text


def from_plan(plan: Plan) -> Draft:
    """What a plan says already, as if it had been typed."""
    texts: dict[str, str] = {"model": plan.model, "data": plan.data, "out": plan.out, "python": plan.python}
    texts["boundaries"] = ",".join(map(str, plan.boundaries))
    texts["final"] = plan.final
    texts["dump_dir"] = plan.dump_dir
    texts["server_args"] = shlex.join(plan.server_args)
    for name in ("max_seq_len", "samples", "tokens_in_flight"):
        texts[name] = str(getattr(plan, name) or "")
    for name in ("tp", "port"):
        known = name in plan.said or getattr(plan, name) != getattr(Plan, name)
        texts[name] = str(getattr(plan, name)) if known else ""
    return Draft({name: read(name, text) for name, text in texts.items() if text}, dict(plan.server_env))


def value_of(name: str, text: str) -> Any:
    """What a text in a field means, as `Plan` has it.

    Raises:
        ValueError: it means nothing; the text is a sentence for a person.
    """
    text = text.strip()
    if name == "boundaries":
        return _boundaries(text)
    if name == "final":
        if text not in ("pre", "post"):
            raise ValueError(f"The final state is pre or post, not {text!r}.")
        return text
    if name in ("tp", "port"):
        return _whole(text, 1, 1024 if name == "tp" else 65535)
    if name in ("max_seq_len", "samples", "tokens_in_flight"):
        return 0 if text in ("", AUTO, ALL, NEVER) else _whole(text, 1, 10**12)
    if name == "server_args":
        return _words(text)
    if name == "dump_dir":
        return "" if text in ("", AUTO) else text
    return text


def _boundaries(text: str) -> tuple[int, ...]:
    try:
        values = as_typed(text)
    except ValueError:
        values = ()
    if not values or min(values) < 0:
        raise ValueError(f"Boundaries are whole numbers from 0 on with commas between, like 2,30,58, not {text!r}.")
    if len(set(values)) != len(values):
        twice = sorted({value for value in values if values.count(value) > 1})
        raise ValueError(f"{text} names {listed(twice)} more than once.")
    return tuple(sorted(values))


def listed(values: Sequence[int]) -> str:
    """``boundary 3``, or ``boundaries 3, 70 and 99``."""
    *first, last = map(str, values)
    return f"boundaries {', '.join(first)} and {last}" if first else f"boundary {last}"


def as_typed(text: str) -> tuple[int, ...]:
    """The boundaries in the order of the text.

    Raises:
        ValueError: there are none in it.
    """
    return tuple(int(part) for part in re.split(r"[,\s]+", text) if part)


def _whole(text: str, least: int, most: int) -> int:
    try:
        value = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        span = f"from {least} on" if most >= 10**9 else f"from {least} to {most}"
        raise ValueError(f"A whole number {span} is needed, not {text!r}.")
    return value


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"The arguments cannot be read as in a shell: {error}.") from None
    if words and not words[0].startswith("--"):
        raise ValueError(f"Arguments begin with --, not with {words[0]!r}.")
    return words
