"""The arguments of an SGLang command line: taken apart, written out in full, held against what a parser knows. Pure."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ALIASES = {"--model": "--model-path", "--tp": "--tp-size", "--tensor-parallel-size": "--tp-size"}
"""Other names of flags that the console goes by; all SGLang from 0.5.4 to 0.5.23 know them."""


class PlanError(ValueError):
    """What is asked cannot be started; the text is a full sentence."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a parser."""

    names: tuple[str, ...]
    takes_value: bool = True
    repeats: bool = False
    """Giving it twice adds up, instead of the last one winning."""
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Parser:
    """What the parser of the installed SGLang said of one line."""

    options: tuple[Option, ...]
    argv: tuple[str, ...]
    """The line as it was parsed: a ``--config`` file is merged in."""
    error: str = ""
    """Empty: it took the line."""
    unfit: str = ""
    """Why the patch would refuse a server with these arguments; empty: it would not."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Parser:
        """Read the answer of ``eagle3_patch.argcheck``."""
        options = tuple(
            Option(tuple(names), takes, repeats, tuple(choices)) for names, takes, repeats, choices in answer["options"]
        )
        return cls(options, tuple(answer["argv"]), answer["error"], answer["unfit"])

    @property
    def names(self) -> frozenset[str]:
        """Every spelling it knows."""
        return frozenset(name for option in self.options for name in option.names)

    def meant(self, name: str) -> list[Option]:
        """The options that argparse takes `name` for: the one of that name, else all that begin so."""
        exact = [option for option in self.options if name in option.names]
        if exact or not name.startswith("--"):
            return exact
        return [option for option in self.options if any(known.startswith(name) for known in option.names)]


@dataclasses.dataclass(frozen=True)
class Given:
    """One option as a person gave it."""

    name: str
    """The one name the console knows it by."""
    values: tuple[str, ...]
    tokens: tuple[str, ...]
    """The words to write, abbreviations written out."""


def split(args: Sequence[str], parser: Parser | None = None) -> list[Given]:
    """The options among `args` with their values. With a parser, abbreviations count as what they stand for.

    Raises:
        PlanError: a word belongs to no option.
    """
    groups: list[list[str]] = []
    for word in args:
        if word.startswith("--"):
            groups.append([word])
        elif groups:
            groups[-1].append(word)
        else:
            raise PlanError(
                f"The server argument {word!r} belongs to no option: options begin with --, and a value follows its option."
            )
    return [_given(group, parser) for group in groups]


def _given(group: list[str], parser: Parser | None) -> Given:
    written, equals, value = group[0].partition("=")
    full = _written_out(written, parser)
    values = (value, *group[1:]) if equals else tuple(group[1:])
    return Given(full, values, (full + equals + value, *group[1:]))


def _written_out(name: str, parser: Parser | None) -> str:
    if name in ALIASES:
        return ALIASES[name]
    meant = [] if parser is None else parser.meant(name)
    if len(meant) != 1:
        return name
    option = meant[0]
    # the first name is the one argparse shows; "--disable-x" is kept where it is the second of an on-off pair
    full = name if name in option.names else next(known for known in option.names if known.startswith(name))
    return ALIASES.get(full, full)


def tidy(args: Sequence[str], version: str, parser: Parser | None = None) -> tuple[str, ...]:
    """The same arguments with abbreviations written out and each option there once.

    Raises:
        PlanError: an option is unknown or ambiguous, or given twice with different values; all such options are named.
    """
    given = split(args, parser)
    wrong = [] if parser is None else _unknown(given, version, parser)
    wrong += _twice(given, parser)
    if wrong:
        raise PlanError(" ".join(wrong))
    once = {(one.name, one.values): one for one in given}
    return tuple(token for one in once.values() for token in one.tokens)


def _unknown(given: Iterable[Given], version: str, parser: Parser) -> list[str]:
    found = []
    for one in given:
        meant = parser.meant(one.name)
        if not meant:
            found.append(f"SGLang {version} has no {one.name}{instead(one.name, parser.names)}.")
        elif len(meant) > 1:
            names = ", ".join(sorted(known for option in meant for known in option.names if known.startswith(one.name)))
            found.append(f"{one.name} may be each of {names} in SGLang {version}: write it out.")
    return found


def _twice(given: Sequence[Given], parser: Parser | None) -> list[str]:
    found = []
    for name in dict.fromkeys(one.name for one in given):
        values = list(dict.fromkeys(" ".join(one.values) for one in given if one.name == name))
        repeats = parser is not None and any(option.repeats for option in parser.meant(name))
        if len(values) > 1 and not repeats:
            found.append(f"{name} is given {len(values)} times with different values ({'; '.join(values)}): keep one.")
    return found


def instead(name: str, known: Iterable[str]) -> str:
    """``; it has A, B``: the names nearest to one that is unknown; empty where nothing is near."""
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f"; the nearest it has: {', '.join(near)}" if near else ""


def explain(error: str, parser: Parser) -> str:
    """argparse's words for a person: long lists of choices cut, the nearest choice named."""
    match = re.match(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from", error)
    if match is None:
        return error
    name = match[1].rpartition("/")[2]
    choices = [choice for option in parser.meant(name) for choice in option.choices]
    near = difflib.get_close_matches(match[2], choices, n=1, cutoff=0.5)
    offered = f"did you mean {near[0]}" if near else f"it may be {', '.join(choices)}"
    return f"{name} cannot be {match[2]!r}; {offered}"
