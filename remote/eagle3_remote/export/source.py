"""The dataset that is exported: complete, unchanged while we read, every byte that is converted checked against its CRC-32."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from eagle3_remote.export.errors import ExportError
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.collect import file_name
from eagle3_remote.extract.journal import open_readonly
from eagle3_remote.extract.records import Entry
from eagle3_remote.extract.statesfile import DTYPES, read_header


@dataclasses.dataclass(frozen=True)
class Row:
    """One sample: what the journal says of its file, and its Arrow row."""

    row: int
    tokens: int
    bytes: int
    crc32: int
    path: str
    name: str
    """The sample's own id; its row number where it has none."""
    ids: Any = None
    """int64 ``[tokens]`` (numpy)."""
    mask: Any = None
    """int64 ``[tokens]`` (numpy), 0 or 1."""


class Source:
    """A complete dataset of ours, held against extractions while this lives.

    Raises:
        ExportError: it is none, it is not complete, or an extraction writes it now.
    """

    def __init__(self, root: str) -> None:
        self.dataset = ds.Dataset(os.path.abspath(root))
        self._lock = _hold(self.dataset)
        self.manifest = ds.read_manifest(self.dataset)
        if not self.manifest.get("complete"):
            raise ExportError(
                f"{self.dataset.root} is not a whole dataset yet: finish it with the same 'extract start' command first."
            )
        self.boundaries = tuple(int(one) for one in self.manifest["boundaries"])
        self.num_layers = int(self.manifest["num_layers"])
        self.hidden_size = int(self.manifest["hidden_size"])
        self.final = str(self.manifest["final"])
        self.dtype = str(self.manifest["dtype"])
        self.model = str(self.manifest["model"]["path"])
        self.model_fingerprint = str(self.manifest["model"]["fingerprint"])

    @property
    def layers(self) -> int:
        """Boundaries and the final state."""
        return len(self.boundaries) + 1

    def rows(self) -> Iterator[Row]:
        """Every sample in row order, without its Arrow row."""
        journal = open_readonly(self.dataset.journal)
        try:
            for entry, name in zip(journal.stored(), journal.stored_ids(), strict=True):
                yield self._row(entry, name)
        finally:
            journal.close()

    def _row(self, entry: Entry, name: str | None) -> Row:
        path = os.path.join(self.dataset.states, file_name(entry.row))
        return Row(entry.row, entry.tokens, entry.bytes or 0, entry.crc32 or 0, path, name or str(entry.row))

    def samples(self) -> Iterator[Row]:
        """Every sample in row order, with its Arrow row.

        Raises:
            ExportError: the Arrow rows are not those of the stored samples.
        """
        at = -1
        try:
            for at, (row, (ids, mask)) in enumerate(zip(self.rows(), arrow_rows(self.dataset.root), strict=True)):
                if not row.row == at or not len(ids) == len(mask) == row.tokens:
                    raise ExportError(self._odd(f"Arrow row {at} does not belong to {file_name(row.row)}"))
                yield dataclasses.replace(row, ids=ids, mask=mask)
        except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are OSError and ValueError
            raise ExportError(self._odd(f"its Arrow rows cannot be read after row {at}: {error}")) from None

    def states(self, row: Row) -> tuple[Any, Any]:
        """(token ids int64 ``[tokens]``, states ``[tokens, layers, hidden]``) of one sample as tensors over its mapped file.

        Raises:
            ExportError: the file is not the one that was stored.
        """
        import numpy
        import torch

        try:
            header = read_header(row.path)
            # copy on write: torch warns of memory that it may not write, and nobody writes it
            data = numpy.memmap(row.path, dtype=numpy.uint8, mode="c")
        except (OSError, ValueError) as error:
            raise ExportError(self._odd(f"{os.path.basename(row.path)}: {error}")) from None
        if header.size != row.bytes or zlib.crc32(data) != row.crc32:
            raise ExportError(self._odd(f"the bytes of {os.path.basename(row.path)} are not those that were stored"))
        whole = torch.from_numpy(data)
        ids = whole[slice(*header.ids)].view(torch.int64)
        states = whole[slice(*header.hidden)].view(getattr(torch, DTYPES[header.dtype])).view(header.shape)
        if header.shape != (row.tokens, self.layers, self.hidden_size):
            raise ExportError(self._odd(f"{os.path.basename(row.path)} has the shape {list(header.shape)}"))
        if not numpy.array_equal(ids.numpy(), row.ids):
            raise ExportError(
                self._odd(f"the token ids of {os.path.basename(row.path)} are not those of its Arrow row")
            )
        return ids, states

    def fingerprint(self) -> str:
        """Names the content: settings, and row, tokens, size and CRC-32 of every sample."""
        keys = ("boundaries", "final", "dtype", "hidden_size", "num_layers")
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([self.model_fingerprint, *(self.manifest[key] for key in keys)]).encode())
        for row in self.rows():
            digest.update(struct.pack("<4Q", row.row, row.tokens, row.bytes, row.crc32))
        return digest.hexdigest()

    def _odd(self, what: str) -> str:
        return f"{self.dataset.root} is not as it was made: {what}. See 'verify' for all that is wrong with it."


def _hold(dataset: ds.Dataset) -> int:
    """A shared lock: no extraction begins while we read, and we do not begin while one writes."""
    try:
        descriptor = os.open(dataset.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ExportError(
            f"{dataset.root} is no dataset of ours, or may not be read: {dataset.lock}: {error.strerror}."
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ExportError(
            f"An extraction writes {dataset.root} now: wait for its end ('extract status'), then export."
        ) from None
    return descriptor


def arrow_files(root: str) -> list[str]:
    """Names of the Arrow files of a dataset, in order.

    Raises:
        OSError, ValueError, KeyError: there is no usable ``state.json``.
    """
    with open(os.path.join(root, ds.STATE_FILE), encoding="utf-8") as file:
        return [str(one["filename"]) for one in json.load(file)["_data_files"]]


def arrow_rows(root: str) -> Iterator[tuple[Any, Any]]:
    """(input_ids, loss_mask), numpy int64, of every Arrow row in order; nothing is read that is not looked at.

    Raises:
        OSError, ValueError, KeyError: a file is missing or damaged.
    """
    import pyarrow as pa

    for name in arrow_files(root):
        with pa.memory_map(os.path.join(root, name)) as mapped, pa.ipc.open_stream(mapped) as reader:
            for batch in reader:
                yield from zip(*(_lists(batch.column(column)) for column in ("input_ids", "loss_mask")), strict=True)


def _lists(column: Any) -> Iterator[Any]:
    import numpy

    values = column.flatten().to_numpy()
    ends = numpy.cumsum(column.value_lengths().to_numpy())
    return iter(numpy.split(values, ends[:-1])) if len(ends) else iter(())
