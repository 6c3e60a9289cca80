"""A dataset checked against its own journal: ``main([DATASET])`` prints one `VerifyReport` as a JSON line.

Every stored row: the file exists, its size, its CRC-32, its header, its token ids (against the Arrow row, or against the journal's
fingerprint while there are no Arrow rows yet), its values (finite, no row all zero, of the size of the other files'), read once by
several threads; nothing lies there that does not belong; and the final states are before or after the model's final norm, as the
manifest says. With a live server: some rows again, and its probes. Works while an extraction runs.
"""

from __future__ import annotations

import argparse
import array
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from eagle3_remote.extract import arrow, damaged, live, verified
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.collect import file_name, row_of
from eagle3_remote.extract.findings import Problems, Rows, Sizes
from eagle3_remote.extract.journal import Journal, open_readonly
from eagle3_remote.extract.records import Entry
from eagle3_remote.extract.scan import Values, read_once
from eagle3_remote.extract.statesfile import DTYPES, read_header
from eagle3_remote.protocol import ProbeAnswer, Problem, VerifyReport, encode

THREADS = 8
_BATCH = 256
_LOOKED_AT = 32
"""Files whose rows are held against the model, and against a live server."""


ONLY_LOOKED = "who asked only watches (--readonly), and changes nothing on the box"


@dataclasses.dataclass
class _Seen:
    """What the pass over the files adds up to."""

    sizes: Sizes
    rows: Rows = dataclasses.field(default_factory=Rows)
    samples: int = 0
    tokens: int = 0
    bytes: int = 0
    gone: int = 0
    """Files that are missing or of another size."""
    damaged: list[str] = dataclasses.field(default_factory=list)
    """Names of those with other bytes than were stored."""


def verify(
    root: str, server: live.Place | None = None, threads: int = THREADS, *, only_look: bool = False
) -> VerifyReport:
    """Check the dataset at `root`, and with `server` some of its rows against a live one; never raises for what is wrong with it.

    Args:
        only_look: write nothing, not even that it was checked.
    """
    began = time.monotonic()
    dataset = ds.Dataset(os.path.abspath(root))
    try:
        journal = open_readonly(dataset.journal)
    except FileNotFoundError:
        text = f"{dataset.root} is no dataset of ours: there is no {dataset.journal}."
        return _hopeless(dataset, "no-dataset", text)
    except sqlite3.DatabaseError as error:
        return _hopeless(dataset, "journal", f"{dataset.journal} cannot be read: {error}.")
    seen = _Seen(Sizes())
    problems = Problems()
    try:
        locked = ds.is_locked(dataset)
        manifest = ds.read_manifest(dataset)
        complete = bool(manifest.get("complete"))
        problems.add(_manifest_problems(manifest, journal))
        unchecked = _all_files(dataset, journal, manifest, seen, complete, locked, threads, problems)
        if not locked:
            _add_strays(dataset, seen.rows, problems)
        entries = _some(journal.stored(), seen.samples)
        found, no_norm = live.norm_problems(dataset, manifest, entries)
        problems.add(found)
        answers: list[ProbeAnswer] = []
        if server is not None:
            found, answers = live.check(dataset, manifest, entries, server)
            problems.add(found)
    except sqlite3.DatabaseError as error:
        return _hopeless(dataset, "journal", f"{dataset.journal} cannot be read: {error}.")
    finally:
        journal.close()
        seen.sizes.close()
    failed = any(answer.result == "failed" for answer in answers)
    report = VerifyReport(
        dataset=dataset.root,
        ok=not problems.count and not failed,
        samples=seen.samples,
        tokens=seen.tokens,
        bytes=seen.bytes,
        problems=tuple(problems.first),
        problem_count=problems.count,
        seconds=round(time.monotonic() - began, 3),
        complete=complete,
        probes=tuple(answers),
        unchecked=(*unchecked, *no_norm),
        to_remake=seen.gone + len(seen.damaged),
    )
    if not only_look:
        damaged.note(dataset.ours, seen.damaged)
    if not complete or locked:
        return report
    why = ONLY_LOOKED if only_look else verified.keep(dataset.ours, manifest, report)
    return dataclasses.replace(report, not_kept=why)


def _hopeless(dataset: ds.Dataset, kind: str, text: str) -> VerifyReport:
    """Without a journal nothing else can be said."""
    return VerifyReport(dataset.root, False, 0, 0, 0, (Problem(dataset.root, kind, text),), 1, complete=False)


def _some(entries: Iterator[Entry], count: int) -> list[Entry]:
    """Entries from everywhere in the dataset."""
    step = max(1, count // _LOOKED_AT)
    return list(itertools.islice(entries, 0, None, step))[:_LOOKED_AT]


def _all_files(
    dataset: ds.Dataset,
    journal: Journal,
    manifest: dict[str, Any],
    seen: _Seen,
    complete: bool,
    locked: bool,
    threads: int,
    problems: Problems,
) -> list[str]:
    """Every stored row, so many files at a time; returns what could not be checked."""
    unchecked: list[str] = []
    rows: Iterator[tuple[list[int], list[int], int]] | None = arrow.rows(dataset) if complete else None
    with concurrent.futures.ThreadPoolExecutor(threads, "verify") as pool:
        entries = enumerate(journal.stored())
        while batch := list(itertools.islice(entries, _BATCH)):
            jobs = []
            for at, entry in batch:
                seen.samples, seen.tokens = seen.samples + 1, seen.tokens + entry.tokens
                seen.bytes += entry.bytes or 0
                seen.rows.add(entry.row)
                if complete and entry.row != at and not locked:
                    text = f"row {at} is missing in the dataset"
                    problems.add([Problem(file_name(entry.row), "missing-row", text)])
                wanted: bytes | None = None
                if rows is not None:
                    wanted, rows = _next_row(rows, entry, problems)
                path = os.path.join(dataset.states, file_name(entry.row))
                jobs.append(pool.submit(_file_problems, path, entry, manifest, wanted))
            for (_, entry), job in zip(batch, jobs, strict=True):
                found, norms = job.result()
                problems.add(found)
                kinds = {one.kind for one in found}
                seen.gone += not kinds.isdisjoint(("missing", "size"))
                if "crc32" in kinds:
                    seen.damaged.append(file_name(entry.row))
                if unchecked:
                    continue
                try:
                    seen.sizes.add(entry.row, norms)
                except OSError as error:
                    unchecked.append(f"The sizes of the rows: {error} where temporary files lie.")
    if not unchecked:
        problems.add(seen.sizes.odd())
    if rows is not None and _left_over(rows):
        text = f"there are more Arrow rows than the {seen.samples} stored samples"
        problems.add([Problem(ds.ARROW_FILE, "arrow", text)])
    return unchecked


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
    rows: Iterator[tuple[list[int], list[int], int]], entry: Entry, problems: Problems
) -> tuple[bytes | None, Iterator[tuple[list[int], list[int], int]] | None]:
    """The ids that the Arrow row of `entry` has; the iterator is given up where Arrow itself is broken."""
    try:
        ids, mask, length = next(rows)
    except StopIteration:
        problems.add([Problem(ds.ARROW_FILE, "arrow", f"there is no Arrow row {entry.row}")])
        return None, None
    except (OSError, ValueError, KeyError) as error:
        problems.add([Problem(ds.ARROW_FILE, "arrow", f"it cannot be read: {error}")])
        return None, None
    if not len(ids) == len(mask) == length == entry.tokens:
        text = (
            f"Arrow row {entry.row}: {len(ids)} ids, {len(mask)} mask entries, seq_len {length}, journal {entry.tokens}"
        )
        problems.add([Problem(ds.ARROW_FILE, "arrow", text)])
    return array.array("q", ids).tobytes(), rows


def _left_over(rows: Iterator[Any]) -> bool:
    try:
        return next(rows, None) is not None
    except (OSError, ValueError, KeyError):
        return False


def _file_problems(
    path: str, entry: Entry, manifest: dict[str, Any], wanted: bytes | None
) -> tuple[list[Problem], tuple[float, ...]]:
    """(what is wrong, the sizes of its rows) of one file, which is read once."""
    where = os.path.basename(path)
    try:
        size = os.path.getsize(path)
    except OSError:
        return [Problem(where, "missing", f"the file of row {entry.row} (line {entry.line}) is missing")], ()
    if size != entry.bytes:
        return [Problem(where, "size", f"{size} bytes, stored were {entry.bytes}")], ()
    try:
        header = read_header(path)
    except (OSError, ValueError) as error:
        return [
            Problem(where, "crc32", "its bytes are not those that were stored"),
            Problem(where, "header", str(error)),
        ], ()
    values = Values(header)
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            read = read_once(fd, header, None, values.rows)
        finally:
            os.close(fd)
    except OSError as error:
        return [Problem(where, "unreadable", f"it cannot be read: {error}")], ()
    found = []
    if read.crc32 != entry.crc32:
        found.append(Problem(where, "crc32", "its bytes are not those that were stored"))
    layers, width = len(manifest.get("boundaries", ())) + 1, manifest.get("hidden_size")
    if manifest and header.shape != (entry.tokens, layers, width):
        found.append(
            Problem(where, "shape", f"{list(header.shape)} states, expected were {[entry.tokens, layers, width]}")
        )
    if manifest.get("dtype") not in (None, DTYPES[header.dtype]):
        found.append(Problem(where, "dtype", f"{DTYPES[header.dtype]}, the manifest says {manifest['dtype']}"))
    if hashlib.blake2b(read.ids, digest_size=16).digest() != entry.fingerprint:
        found.append(Problem(where, "token-ids", f"its token ids are not those of line {entry.line}"))
    if wanted is not None and read.ids != wanted:
        found.append(Problem(where, "token-ids", f"its token ids are not those of Arrow row {entry.row}"))
    if values.fault is not None:
        found.append(Problem(where, values.fault.kind, values.fault.reason))
    return found, values.norms()


def _add_strays(dataset: ds.Dataset, seen: Rows, problems: Problems) -> None:
    try:
        with os.scandir(dataset.states) as entries:
            names = (entry.name for entry in entries)
            strays = (name for name in names if (row := row_of(name)) is None or row not in seen)
            problems.add_names(strays, "stray", "it belongs to no stored sample")
    except OSError as error:
        problems.add([Problem("hidden_states", "missing", str(error))])


def main(argv: Sequence[str]) -> int:
    """Print the report of DATASET; 0 where it is good, 7 where it is not."""
    parser = argparse.ArgumentParser(
        prog="verify", description="Check a dataset, and with --server some rows against a live server."
    )
    parser.add_argument("dataset")
    parser.add_argument("--server", metavar="URL", default="")
    parser.add_argument("--dump-dir", metavar="DIR", default="")
    parser.add_argument("--extra-key", action="store_true")
    parser.add_argument("--only-look", action="store_true")
    args = parser.parse_args(argv)
    place = live.Place(args.server, args.dump_dir, args.extra_key) if args.server else None
    report = verify(args.dataset, place, only_look=args.only_look)
    sys.stdout.write(json.dumps(encode(report)) + "\n")
    return 0 if report.ok else 7
