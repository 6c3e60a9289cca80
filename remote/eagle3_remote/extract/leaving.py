"""That a server is being stopped on purpose, in RUN_DIR/leaving.json of each extraction that sends to it. Standard library only.

A server that drains on TERM goes on answering for as long as requests come, so the senders must hold theirs first. The agent that stops
it writes the mark and takes it away again; one that was left behind by an agent that died runs out by itself.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from eagle3_remote.files import write_atomic

LEAVING_FILE = "leaving.json"
RUNS_OUT = 180.0
"""Seconds that a mark counts: longer than the longest stop."""


def port_of(url: str) -> int:
    """By which a server on this box is known: dumps are files, so every server of an extraction is on its box."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def mark(run_dir: Path, port: int) -> None:
    """The server on `port` is being stopped: nothing more is to be sent to it.

    Raises:
        OSError: the run directory cannot be written.
    """
    text = json.dumps({"port": port, "until": time.time() + RUNS_OUT})
    write_atomic(run_dir / LEAVING_FILE, text.encode())


def clear(run_dir: Path) -> None:
    """It has stopped, or could not be: what answers from now on may be sent to.

    Raises:
        OSError: the run directory cannot be written.
    """
    (run_dir / LEAVING_FILE).unlink()


def leaving(run_dir: str) -> int | None:
    """The port of the server that is being stopped now."""
    try:
        with open(os.path.join(run_dir, LEAVING_FILE), encoding="utf-8") as file:
            found = json.load(file)
        return int(found["port"]) if time.time() < float(found["until"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
