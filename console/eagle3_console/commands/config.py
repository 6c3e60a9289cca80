"""The settings on this machine: show, path, validate. Nothing is connected to."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from eagle3_console import settings
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_console.tomlfile import FaultyFile


async def show(args: argparse.Namespace) -> int:
    """Every value with its origin, as TOML that could be the file.

    Raises:
        UsageError: the file has mistakes.
    """
    rows = list(_rows(settings.load()))
    if args.json:
        print_json(rows)
        return ExitCode.GOOD
    lines = [f"# {settings.path()}" + ("" if settings.path().exists() else " (not there; everything is the default)")]
    table = ""
    for row in rows:
        if row["table"] != table:
            table = row["table"]
            lines += ["", f"[{table}]"]
        lines.append(f"{row['toml']:<44} # {row['origin']}")
    print_text("\n".join(lines))
    return ExitCode.GOOD


def _rows(now: settings.Settings) -> Iterator[dict[str, Any]]:
    from eagle3_console.ui.keys import rebound

    for name in ("theme", "readonly", "mouse"):
        yield _row(now, "", name, getattr(now, name))
    for field in dataclasses.fields(now.alerts):
        yield _row(now, "alerts", field.name, getattr(now.alerts, field.name))
    for key in rebound(now.keys):
        keys = key.keys.split(",")
        yield _row(now, "keys", key.id, keys[0] if len(keys) == 1 else keys, f"{key.group}: {key.label}, {key.help}")


def _row(now: settings.Settings, table: str, name: str, value: Any, means: str = "") -> dict[str, Any]:
    line = now.lines.get(f"{table}.{name}" if table else name)
    written = json.dumps(name) if "." in name else name
    return {
        "table": table,
        "name": name,
        "value": value,
        "toml": f"{written} = {json.dumps(value)}",
        "origin": "default" if line is None else f"{settings.path()}:{line}",
        "means": means,
    }


async def path(args: argparse.Namespace) -> int:
    """Where the file lies."""
    if args.json:
        print_json({"path": str(settings.path()), "exists": settings.path().exists()})
    else:
        print_text(str(settings.path()))
    return ExitCode.GOOD


async def validate(args: argparse.Namespace) -> int:
    """Every mistake of the file."""
    file = settings.path()
    try:
        settings.read(file)
        faults: list[dict[str, Any]] = []
    except FaultyFile as error:
        faults = [dataclasses.asdict(fault) | {"sentence": str(fault)} for fault in error.faults]
    if args.json:
        print_json({"path": str(file), "exists": file.exists(), "good": not faults, "faults": faults})
    elif faults:
        print_text("\n".join(fault["sentence"] for fault in faults))
    else:
        print_text(f"{file}: good" if file.exists() else f"{file} is not there: everything is the default")
    return ExitCode.USAGE if faults else ExitCode.GOOD


COMMANDS = {"config show": show, "config path": path, "config validate": validate}
