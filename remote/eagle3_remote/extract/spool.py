"""The token ids and loss masks of the good samples, kept beside the journal in ``.eagle3/samples.bin``.

The input is read once, whatever its format; sending, checking and writing the Arrow rows take the samples from here. A record is the
ids as little-endian int64 and, where the sample has one, the mask as a byte a token: 8 or 9 bytes a token, beside tens of thousands
for its states. The journal knows where each record begins. Bytes that the journal does not know belong to a batch that was never
committed: the next reading overwrites them.
"""

from __future__ import annotations

import array
import os
import sys
from typing import TYPE_CHECKING

from eagle3_remote.extract.collect import sync_dir
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.input import Sample

if TYPE_CHECKING:
    from eagle3_remote.extract.records import Entry

ID_BYTES, MASK_BYTES = 8, 1
"""A token."""


def record_of(sample: Sample) -> bytes:
    """The record of a sample."""
    return _little_endian(sample.ids).tobytes() + (bytes(sample.mask.tolist()) if sample.has_mask else b"")


def _little_endian(ids: array.array[int]) -> array.array[int]:
    if sys.byteorder == "big":
        ids = ids[:]
        ids.byteswap()
    return ids


class Writer:
    """Appends records; only the reading of the input does.

    Raises:
        OSError: also from `append`, for example ENOSPC: nothing of the call counts, and it may be tried again.
    """

    def __init__(self, path: str, end: int) -> None:
        new = not os.path.exists(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if new:
            sync_dir(os.path.dirname(path))
        self.end = end
        """Where the next record begins."""

    def append(self, data: bytes) -> None:
        """Write at the end and make it durable; the journal may name it from then on."""
        view, at = memoryview(data), self.end
        while view:
            written = os.pwrite(self._fd, view, at)
            view, at = view[written:], at + written
        os.fdatasync(self._fd)
        self.end = at

    def close(self) -> None:
        os.close(self._fd)


def read(path: str, entry: Entry) -> Sample:
    """The sample of a journal entry.

    Raises:
        ExtractionError: the file is gone or holds something else.
    """
    split = entry.tokens * ID_BYTES
    size = split + entry.tokens * MASK_BYTES * entry.has_mask
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, size, entry.offset)
        finally:
            os.close(fd)
    except OSError as error:
        raise ExtractionError(f"The samples that were read cannot be read again from {path}: {error}.") from None
    ids = _little_endian(array.array("q", data[: min(split, len(data) // ID_BYTES * ID_BYTES)]))
    mask = array.array("q", iter(data[split:])) if entry.has_mask else array.array("q", [1]) * len(ids)
    sample = Sample(entry.line, ids, mask, entry.has_mask, None, len(ids))
    if len(data) != size or sample.fingerprint != entry.fingerprint:
        raise ExtractionError(
            f"{path} was changed: at byte {entry.offset} it does not hold the ids of sample {entry.line} any more. "
            "Choose another --out and extract again."
        )
    return sample
