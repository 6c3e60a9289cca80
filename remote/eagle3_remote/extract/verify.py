"""A dataset checked against its own journal: ``main([DATASET])`` prints one `VerifyReport` as a JSON line.

Every stored row: the file exists, its size, its CRC-32, its header, its token ids (against the Arrow row, or against the journal's
fingerprint while there are no Arrow rows yet), finite values; and nothing lies there that does not belong. Reads with numpy alone, so
that it does not share code with the checks it repeats. Works while an extraction runs.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from eagle3_remote.extract import arrow
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.collect import file_name, row_of
from eagle3_remote.extract.journal import Entry, Journal, open_readonly
from eagle3_remote.extract.statesfile import DTYPES, Header, read_header
from eagle3_remote.protocol import Problem, VerifyReport, encode

_SHOWN = 100
_PIECE = 64 * 1024 * 1024
_EXPONENT = {"BF16": ("<u2", 0x7F80), "F16": ("<u2", 0x7C00), "F32": ("<u4", 0x7F800000)}
"""All exponent bits set means NaN or infinity."""


def verify(root: str) -> VerifyReport:
    """Check the dataset at `root`; never raises for what is wrong with it."""
    began = time.monotonic()
    dataset = ds.Dataset(os.path.abspath(root))
    samples = tokens = size = 0
    problems: list[Problem] = []
    try:
        journal = open_readonly(dataset.journal)
    except FileNotFoundError:
        text = f"{dataset.root} is no dataset of ours: there is no {dataset.journal}."
        problem = Problem(dataset.root, "no-dataset", text)
        return VerifyReport(dataset.root, False, 0, 0, 0, (problem,), 1, complete=False)
    try:
        locked = ds.is_locked(dataset)
        manifest = ds.read_manifest(dataset)
        complete = bool(manifest.get("complete"))
        problems += _manifest_problems(manifest, journal)
        rows: Iterator[tuple[list[int], list[int], int]] | None = arrow.rows(dataset) if complete else None
        seen: set[int] = set()
        for at, entry in enumerate(journal.stored()):
            samples, tokens, size = samples + 1, tokens + entry.tokens, size + (entry.bytes or 0)
            seen.add(entry.row)
            if complete and entry.row != at and not locked:
                problems.append(Problem(file_name(entry.row), "missing-row", f"row {at} is missing in the dataset"))
            wanted: bytes | None = None
            if rows is not None:
                wanted, rows = _next_row(rows, entry, problems)
            problems += _file_problems(os.path.join(dataset.states, file_name(entry.row)), entry, manifest, wanted)
        if rows is not None and _left_over(rows):
            problems.append(
                Problem(ds.ARROW_FILE, "arrow", f"there are more Arrow rows than the {samples} stored samples")
            )
        if not locked:
            problems += _strays(dataset, seen)
    finally:
        journal.close()
    shown = tuple(problems[:_SHOWN])
    seconds = round(time.monotonic() - began, 3)
    return VerifyReport(
        dataset.root, not problems, samples, tokens, size, shown, len(problems), seconds, complete=complete
    )


def _manifest_problems(manifest: dict[str, Any], journal: Journal) -> list[Problem]:
    kept = journal.get("identity") or {}
    if not manifest:
        return [Problem("manifest.json", "manifest", "it is missing or cannot be read")]
    said = {
        "model": manifest.get("model", {}).get("fingerprint"),
        "data": manifest.get("data", {}).get("blake2b"),
        "boundaries": manifest.get("boundaries"),
        "final": manifest.get("final"),
        "max_seq_len": manifest.get("max_seq_len"),
    }
    wrong = ds.difference(said, {key: kept.get(key) for key in said})
    return [Problem("manifest.json", "manifest", f"manifest and journal differ: {wrong}")] if wrong else []


def _next_row(
    rows: Iterator[tuple[list[int], list[int], int]], entry: Entry, problems: list[Problem]
) -> tuple[bytes | None, Iterator[tuple[list[int], list[int], int]] | None]:
    """The ids that the Arrow row of `entry` has; the iterator is given up where Arrow itself is broken."""
    try:
        ids, mask, length = next(rows)
    except StopIteration:
        problems.append(Problem(ds.ARROW_FILE, "arrow", f"there is no Arrow row {entry.row}"))
        return None, None
    except (OSError, ValueError, KeyError) as error:
        problems.append(Problem(ds.ARROW_FILE, "arrow", f"it cannot be read: {error}"))
        return None, None
    if not len(ids) == len(mask) == length == entry.tokens:
        text = (
            f"Arrow row {entry.row}: {len(ids)} ids, {len(mask)} mask entries, seq_len {length}, journal {entry.tokens}"
        )
        problems.append(Problem(ds.ARROW_FILE, "arrow", text))
    return array.array("q", ids).tobytes(), rows


def _left_over(rows: Iterator[Any]) -> bool:
    try:
        return next(rows, None) is not None
    except (OSError, ValueError, KeyError):
        return False


def _file_problems(path: str, entry: Entry, manifest: dict[str, Any], wanted: bytes | None) -> list[Problem]:
    where = os.path.basename(path)
    try:
        size = os.path.getsize(path)
    except OSError:
        return [Problem(where, "missing", f"the file of row {entry.row} (line {entry.line}) is missing")]
    if size != entry.bytes:
        return [Problem(where, "size", f"{size} bytes, stored were {entry.bytes}")]
    found = []
    if ds.file_crc(path) != entry.crc32:
        found.append(Problem(where, "crc32", "its bytes are not those that were stored"))
    try:
        header = read_header(path)
    except (OSError, ValueError) as error:
        return [*found, Problem(where, "header", str(error))]
    layers, width = len(manifest.get("boundaries", ())) + 1, manifest.get("hidden_size")
    if manifest and header.shape != (entry.tokens, layers, width):
        found.append(
            Problem(where, "shape", f"{list(header.shape)} states, expected were {[entry.tokens, layers, width]}")
        )
    if manifest.get("dtype") not in (None, DTYPES[header.dtype]):
        found.append(Problem(where, "dtype", f"{DTYPES[header.dtype]}, the manifest says {manifest['dtype']}"))
    return found + _value_problems(path, where, header, entry, wanted)


def _value_problems(path: str, where: str, header: Header, entry: Entry, wanted: bytes | None) -> list[Problem]:
    import numpy

    found = []
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    ids = data[slice(*header.ids)].tobytes()
    if hashlib.blake2b(ids, digest_size=16).digest() != entry.fingerprint:
        found.append(Problem(where, "token-ids", f"its token ids are not those of line {entry.line}"))
    if wanted is not None and ids != wanted:
        found.append(Problem(where, "token-ids", f"its token ids are not those of Arrow row {entry.row}"))
    kind, exponent = _EXPONENT[header.dtype]
    for start in range(*header.hidden, _PIECE):
        words = data[start : min(start + _PIECE, header.hidden[1])].tobytes()
        if ((numpy.frombuffer(words, dtype=kind) & exponent) == exponent).any():
            found.append(Problem(where, "non-finite", "it holds NaN or infinity"))
            break
    return found


def _strays(dataset: ds.Dataset, seen: set[int]) -> list[Problem]:
    try:
        names = sorted(os.listdir(dataset.states))
    except OSError as error:
        return [Problem("hidden_states", "missing", str(error))]
    return [
        Problem(name, "stray", "it belongs to no stored sample")
        for name in names
        if (row := row_of(name)) is None or row not in seen
    ]


def main(argv: Sequence[str]) -> int:
    """Print the report of DATASET; 0 where it is good, 7 where it is not."""
    if len(argv) != 1:
        sys.stderr.write("Usage: main([DATASET])\n")
        return 2
    report = verify(argv[0])
    sys.stdout.write(json.dumps(encode(report)) + "\n")
    return 0 if report.ok else 7
