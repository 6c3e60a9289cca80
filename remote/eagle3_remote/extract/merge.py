"""The job that joins shards into one dataset without copying states: ``main([RUN_DIR])``.

The rows come in the order that one extraction of the whole input would have given them. A state file gets its second name in the merged
dataset by hard link (the shards stay whole), by rename (they are used up), or by symbolic link (they must stay where they are): as asked,
never another way by itself. Token ids, masks and the journals, a ten thousandth of the states, are copied.

Killed anywhere, the same command goes on: links that are there stay, the small files are made anew, and what makes it a dataset
(``state.json``, journal, manifest) comes last.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import resource
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eagle3_remote.extract import arrow, shards, spool
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.collect import file_name, sync_dir
from eagle3_remote.extract.errors import EXIT_GOOD, EXIT_NOT_FIT, ExtractionError
from eagle3_remote.extract.journal import Journal, open_readonly, place
from eagle3_remote.files import read_json
from eagle3_remote.job import work
from eagle3_remote.job.work import Progress
from eagle3_remote.protocol import MergeSpec, WorkState, decode

JOINED_FILE = "joined.json"
BY = ("hard-link", "rename", "symlink")
_COLUMNS = "line, state, attempts, tokens, loss_tokens, full_tokens, has_mask, fingerprint, sample_id, kind, reason, bytes, crc32, stored_at"
_PIECE = 8 * 1024 * 1024
_REPEATED = {"same_ids": "fingerprint", "same_name": "sample_id"}
"""Counter of the reading -> column."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One shard."""

    dataset: ds.Dataset
    shard: shards.Shard
    identity: dict[str, Any]
    manifest: dict[str, Any]
    facts: dict[str, Any]
    """The journal's."""

    @property
    def settings(self) -> dict[str, Any]:
        """What all shards of one extraction have in common."""
        data = self.manifest.get("data", {})
        return {**self.identity, "shard": "", "limit": data.get("limit"), "duplicates": data.get("duplicates", "keep")}

    @property
    def spool_bytes(self) -> int:
        return int(self.facts["reading"]["spool"])


class _Stopped(Exception):
    pass


def main(argv: list[str]) -> int:
    """Join what RUN_DIR/spec.json names; returns the exit code."""
    run_dir, message = work.run_dir_of(argv)
    progress = Progress(run_dir)
    try:
        sentence = merge(decode(MergeSpec, message), str(run_dir), progress)
    except _Stopped:
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
    if spec.by not in BY:
        raise ExtractionError(f"States are joined by {', '.join(BY)}, not by {spec.by!r}.")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a lock a shard is held
    out = ds.Dataset(os.path.abspath(spec.out))
    with contextlib.ExitStack() as held:
        parts = [_open(path, out, held, run_dir) for path in spec.shards]
        parts = check(parts)
        if _is_merged(out, parts):
            with contextlib.suppress(FileNotFoundError):  # killed just before its end
                os.unlink(_note(out))
            return f"{out.root} holds these {len(parts)} shards already."
        _prepare(out, parts, spec.by)
        held.callback(os.close, ds.take_lock(out, run_dir))
        return _join(out, parts, spec.by, progress)


def _open(path: str, out: ds.Dataset, held: contextlib.ExitStack, run_dir: str) -> Part:
    dataset = ds.Dataset(os.path.abspath(path))
    try:
        held.callback(os.close, ds.take_lock(dataset, run_dir))
        journal = open_readonly(dataset.journal)
    except OSError as error:
        raise ExtractionError(
            f"{dataset.root} is no shard of ours, or cannot be read: {error.strerror or error}."
        ) from None
    try:
        facts = {key: json.loads(value) for key, value in journal.facts()}
    except sqlite3.Error as error:
        raise ExtractionError(f"The journal of {dataset.root} cannot be read: {error}.") from None
    finally:
        journal.close()
    manifest = ds.read_manifest(dataset)
    if not manifest.get("complete") and manifest.get("merged_into") != out.root:
        raise ExtractionError(f"The shard {dataset.root} is not complete: let its extraction come to its end first.")
    try:
        identity = facts["identity"]
        return Part(dataset, shards.parse(identity["shard"]), identity, manifest, facts)
    except (KeyError, TypeError) as error:
        raise ExtractionError(
            f"The journal of {dataset.root} does not say which shard it is: {error!r} is missing."
        ) from None


def check(parts: list[Part]) -> list[Part]:
    """The shards in their order.

    Raises:
        ExtractionError: they are not of one extraction, or one is missing or there twice.
    """
    if not parts:
        raise ExtractionError("No shard is named.")
    first = parts[0]
    for part in parts[1:]:
        differ = [
            key
            for key in sorted({*first.settings, *part.settings})
            if first.settings.get(key) != part.settings.get(key)
        ]
        if differ:
            said = "; ".join(
                f"{key} is {first.settings.get(key)} in the one, {part.settings.get(key)} in the other"
                for key in differ
            )
            raise ExtractionError(f"{first.dataset.root} and {part.dataset.root} are not of one extraction: {said}.")
    counts = {part.shard.count for part in parts}
    if len(counts) > 1:
        raise ExtractionError(
            f"The shards are of splits into different numbers: {', '.join(map(str, sorted(counts)))}."
        )
    for part in parts:
        twin = next(other for other in parts if other.shard == part.shard)
        if twin is not part:
            raise ExtractionError(f"{part.dataset.root} and {twin.dataset.root} are both shard {part.shard}.")
    missing = sorted(set(range(first.shard.count)) - {part.shard.index for part in parts})
    if missing:
        names = ", ".join(str(shards.Shard(index, first.shard.count)) for index in missing[:10])
        raise ExtractionError(f"{len(missing)} shards are missing: {names}{' ...' if len(missing) > 10 else ''}.")
    ends = {(part.facts["reading"]["number"], bool(part.facts["reading"].get("ended"))) for part in parts}
    if len(ends) > 1:
        raise ExtractionError("The shards did not read the same input to its end: extract those that read less again.")
    return sorted(parts, key=lambda part: part.shard.index)


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
            _give_up(parts, out)
        if by == "symlink":
            _note_links(parts, out)
        progress.say(f"Giving {files} files of states their new names, by {by}.", total=files, bytes_total=size)
        _link(db, out, parts, by, progress)
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
                        raise _Stopped
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


def _link(db: sqlite3.Connection, out: ds.Dataset, parts: list[Part], by: str, progress: Progress) -> None:
    one_name = {"hard-link": _hard_link, "rename": _rename, "symlink": _symlink}[by]
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
            raise _Stopped
    sync_dir(out.states)


def _note_links(parts: list[Part], out: ds.Dataset) -> None:
    """The states of these shards are those of the whole, too, from now on; read before a shard is removed (`disk.control`)."""
    for part in parts:
        path = os.path.join(part.dataset.ours, JOINED_FILE)
        into = os.path.relpath(os.path.realpath(out.root), os.path.realpath(part.dataset.root))
        known = (read_json(Path(path)) or {}).get("into", [])
        if into not in known:
            ds.write_json(path, {"into": [*known, into]})


def _stored(db: sqlite3.Connection) -> Iterator[tuple[int, int, int, int]]:
    """(line, row in its shard, row in the whole, bytes)."""
    yield from db.execute("SELECT line, target, row, bytes FROM samples WHERE state = 'stored' ORDER BY row")


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


def _give_up(parts: list[Part], out: ds.Dataset) -> None:
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
