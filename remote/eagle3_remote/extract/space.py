"""Room on the output's and the dump's file systems."""

from __future__ import annotations

import dataclasses
import os

from eagle3_remote.extract.statesfile import file_size

FILE_OVERHEAD = 4096 + 256
"""Bytes a stored file takes on a disk beyond its rows, at most: its last, partly filled block and the safetensors header."""
_ARROW_TOKEN = 16
"""Two int64 a token: input_ids and loss_mask."""
_SPOOL_TOKEN = 9
"""The id and the mask in ``samples.bin``."""

_JOURNAL_ROW = 400
JOURNAL_FIXED = 6 * 1024 * 1024
"""The journal's write-ahead log (4 MiB before it is folded in) and the manifest."""


@dataclasses.dataclass(frozen=True)
class Room:
    """One file system. `inodes` is `None` where it does not count them (btrfs, some network ones)."""

    free: int
    total: int
    inodes: int | None

    @property
    def margin(self) -> int:
        """What is left alone, for others: 2 %, at most 256 MiB."""
        return min(256 * 1024 * 1024, self.total // 50)


@dataclasses.dataclass(frozen=True)
class Shape:
    """What one token takes."""

    layers: int
    """Boundaries and the final state."""
    hidden_size: int
    item_bytes: int
    dtype: str = "bfloat16"

    @property
    def token_bytes(self) -> int:
        """States and the int64 token id."""
        return self.layers * self.hidden_size * self.item_bytes + 8

    def file_bytes(self, tokens: int) -> int:
        """Size of the file of a sample, exactly."""
        return file_size(tokens, self.layers, self.hidden_size, self.dtype)

    def dataset_bytes(self, tokens: int, files: int) -> int:
        """What a disk needs for a dataset of so many tokens in so many samples, rows and journal included."""
        return tokens * (self.token_bytes + _ARROW_TOKEN + _SPOOL_TOKEN) + files * (FILE_OVERHEAD + _JOURNAL_ROW)


def room(path: str) -> Room:
    """Free space for this user on the file system of `path`."""
    seen = os.statvfs(path)
    return Room(seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize, seen.f_favail if seen.f_files else None)


def gigabytes(value: float) -> str:
    """``12.34 GB`` (10^9), or MB below one."""
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.2f} MB"


def judge(need: int, files: int, where: Room, path: str, reserve: int = 0) -> tuple[str | None, str | None]:
    """(why it is refused, why it is warned of) before a run that still has to write `need` bytes in `files` files.

    Args:
        reserve: what must be free still at its end, for it pauses where less is (`output_full`).
    """
    if where.inodes is not None and where.inodes < files:
        return (
            f"{path} has {where.inodes} free inodes, {files} files are still to be written. Choose another file system.",
            None,
        )
    kept = f" and {gigabytes(reserve)} stay free for others" if reserve else ""
    if where.free < need + reserve:
        missing = gigabytes(need + reserve - where.free)
        text = f"{path} has {gigabytes(where.free)} free, the rest of the dataset takes {gigabytes(need)}{kept}: {missing} are missing."
        return text + " Free space, choose another directory, or extract fewer samples.", None
    if where.free < 1.2 * need + reserve:
        return (
            None,
            f"{path} has {gigabytes(where.free)} free and the rest of the dataset takes {gigabytes(need)}{kept}: that is close.",
        )
    return None, None


def output_full(where: Room, owed: int, sample: int, path: str) -> str | None:
    """Why nothing more is sent, or `None`. `owed` is what is on its way and not yet stored."""
    if where.free - owed >= sample + where.margin:
        return None
    return f"Paused: {path} has only {gigabytes(where.free)} free. It goes on by itself when there is space."


DUMP_SHARE, DUMP_SHARE_AGAIN = 0.7, 0.5
"""Of what is free for us in the dump directory, so much may be on its way; after it was full, so much less."""


def dump_fits(where: Room, written: int, owed: int, sample: int, was_full: bool) -> bool:
    """Whether the dump directory has room for one more sample.

    Args:
        written: bytes of ours that lie there already, and come back once they are stored.
        owed: `written` and what the server still has to write.
    """
    share = DUMP_SHARE_AGAIN if was_full else DUMP_SHARE
    if owed:
        return (
            owed + sample <= share * (where.free + written) and where.free - (owed - written) >= sample + where.margin
        )
    return where.free >= sample + where.margin


def dump_full(where: Room, path: str) -> str:
    """Why nothing more is sent."""
    return f"Paused: the dump directory {path} has only {gigabytes(where.free)} free. It goes on by itself when there is space."
