"""The settings on this machine: show, path, validate, test-alert. No box is connected to."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from eagle3_console import settings
from eagle3_console.events import Alert
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_console.notify import webhook
from eagle3_console.notify.headless import terminal_writer
from eagle3_console.notify.notifier import line_of
from eagle3_console.notify.terminal import BELL, notification
from eagle3_console.tomlfile import FaultyFile
from eagle3_remote.protocol import HIDDEN


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
    from eagle3_console.keys import rebound

    for name in ("theme", "readonly", "mouse"):
        yield _row(now, "", name, getattr(now, name))
    for field in dataclasses.fields(now.alerts):
        row = _row(now, "alerts", field.name, getattr(now.alerts, field.name))
        yield _hidden(row) if field.name == "webhook" and row["value"] else row
    for key in rebound(now.keys):
        keys = key.keys.split(",")
        yield _row(now, "keys", key.id, keys[0] if len(keys) == 1 else keys, f"{key.group}: {key.label}, {key.help}")


async def test_alert(args: argparse.Namespace) -> int:
    """One alert through every channel that is set, whatever its level; 3 when the webhook does not take it.

    Raises:
        UsageError: the settings have mistakes.
    """
    wanted = settings.load().alerts
    alert = Alert(time.time(), "info", "test", "this is a test of the alerts", "nothing is wrong, and nothing is to do")
    write = terminal_writer()
    told: dict[str, str] = {}
    if wanted.bell is not False:
        told["bell"] = "not rung: there is no terminal here" if write is None else "rung"
    if wanted.desktop != "off":
        told["desktop"] = "not sent: there is no terminal here" if write is None else f"sent as {wanted.desktop}"
    if write is not None:
        write(
            (BELL if "bell" in told else "") + notification(wanted.desktop, line_of("this machine", alert), os.environ)
        )
    why = ""
    if wanted.webhook:
        why = await asyncio.to_thread(webhook.post, wanted.webhook, webhook.message("this machine", alert))
        told["webhook"] = f"not posted: {why}" if why else "posted"
    if args.json:
        print_json(told)
    else:
        lines = [f"{channel}: {what}" for channel, what in told.items()]
        print_text("\n".join(lines) or f"No channel is set: see [alerts] in {settings.path()}.")
    return ExitCode.NO_CONNECTION if why else ExitCode.GOOD


def _hidden(row: dict[str, Any]) -> dict[str, Any]:
    """A value that is shown to nobody: a line that says that it is set, and is a comment where it is read again."""
    return row | {"value": HIDDEN, "toml": f"# {row['name']} is set; it is a secret", "origin": row["origin"]}


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


COMMANDS = {
    "config show": show,
    "config path": path,
    "config validate": validate,
    "config test-alert": test_alert,
}
