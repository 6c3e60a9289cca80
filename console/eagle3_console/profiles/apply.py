"""Lays a command line over a profile: what is said on it wins, then the profile, then the default."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from eagle3_console.plan import Plan
from eagle3_console.profiles.profile import Profile
from eagle3_console.profiles.store import load, own

_OPTIONS = (
    "model",
    "data",
    "out",
    "tp",
    "port",
    "boundaries",
    "final",
    "dump_dir",
    "max_seq_len",
    "samples",
    "tokens_in_flight",
    "on_bad",
)
"""Attributes of a parsed command line that are `None` where nothing was said; `Plan` has their defaults."""


def with_profile(args: argparse.Namespace) -> argparse.Namespace:
    """The command line with its blanks filled; the given one is left as it is.

    Raises:
        UsageError: the profile is unknown or has mistakes.
    """
    if not hasattr(args, "profile") or hasattr(args, "said"):
        return args
    profile = load(args.profile) if args.profile else None
    said = vars(args)
    filled: dict[str, Any] = {}
    named = {name for name in _OPTIONS if said.get(name) is not None}
    if profile is not None:
        named |= profile.options.keys()
    for name in _OPTIONS:
        value = said.get(name)
        if value is None and profile is not None:
            value = profile.options.get(name)
        filled[name] = getattr(Plan, name) if value is None else value
    if profile is not None:
        filled["python"] = args.python or profile.options.get("python", "")
        filled["server_arg"] = [*_flags(profile, args.server_arg), *args.server_arg]
        filled["server_env"] = [*(pair for pair in profile.env.items()), *args.server_env]
    return argparse.Namespace(
        **{**said, **filled, "profile": "", "own_profile": own(args.profile), "said": frozenset(named)}
    )


def _flags(profile: Profile, said: Iterable[str]) -> list[str]:
    """The profile's flags without those that the command line names itself."""
    named = {word.partition("=")[0] for word in said if word.startswith("--")}
    return [word for name, values in profile.flags.items() if name not in named for word in (name, *values)]
