"""The shards that are joined: opened, locked, and held against each other."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
from typing import Any

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import shards
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.journal import open_readonly


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


def open_part(path: str, out: ds.Dataset, held: contextlib.ExitStack, run_dir: str) -> Part:
    """A shard, locked as long as `held`.

    Raises:
        ExtractionError: it is none, another extraction holds it, or it is not complete.
    """
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
