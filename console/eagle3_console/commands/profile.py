"""Profiles on this machine: list, show, validate. Nothing is connected to."""

from __future__ import annotations

import argparse
import dataclasses
import re
from typing import Any

from eagle3_console.errors import UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_console.profiles import store
from eagle3_console.profiles.profile import ProfileError, read
from eagle3_remote.protocol import HIDDEN, hide_env, is_secret, is_secret_flag


async def profile_list(args: argparse.Namespace) -> int:
    """Every profile by name, with where it lies."""
    rows = [_row(place) for place in store.places()]
    if args.json:
        print_json(rows)
        return ExitCode.GOOD
    width = max(len(row["name"]) for row in rows)
    lines = [f"{row['name']:{width}}  {row['origin']:8}  {row['description']}" for row in rows]
    print_text("\n".join([*lines, "", f"Your own lie in {store.own_folder()}, a file NAME.toml each."]))
    return ExitCode.GOOD


def _row(place: store.Place) -> dict[str, Any]:
    try:
        description = read(place.path).description
    except ProfileError as error:
        description = f"has {len(error.faults)} mistakes: eagle3-console profile validate {place.name}"
    if place.hidden:
        description = "(your own of this name is taken) " + description
    origin = "built-in" if place.built_in else "own"
    return {"name": place.name, "origin": origin, "path": str(place.path), "description": description}


async def profile_show(args: argparse.Namespace) -> int:
    """The file as it is written, but for secrets; as JSON, what it comes to.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    place = store.find(args.name)
    if args.json:
        loaded = store.load(args.name)
        print_json(
            dataclasses.asdict(
                dataclasses.replace(
                    loaded,
                    env=hide_env(loaded.env),
                    flags={flag: (HIDDEN,) if is_secret_flag(flag) else words for flag, words in loaded.flags.items()},
                )
            )
        )
    else:
        try:
            text = place.path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"The profile {place.path} cannot be read: {error.strerror}.") from None
        print_text("\n".join(_hidden(line) for line in text.splitlines()))
    return ExitCode.GOOD


def _hidden(line: str) -> str:
    """A line of a profile; a variable or flag that is a secret without its value."""
    found = re.match(r"""(\s*["']?([A-Za-z_][\w-]*)["']?\s*=\s*)(["'])(.+)\3""", line)
    if found is not None and (is_secret(found[2], found[4]) or is_secret_flag(f"--{found[2]}")):
        return f"{found[1]}{found[3]}{HIDDEN}{found[3]}"
    return line


async def profile_validate(args: argparse.Namespace) -> int:
    """Every mistake of the named profiles, or of all."""
    checked = [store.find(name) for name in args.names] or store.places()
    results: list[dict[str, Any]] = []
    for place in checked:
        try:
            read(place.path)
            faults: list[dict[str, Any]] = []
        except ProfileError as error:
            faults = [dataclasses.asdict(fault) | {"sentence": str(fault)} for fault in error.faults]
        results.append({"name": place.name, "path": str(place.path), "good": not faults, "faults": faults})
    if args.json:
        print_json(results)
    else:
        lines = [fault["sentence"] for result in results for fault in result["faults"]]
        print_text("\n".join([*lines, *(f"{result['path']}: good" for result in results if result["good"])]))
    return ExitCode.GOOD if all(result["good"] for result in results) else ExitCode.USAGE


COMMANDS = {
    "profile list": profile_list,
    "profile show": profile_show,
    "profile validate": profile_validate,
}
