"""Which profile was used last on which host: ``$XDG_STATE_HOME/eagle3-console/hosts.json``."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from eagle3_console.profiles import store
from eagle3_console.profiles.write import write_atomic


def place() -> Path:
    """The file."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "eagle3-console" / "hosts.json"


def remembered(host: str) -> str:
    """The profile that was saved last for `host`, as typed; empty: none, or it is there no more."""
    name = _all().get(host, "")
    return name if name in {one.name for one in store.places()} else ""


def remember(host: str, name: str) -> None:
    """Keep it.

    Raises:
        OSError: the file cannot be written.
    """
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({**_all(), host: name}, indent=2, sort_keys=True) + "\n")


def with_remembered(args: argparse.Namespace) -> argparse.Namespace:
    """The command line with the host's last profile below it: what the command line names wins, the rest is the profile's.

    One that names a profile itself, or all of model, data and output, is a run of its own: nothing is laid below it.
    """
    if args.profile or (args.model and args.data and args.out):
        return args
    return argparse.Namespace(**{**vars(args), "profile": remembered(args.host)})


def _all() -> dict[str, str]:
    try:
        known = json.loads(place().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(host): str(name) for host, name in known.items()} if isinstance(known, dict) else {}
