"""What a person wants of a running extraction, in RUN_DIR/control.json: pause, resume, another budget. Standard library only.

The file outlives consoles and connections; the extraction looks at it twice a second.
"""

from __future__ import annotations

import dataclasses
import json
import os

CONTROL_FILE = "control.json"


@dataclasses.dataclass(frozen=True)
class Wishes:
    """The newest wishes."""

    paused: bool = False
    resumes: int = 0
    """So often somebody said go on: also ends a pause that the extraction took by itself."""
    tokens_in_flight: int = 0
    """0: as the extraction was started with."""


def read(run_dir: str) -> Wishes:
    """The wishes; none where the file is missing or broken."""
    try:
        with open(os.path.join(run_dir, CONTROL_FILE), encoding="utf-8") as file:
            found = json.load(file)
        return Wishes(bool(found["paused"]), int(found["resumes"]), int(found["tokens_in_flight"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Wishes()


def write(run_dir: str, wishes: Wishes) -> None:
    """Replace the wishes, whole.

    Raises:
        OSError: the run directory cannot be written.
    """
    path = os.path.join(run_dir, CONTROL_FILE)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(wishes), file)
    os.replace(path + ".tmp", path)


def pause(run_dir: str) -> Wishes:
    """Send nothing more until `resume`; what is in flight is finished."""
    wishes = dataclasses.replace(read(run_dir), paused=True)
    write(run_dir, wishes)
    return wishes


def resume(run_dir: str) -> Wishes:
    """Go on."""
    now = read(run_dir)
    wishes = dataclasses.replace(now, paused=False, resumes=now.resumes + 1)
    write(run_dir, wishes)
    return wishes


def budget(run_dir: str, tokens: int) -> Wishes:
    """Let so many tokens be in flight at each server from now on."""
    wishes = dataclasses.replace(read(run_dir), tokens_in_flight=tokens)
    write(run_dir, wishes)
    return wishes
