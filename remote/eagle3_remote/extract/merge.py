"""The job that joins shards into one dataset without copying states: ``main([RUN_DIR])``.

The rows come in the order that one extraction of the whole input would have given them. A state file gets its second name in the merged
dataset by hard link (the shards stay whole), by rename (they are used up), or by symbolic link (they must stay where they are): as asked,
never another way by itself. Token ids, masks and the journals, a ten thousandth of the states, are copied.

Killed anywhere, the same command goes on: links that are there stay, the small files are made anew, and what makes it a dataset
(``state.json``, journal, manifest) comes last.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sqlite3
import sys
import time
from typing import Any

from eagle3_remote.extract import arrow, shards, spool
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.collect import sync_dir
from eagle3_remote.extract.errors import EXIT_GOOD, EXIT_NOT_FIT, ExtractionError
from eagle3_remote.extract.journal import Journal, open_readonly
from eagle3_remote.extract.linking import WAYS, Stopped, give_up, link_all, note_links
from eagle3_remote.extract.order import place
from eagle3_remote.extract.parts import Part, check, open_part
from eagle3_remote.extract.place import misplaced
from eagle3_remote.job import work
from eagle3_remote.job.work import Progress
from eagle3_remote.protocol import MergeSpec, WorkState, decode

_COLUMNS = "line, state, attempts, tokens, loss_tokens, full_tokens, has_mask, fingerprint, sample_id, kind, reason, bytes, crc32, stored_at"
_PIECE = 8 * 1024 * 1024
_REPEATED = {"same_ids": "fingerprint", "same_name": "sample_id"}
"""Counter of the reading -> column."""


def main(argv: list[str]) -> int:
    """Join what RUN_DIR/spec.json names; returns the exit code."""
    run_dir, message = work.run_dir_of(argv)
    progress = Progress(run_dir)
    try:
        sentence = merge(decode(MergeSpec, message), str(run_dir), progress)
    except Stopped:
        progress.end(WorkState.STOPPED, "Stopped on request; the same command goes on.")
        return EXIT_GOOD
    except ExtractionError as error:
        progress.end(WorkState.FAILED, str(error))
        return error.exit_code
    except (OSError, sqlite3.Error) as error:
        progress.end(
            WorkState.FAILED, f"Joining failed: {error}. The shards are as they were; the same command goes on."
        )
        return EXIT_NOT_FIT
    progress.end(WorkState.FINISHED, sentence)
    return EXIT_GOOD


def merge(spec: MergeSpec, run_dir: str, progress: Progress) -> str:
    """Join; the sentence that tells what was made.

    Raises:
        ExtractionError: the shards do not fit each other, one is missing or not complete, or the file system will not have it.
    """
    if spec.by not in WAYS:
        raise ExtractionError(f"States are joined by {', '.join(WAYS)}, not by {spec.by!r}.")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a lock a shard is held
    out = ds.Dataset(os.path.abspath(spec.out))
    with contextlib.ExitStack() as held:
        parts = [open_part(path, out, held, run_dir) for path in spec.shards]
        parts = check(parts)
        if _is_merged(out, parts):
            with contextlib.suppress(FileNotFoundError):  # killed just before its end
                os.unlink(_note(out))
            return f"{out.root} holds these {len(parts)} shards already."
        _prepare(out, parts, spec.by)
        held.callback(os.close, ds.take_lock(out, run_dir))
        return _join(out, parts, spec.by, progress)


def _names(parts: list[Part]) -> list[str]:
    return [part.dataset.root for part in parts]


def _is_merged(out: ds.Dataset, parts: list[Part]) -> bool:
    manifest = ds.read_manifest(out)
    listed = [one.get("path") for one in manifest.get("merged_from", [])]
    return bool(manifest.get("complete")) and listed == _names(parts)


def _note(out: ds.Dataset) -> str:
    return os.path.join(out.ours, "merge.json")


def _prepare(out: ds.Dataset, parts: list[Part], by: str) -> None:
    """The directories, and a note of what is joined here, so that the same command goes on and another does not."""
    asked = {"shards": _names(parts), "by": by}
    try:
        with open(_note(out), encoding="utf-8") as file:
            begun = json.load(file)
    except FileNotFoundError:
        begun = None
    except ValueError as error:
        raise ExtractionError(f"{_note(out)} cannot be read: {error}. Choose another --out.") from None
    if begun is not None and begun != asked:
        raise ExtractionError(f"{out.root} was begun with other shards, or by {begun.get('by')}: choose another --out.")
    if begun is None and not _is_untouched(out):
        raise ExtractionError(f"{out.root} is not empty: choose another --out.")
    if not os.path.isdir(os.path.dirname(out.root)):
        raise ExtractionError(
            f"The output's parent directory {os.path.dirname(out.root)} does not exist: make it first."
        )
    if (why := misplaced(out.root)) is not None:
        raise ExtractionError(f"The output {out.root} {why}.")
    os.makedirs(out.ours, exist_ok=True)
    ds.write_json(_note(out), asked)
    os.makedirs(out.states, exist_ok=True)


def _is_untouched(out: ds.Dataset) -> bool:
    """Not there, empty, or left by a join that was killed before it could write its note."""
    for folder, ours in ((out.root, {os.path.basename(out.ours)}), (out.ours, {os.path.basename(_note(out)) + ".tmp"})):
        if os.path.isdir(folder) and set(os.listdir(folder)) - ours:
            return False
    return True


def _join(out: ds.Dataset, parts: list[Part], by: str, progress: Progress) -> str:
    progress.say("Joining the journals of the shards.")
    bases = _join_spools(out, parts, progress)
    made = os.path.join(out.ours, "merging.sqlite3")
    _remove_database(made)
    Journal(made).close()
    with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as db:
        files, size = _join_journals(db, parts, bases)
        if by == "rename":
            give_up(parts, out)
        if by == "symlink":
            note_links(parts, out)
        progress.say(f"Giving {files} files of states their new names, by {by}.", total=files, bytes_total=size)
        link_all(db, out, parts, by, progress)
        db.execute("UPDATE samples SET target = NULL")
        repeats = _repeats(db, parts)
        _put_facts(db, parts, sum(part.spool_bytes for part in parts), repeats)
        db.execute("PRAGMA journal_mode=DELETE")  # one file, to be renamed
    progress.say("Writing the rows.")
    journal = open_readonly(made)
    try:
        rows = (spool.read(out.spool, entry) for entry in journal.stored())
        arrow.write(out, rows, parts[0].identity["data"])
    finally:
        journal.close()
    _remove_sidecars(made)
    os.replace(made, out.journal)
    ds.write_json(out.manifest, _manifest(parts, repeats, by))
    os.unlink(_note(out))
    sync_dir(out.ours)
    return f"{files} samples of {len(parts)} shards are one dataset in {out.root}. Check it with 'verify --out {out.root}'."


def _join_spools(out: ds.Dataset, parts: list[Part], progress: Progress) -> list[int]:
    """Token ids and masks, one shard after another; where each shard begins."""
    bases, at = [], 0
    with open(out.spool, "wb") as target:
        for part in parts:
            bases.append(at)
            with open(part.dataset.spool, "rb") as source:
                left = part.spool_bytes
                while left:
                    piece = source.read(min(left, _PIECE))
                    if not piece:
                        raise ExtractionError(
                            f"{part.dataset.spool} is shorter than its journal says: extract that shard again."
                        )
                    target.write(piece)
                    left -= len(piece)
                    if progress.stop_asked:
                        raise Stopped
            at += part.spool_bytes
        target.flush()
        os.fsync(target.fileno())
    return bases


def _join_journals(db: sqlite3.Connection, parts: list[Part], bases: list[int]) -> tuple[int, int]:
    """All samples, stored ones with their row in the whole, and in `target` that in their shard; (files, bytes) of those."""
    for part, base in zip(parts, bases, strict=True):
        db.execute("ATTACH ? AS shard", (part.dataset.journal,))
        foreign = db.execute(
            "SELECT line FROM shard.samples WHERE (line - 1) % ? != ? LIMIT 1", (part.shard.count, part.shard.index)
        ).fetchone()
        if foreign:
            raise ExtractionError(f"{part.dataset.root} holds sample {foreign[0]}, which is not of shard {part.shard}.")
        db.execute(
            f"INSERT INTO samples ({_COLUMNS}, offset, target) SELECT {_COLUMNS}, offset + ?,"
            " CASE WHEN state = 'stored' THEN row END FROM shard.samples",
            (base,),
        )
        db.execute("DETACH shard")
    seed = parts[0].identity.get("shuffle")
    db.create_function("place", 1, lambda line: place(line, seed), deterministic=True)
    db.execute("CREATE TEMP TABLE places AS SELECT line FROM samples WHERE state = 'stored' ORDER BY place(line), line")
    db.execute("CREATE UNIQUE INDEX temp.by_line ON places(line)")
    db.execute(
        "UPDATE samples SET row = (SELECT p.rowid - 1 FROM temp.places p WHERE p.line = samples.line) WHERE state = 'stored'"
    )
    files, size = db.execute("SELECT count(*), total(bytes) FROM samples WHERE state = 'stored'").fetchone()
    if not files:
        raise ExtractionError("The shards hold no stored sample.")
    return files, int(size)


def _put_facts(db: sqlite3.Connection, parts: list[Part], spool_bytes: int, repeats: dict[str, int]) -> None:
    readings = [part.facts["reading"] for part in parts]
    facts = {
        **parts[0].facts,
        "identity": {**parts[0].identity, "shard": str(shards.WHOLE)},
        "begun_at": _begun_at(parts),
        "runs": [run for part in parts for run in part.facts.get("runs", [])],
        "reading": {
            **max(readings, key=lambda one: int(one["offset"])),
            "spool": spool_bytes,
            **repeats,
        },
    }
    db.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, json.dumps(value)) for key, value in facts.items()]
    )


def _repeats(db: sqlite3.Connection, parts: list[Part]) -> dict[str, int]:
    """Samples that repeat ids or an id of an earlier one. Where those are refused, each shard looked at the whole input."""
    if parts[0].settings["duplicates"] == "skip":
        return {key: sum(int(part.facts["reading"][key]) for part in parts) for key in _REPEATED}
    return {
        key: int(db.execute(f"SELECT count({column}) - count(DISTINCT {column}) FROM samples").fetchone()[0])
        for key, column in _REPEATED.items()
    }


def _begun_at(parts: list[Part]) -> float | None:
    return min((part.facts["begun_at"] for part in parts if part.facts.get("begun_at")), default=None)


def _manifest(parts: list[Part], repeats: dict[str, int], by: str) -> dict[str, Any]:
    """The first shard's, with the sums of all, and where they came from."""
    first, counted = parts[0].manifest, [part.manifest["counts"] for part in parts]
    sums = {key: sum(one[key] for one in counted) for key, value in counted[0].items() if isinstance(value, int)}
    servers = [part.manifest.get("server") for part in parts]
    versions = sorted({str(server.get("sglang_version")) for server in servers if isinstance(server, dict)})
    merged = {
        **first,
        "complete": True,
        "data": {**first["data"], "shard": str(shards.WHOLE)},
        "counts": {**sums, "duplicates": {"input_ids": repeats["same_ids"], "id": repeats["same_name"]}},
        "begun_at": _begun_at(parts),
        "written_at": time.time(),
        "merged_by": by,
        "merged_from": [
            {
                "path": part.dataset.root,
                "shard": str(part.shard),
                "stored": part.manifest["counts"]["stored"],
                "extraction_version": part.manifest.get("extraction_version"),
                "server": part.manifest.get("server"),
            }
            for part in parts
        ],
    }
    merged.pop("merged_into", None)
    if len(versions) > 1:
        merged["server"] = {**first["server"], "sglang_version": ", ".join(versions)}
    return merged


def _remove_database(path: str) -> None:
    _remove_sidecars(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _remove_sidecars(path: str) -> None:
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
