"""Everything that is settled before the first request is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
import time
from typing import Any

from eagle3_patch import layout
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import reading, space
from eagle3_remote.extract.client import Client, ServerAway
from eagle3_remote.extract.collect import sweep
from eagle3_remote.extract.errors import EXIT_SERVER, ExtractionError
from eagle3_remote.extract.facts import (
    ITEM_BYTES,
    Model,
    Server,
    check_server,
    longest_prompt,
    read_model,
    served_dtype,
)
from eagle3_remote.extract.input import Rules
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.protocol import ExtractSpec

_CHUNK_WHEN_OFF = 8192
"""Stands in for the prefill chunk of a server that cuts nothing."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run goes by."""

    spec: ExtractSpec
    model: Model
    server: Server
    boundaries: tuple[int, ...]
    rules: Rules
    shape: space.Shape
    dataset: ds.Dataset
    run: str
    """Part of every request id of this process; earlier runs' are in the journal."""
    token_budget: int


def check_spec(spec: ExtractSpec) -> None:
    """Refuse what needs no server to be seen.

    Raises:
        ExtractionError: no data file, no dump directory, no server, or values that cannot be.
    """
    if not os.path.isfile(spec.data):
        raise ExtractionError(f"The data file {spec.data} does not exist or is not a file.")
    if not os.access(spec.data, os.R_OK):
        raise ExtractionError(f"The data file {spec.data} cannot be read by this user.")
    if not os.path.isdir(spec.dump_dir):
        raise ExtractionError(f"The dump directory {spec.dump_dir!r} does not exist: it is made by the patched server.")
    if not spec.server_url:
        raise ExtractionError("No server is named.")
    if spec.final not in ("pre", "post"):
        raise ExtractionError(
            f"The final state is 'pre' or 'post' (before or after the final norm), not {spec.final!r}."
        )
    if spec.on_bad not in ("skip", "stop"):
        raise ExtractionError(f"Bad samples are met with 'skip' or 'stop', not {spec.on_bad!r}.")
    if spec.max_seq_len < 0 or spec.limit < 0 or spec.tokens_in_flight < 0:
        raise ExtractionError("max_seq_len, limit and tokens_in_flight cannot be negative.")


async def make_plan(spec: ExtractSpec, dataset: ds.Dataset, client: Client, run: str) -> Plan:
    """Ask model and server.

    Raises:
        ExtractionError: they do not fit each other or the extraction; exit code 6 where there is no server.
    """
    model = read_model(spec.model)
    try:
        server = await client.facts(model)
    except ServerAway as error:
        raise ExtractionError(
            f"No SGLang server answers at {spec.server_url} ({error}): start it first.", EXIT_SERVER
        ) from None
    check_server(server, model)
    try:
        asked = spec.boundaries or layout.default_boundaries(model.num_layers)
        boundaries = layout.parse_boundaries(",".join(map(str, asked)), model.num_layers)
    except ValueError as error:
        raise ExtractionError(f"{error}.") from None
    limit, why = longest_prompt(server)
    chunk = server.chunk if server.chunk > 0 else _CHUNK_WHEN_OFF
    item = ITEM_BYTES.get(served_dtype(server, model), 2)
    return Plan(
        spec=spec,
        model=model,
        server=server,
        boundaries=boundaries,
        rules=Rules(model.vocab_size, limit, why, spec.max_seq_len),
        shape=space.Shape(len(boundaries) + 1, model.hidden_size, item),
        dataset=dataset,
        run=run,
        token_budget=min(spec.tokens_in_flight or 4 * chunk, server.max_total_tokens),
    )


def identity(plan: Plan, data: str) -> dict[str, Any]:
    """What must be the same for a dataset to be continued."""
    return {
        "model": plan.model.fingerprint,
        "data": data,
        "boundaries": list(plan.boundaries),
        "final": plan.spec.final,
        "max_seq_len": plan.spec.max_seq_len,
        "limit": plan.spec.limit,
        "dtype": served_dtype(plan.server, plan.model),
    }


def open_journal(plan: Plan, reporter: Reporter, stop: threading.Event) -> Journal:
    """Read the input into the journal, or take up an earlier run's. Blocking; the dataset is locked.

    Raises:
        ExtractionError: the input will not do, or the dataset was made with other settings.
        reading.Stopped: stopped while reading.
    """
    spec, path = plan.spec, plan.dataset.journal
    journal = Journal(path)
    kept = journal.get("identity")
    same_file = kept is not None and journal.get("data_stat") == reading.stat_of(spec.data)
    if kept is not None:
        asked = identity(plan, kept["data"] if same_file else reading.data_digest(spec.data, spec.limit))
        wrong = ds.difference(kept, asked)
        if wrong is None:
            return journal
        if journal.counts().stored:
            raise ExtractionError(
                f"{plan.dataset.root} was begun with other settings: {wrong}. Continue it with the same ones, or choose another --out."
            )
        say(f"Nothing was stored yet under the earlier settings ({wrong}): beginning anew.")
        journal.put("identity", None)
    before = reading.stat_of(spec.data)
    digest = reading.read_input(
        journal, spec.data, plan.rules, limit=spec.limit, on_bad=spec.on_bad, stop=stop, seen=reporter.seen
    )
    if reading.stat_of(spec.data) != before:
        raise ExtractionError(f"{spec.data} was changed while it was read: start again when it is complete.")
    journal.put("duplicates", journal.duplicates())
    journal.put("begun_at", time.time())
    journal.put("data_stat", before)
    journal.put("identity", identity(plan, digest))
    return journal


def take_up(plan: Plan, journal: Journal, reporter: Reporter) -> None:
    """Settle what an earlier run left, and load the counters. Blocking."""
    settled = ds.settle(plan.dataset, journal, plan.shape.layers, plan.shape.hidden_size)
    journal.requeue()
    runs = journal.get("runs") or []
    swept = sweep(plan.spec.dump_dir, runs, set())
    journal.put("runs", [*runs, plan.run])
    reporter.counts, reporter.shape = journal.counts(), plan.shape
    notes = [
        (settled.adopted, "complete files that the journal did not know were adopted"),
        (settled.missing, "stored files were missing or had another size; their samples are extracted again"),
        (settled.temporary, "half files of an interrupted run were removed"),
        (swept, "left-over dumps of earlier runs were removed"),
    ]
    for number, text in notes:
        if number:
            say(f"{number} {text}.")
    counts = reporter.counts
    say(
        f"{counts.total} samples: {counts.stored} stored, {counts.waiting} to do, {counts.rejected} rejected, {counts.cut} cut."
    )
    if counts.no_mask:
        say(f"{counts.no_mask} samples have no loss_mask: all their tokens count.")
    for name, number in (journal.get("duplicates") or {}).items():
        if number:
            say(f"{number} samples repeat the {name} of an earlier one; each is extracted.")


def check_space(plan: Plan, reporter: Reporter) -> None:
    """Compare what is still to be written with what is free.

    Raises:
        ExtractionError: it will not fit, or the longest sample does not fit into the dump directory.
    """
    counts = reporter.counts
    if not counts.waiting:
        return
    files = counts.waiting
    need = plan.shape.dataset_bytes(counts.tokens_total - counts.tokens_stored, files) + space.JOURNAL_FIXED
    refused, warned = space.judge(need, files + 16, space.room(plan.dataset.root), plan.dataset.root)
    if refused:
        raise ExtractionError(refused)
    if warned:
        say(warned)
    largest, dump = plan.shape.file_bytes(counts.largest), space.room(plan.spec.dump_dir)
    if dump.free < largest:
        raise ExtractionError(
            f"The dump directory {plan.spec.dump_dir} has {space.gigabytes(dump.free)} free, the longest sample takes "
            f"{space.gigabytes(largest)}: enlarge it or start the server with another one."
        )


async def settle_plan(plan: Plan, reporter: Reporter, stop: threading.Event) -> Journal:
    """Journal, resume and space, off the event loop's thread; progress goes on being written."""
    task = asyncio.create_task(asyncio.to_thread(open_journal, plan, reporter, stop))
    while not task.done():
        reporter.tick()
        await asyncio.wait([task], timeout=0.5)
    journal = task.result()
    await asyncio.to_thread(take_up, plan, journal, reporter)
    check_space(plan, reporter)
    return journal
