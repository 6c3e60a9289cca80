"""A fold's state on disk, so that the next process goes on where the last one was: a gigabyte is folded once.

``fold-<mark of the fold's code>.json`` beside the log: a SHA-256 and what it is of. Whatever does not fit is as good as
none: damaged, of another file, of one that was cut since. A release whose fold differs has a file of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.files import write_atomic
from eagle3_remote.protocol import codec, decode, encode, server
from eagle3_remote.serverlog.state import LogState

_HEAD = 4096
"""Bytes of the log's beginning that tell it from another one that was given the same inode. They are never dropped."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A log folded up to `offset`."""

    inode: int
    offset: int
    head: str
    """SHA-256 of the first `_HEAD` bytes, or of as many as `offset` says."""
    state: LogState


def save(folder: Path, log: int, offset: int, state: LogState) -> None:
    """Keep `state`; where there is no room or no permission it is not kept.

    Args:
        folder: where the log lies.
        log: its open file.
        offset: how many of its bytes are in `state`.
    """
    with contextlib.suppress(OSError):
        kept = Checkpoint(os.fstat(log).st_ino, offset, _head(log, offset), state)
        body = json.dumps(encode(kept)).encode()
        write_atomic(_path(folder), hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def load(folder: Path, log: int) -> Checkpoint | None:
    """What was kept of the open file `log`; `None`: nothing that fits."""
    try:
        digest, _, body = _path(folder).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        kept = decode(Checkpoint, json.loads(body))
        seen = os.fstat(log)
        fits = kept.inode == seen.st_ino and kept.offset <= seen.st_size and kept.head == _head(log, kept.offset)
    except (OSError, ValueError):
        return None
    return kept if fits else None


def _head(log: int, offset: int) -> str:
    return hashlib.sha256(os.pread(log, min(_HEAD, offset), 0)).hexdigest()


def _path(folder: Path) -> Path:
    return folder / f"fold-{_mark()}.json"


@functools.cache
def _mark() -> str:
    """Names the code that makes and reads a state, and the Python that runs it."""
    sources = [
        *sorted(Path(__file__).parent.glob("*.py")),
        *(Path(str(one.__file__)) for one in (layout, codec, server)),
    ]
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
