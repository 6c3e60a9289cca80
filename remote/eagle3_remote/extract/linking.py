"""Giving the state files of shards their second names in the whole: by hard link, rename or symbolic link."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.collect import file_name, sync_dir
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.parts import Part
from eagle3_remote.files import read_json
from eagle3_remote.job.work import Progress

JOINED_FILE = "joined.json"


class Stopped(Exception):
    """Asked to stop."""


def link_all(db: sqlite3.Connection, out: ds.Dataset, parts: list[Part], by: str, progress: Progress) -> None:
    """Name every stored file as its row in the whole.

    Raises:
        ExtractionError: a file is missing, of another size, or cannot be named this way.
        Stopped: the job is asked to stop.
    """
    one_name = WAYS[by]
    for line, there, row, size in _stored(db):
        part = parts[(line - 1) % len(parts)]
        source = os.path.join(part.dataset.states, file_name(there))
        target = os.path.join(out.states, file_name(row))
        one_name(source, target, size)
        if os.stat(target).st_size != size:
            raise ExtractionError(
                f"{source} has another size than its journal says: verify that shard and extract again what it lost."
            )
        if not progress.moved(1, size):
            raise Stopped
    sync_dir(out.states)


def _stored(db: sqlite3.Connection) -> Iterator[tuple[int, int, int, int]]:
    """(line, row in its shard, row in the whole, bytes)."""
    yield from db.execute("SELECT line, target, row, bytes FROM samples WHERE state = 'stored' ORDER BY row")


def note_links(parts: list[Part], out: ds.Dataset) -> None:
    """The states of these shards are those of the whole, too, from now on; read before a shard is removed (`disk.control`)."""
    for part in parts:
        path = os.path.join(part.dataset.ours, JOINED_FILE)
        into = os.path.relpath(os.path.realpath(out.root), os.path.realpath(part.dataset.root))
        known = (read_json(Path(path)) or {}).get("into", [])
        if into not in known:
            ds.write_json(path, {"into": [*known, into]})


def give_up(parts: list[Part], out: ds.Dataset) -> None:
    """Before the first rename: see that it can be done; nobody shall take a shard that loses its files for a whole one."""
    for part in parts:
        trial = os.path.join(part.dataset.ours, "trial")
        with open(trial, "wb"):
            pass
        try:
            _rename(trial, os.path.join(out.ours, "trial"), 0)
        except ExtractionError:
            os.unlink(trial)
            raise
    os.unlink(os.path.join(out.ours, "trial"))
    for part in parts:
        ds.write_json(part.dataset.manifest, {**part.manifest, "complete": False, "merged_into": out.root})
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(part.dataset.root, ds.STATE_FILE))


def _hard_link(source: str, target: str, size: int) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):
            raise ExtractionError(f"{target} is another file than {source}: choose another --out.") from None
    except FileNotFoundError:
        raise _lost(source) from None
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        raise ExtractionError(
            f"{source} cannot have a second name in {os.path.dirname(target)} ({error.strerror}). Choose an --out on the shards' own "
            "file system, or '--by symlink' (the shards must then stay where they are), or '--by rename' (they are used up)."
        ) from None


def _rename(source: str, target: str, size: int) -> None:
    if os.path.lexists(source):
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            raise ExtractionError(
                f"{source} cannot be renamed into another file system: choose an --out on the shards' own one, or '--by symlink'."
            ) from None
    elif not os.path.isfile(target):
        raise _lost(source)


def _symlink(source: str, target: str, size: int) -> None:
    if not os.path.isfile(source):
        raise _lost(source)
    # relative: a tree that is moved or mounted elsewhere as a whole stays whole
    wanted = os.path.relpath(source, os.path.dirname(target))
    try:
        os.symlink(wanted, target)
    except FileExistsError:
        if not (os.path.islink(target) and os.readlink(target) == wanted):
            raise ExtractionError(
                f"{target} is something else than a link to {source}: choose another --out."
            ) from None


def _lost(source: str) -> ExtractionError:
    return ExtractionError(f"{source} is missing: start the extraction of that shard again, it makes what it lost.")


WAYS = {"hard-link": _hard_link, "rename": _rename, "symlink": _symlink}
