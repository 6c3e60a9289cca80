"""Everything that is settled before the first request is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from typing import Any

from eagle3_patch import layout
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import shards, sources, space
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
from eagle3_remote.extract.journalfile import FORMAT as JOURNAL_FORMAT
from eagle3_remote.extract.order import Order
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.records import Counts
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
    source: sources.Source
    order: Order


def check_spec(spec: ExtractSpec) -> None:
    """Refuse what needs no server to be seen.

    Raises:
        ExtractionError: no dump directory, no server, or values that cannot be.
    """
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
    if spec.duplicates not in ("keep", "skip"):
        raise ExtractionError(f"Repeated samples are met with 'keep' or 'skip', not {spec.duplicates!r}.")
    if spec.max_seq_len < 0 or spec.limit < 0 or spec.tokens_in_flight < 0:
        raise ExtractionError("max_seq_len, limit and tokens_in_flight cannot be negative.")


async def make_plan(spec: ExtractSpec, dataset: ds.Dataset, client: Client, run: str) -> Plan:
    """Ask model and server.

    Raises:
        ExtractionError: they do not fit each other or the extraction; exit code 6 where there is no server.
    """
    source = sources.find(spec.data)
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
    dtype = served_dtype(server, model)
    if dtype not in ITEM_BYTES:
        raise ExtractionError(f"The server computes in {dtype}; hidden states are kept in {', '.join(ITEM_BYTES)}.")
    return Plan(
        spec=spec,
        model=model,
        server=server,
        boundaries=boundaries,
        rules=Rules(model.vocab_size, limit, why, spec.max_seq_len),
        shape=space.Shape(len(boundaries) + 1, model.hidden_size, ITEM_BYTES[dtype], dtype),
        dataset=dataset,
        run=run,
        token_budget=min(spec.tokens_in_flight or 4 * chunk, server.max_total_tokens),
        source=source,
        order=Order(
            limit=spec.limit,
            seed=spec.shuffle,
            shard=shards.parse(spec.shard) if spec.shard else shards.WHOLE,
            on_bad=spec.on_bad,
            duplicates=spec.duplicates,
        ),
    )


def identity(plan: Plan) -> dict[str, Any]:
    """What must be the same for a dataset to be continued. How many samples are asked for is no part of it."""
    return {
        "model": plan.model.fingerprint,
        "data": plan.source.identity(),
        "boundaries": list(plan.boundaries),
        "final": plan.spec.final,
        "max_seq_len": plan.spec.max_seq_len,
        "dtype": served_dtype(plan.server, plan.model),
        "shuffle": plan.spec.shuffle,
        "shard": str(plan.order.shard),
        "layout": JOURNAL_FORMAT,
    }


def open_journal(plan: Plan) -> Journal:
    """The journal of the dataset, new or taken up. Blocking; the dataset is locked.

    Raises:
        ExtractionError: the dataset was made with other settings.
    """
    journal = Journal(plan.dataset.journal)
    kept, asked = journal.get("identity"), identity(plan)
    wrong = ds.difference(kept, asked) if kept is not None else None
    if wrong is not None and journal.counts().stored:
        raise ExtractionError(
            f"{plan.dataset.root} was begun with other settings: {wrong}. Continue it with the same ones, or choose another --out."
        )
    if wrong is not None:
        say(f"Nothing was stored yet under the earlier settings ({wrong}): beginning anew.")
        journal.forget()
    if kept is None or wrong is not None:
        journal.put("identity", asked)
        journal.put("begun_at", time.time())
    journal.put("unit", plan.source.unit)
    return journal


def feeder_of(plan: Plan, reporter: Reporter) -> Feeder:
    """What reads the input of this plan, or what is left of it."""
    return Feeder(
        plan.dataset.journal,
        plan.dataset.spool,
        plan.source,
        plan.rules,
        plan.order,
        read=reporter.read,
        file_bytes=plan.shape.file_bytes,
        ahead=lambda: reporter.counts.waiting,
    )


def take_up(plan: Plan, journal: Journal, reporter: Reporter) -> None:
    """Settle what an earlier run left, and load the counters. Blocking."""
    if journal.reading().refused:
        journal.clear_samples()  # read anew
    settled = ds.settle(plan.dataset, journal, plan.shape.layers, plan.shape.hidden_size)
    journal.requeue()
    refused = journal.refuse_longer(plan.rules)
    journal.take_rows(plan.order.limit, plan.order.seed)
    if not plan.order.whole_first or journal.reading().ended:
        for _ in journal.give_rows(plan.order.limit, plan.order.seed):
            pass
    runs = journal.get("runs") or []
    swept = sweep(plan.spec.dump_dir, runs, set())
    journal.put("runs", [*runs, plan.run])
    reporter.counts = journal.counts(plan.shape.file_bytes)
    reporter.begin(plan.run, plan.dataset.journal)
    notes = [
        (settled.adopted, "complete files that the journal did not know were adopted"),
        (settled.missing, "stored files were missing, damaged or of another size; their samples are extracted again"),
        (settled.temporary, "half files of an interrupted run were removed"),
        (swept, "left-over dumps of earlier runs were removed"),
        (refused, f"samples are longer than this server takes ({plan.rules.max_tokens} tokens) and were refused"),
    ]
    for number, text in notes:
        if number:
            say(f"{number} {text}.")
    counts = reporter.counts
    if counts.total:
        say(f"Taken up: {counts.stored} stored, {counts.waiting} to do, {counts.rejected} rejected.")


def read_to_the_end(plan: Plan, journal: Journal, reporter: Reporter) -> None:
    """Say what the whole input holds; the totals are final from here on."""
    if reporter.total_final:
        return
    counts, reading = reporter.counts, journal.reading()
    reporter.total_final, reporter.forecast = True, None
    say(f"The input is read: {counts.total} samples, {counts.rejected} rejected, {counts.cut} cut.")
    if counts.no_mask:
        say(f"{counts.no_mask} samples have no loss_mask: all their tokens count.")
    done = "refused" if plan.order.duplicates == "skip" else "extracted"
    for name, number in (("input_ids", reading.same_ids), ("id", reading.same_name)):
        if number:
            say(
                f"{number} samples repeat the {name} of an earlier one"
                + (f"; each is {done}." if name == "input_ids" else ".")
            )


def foresee(plan: Plan, journal: Journal, reporter: Reporter) -> None:
    """Let the totals that are told be those of the whole input, however much of it was read."""
    reading = journal.reading()
    reporter.forecast = forecast(plan, reporter.counts, 1.0 if reading.ended else reading.fraction)


def forecast(plan: Plan, counts: Counts, fraction: float) -> tuple[int, int]:
    """(samples, tokens) of the whole dataset, from the `fraction` of the input that was read."""
    samples = counts.total - counts.rejected
    if fraction >= 1 or not samples:
        return samples, counts.tokens_total
    whole = samples / max(fraction, 1e-9)
    if plan.order.limit:
        whole = min(whole, plan.order.shard.share(plan.order.limit))
    return max(round(whole), samples), max(round(whole * counts.tokens_total / samples), counts.tokens_total)


def check_space(plan: Plan, journal: Journal, reporter: Reporter) -> None:
    """Compare what is still to be written with what is free; what is not read yet is taken to be like what is.

    Raises:
        ExtractionError: it will not fit, or the longest sample does not fit into the dump directory.
    """
    counts = reporter.counts
    if not counts.waiting:
        return
    reading = journal.reading()
    samples, tokens = forecast(plan, counts, 1.0 if reading.ended else reading.fraction)
    files = samples - counts.stored
    need = plan.shape.dataset_bytes(tokens - counts.tokens_stored, files) + space.JOURNAL_FIXED
    where = space.room(plan.dataset.root)
    about = "" if reading.ended else f" (estimated from {reading.fraction:.1%} of the input)"
    say(
        f"To do: {files} samples, {tokens - counts.tokens_stored} tokens, {space.gigabytes(need)} on {plan.dataset.root}, "
        f"where {space.gigabytes(where.free)} are free{about}."
    )
    refused, warned = space.judge(need, files + 16, where, plan.dataset.root, where.margin)
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


async def settle_plan(plan: Plan, reporter: Reporter) -> Journal:
    """Journal and resume, off the event loop's thread; progress goes on being written."""

    def settle() -> Journal:
        journal = open_journal(plan)
        take_up(plan, journal, reporter)
        return journal

    task = asyncio.create_task(asyncio.to_thread(settle))
    while not task.done():
        reporter.tick()
        await asyncio.wait([task], timeout=0.5)
    return task.result()
