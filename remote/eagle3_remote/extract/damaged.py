"""Files of states whose bytes are not those that were stored: a check notes them, the next extraction into the dataset makes them again.

``damaged.json`` in the dataset's hidden folder: their names. It is a hint and nothing more: a file is given up only when its
bytes, read anew, still are not those of the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from eagle3_remote.extract.collect import file_name
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.statesfile import file_crc
from eagle3_remote.files import read_json, write_atomic

_FILE = "damaged.json"


def note(ours: str, names: Sequence[str]) -> None:
    """Keep what a check found; where it cannot be written, the next check finds it again.

    Args:
        ours: the dataset's hidden folder.
        names: of files of states; none: all are good.
    """
    path = Path(ours, _FILE)
    with contextlib.suppress(OSError):
        if names:
            write_atomic(path, json.dumps({"files": list(names)}).encode())
        else:
            path.unlink(missing_ok=True)


def give_up(ours: str, states: str, journal: Journal) -> int:
    """Remove the noted files that are damaged still; how many. Their samples wait again by the next look at the files.

    Raises:
        OSError: a damaged one cannot be read or removed.
    """
    noted = (read_json(Path(ours, _FILE)) or {}).get("files")
    names = set(map(str, noted)) if isinstance(noted, list) else set()
    removed = 0
    for entry in journal.stored() if names else ():
        path = os.path.join(states, file_name(entry.row))
        if file_name(entry.row) in names and os.path.exists(path) and file_crc(path) != entry.crc32:
            os.unlink(path)
            removed += 1
    note(ours, ())
    return removed
