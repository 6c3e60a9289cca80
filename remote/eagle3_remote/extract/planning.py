"""What an extraction will take: ``main([SPEC_JSON])`` prints one `PlanReport` as a JSON line and leaves nothing behind.

The input is read for some seconds, or taken from the dataset's journal where it was read before. Then 32 samples go the whole way, by the
extraction's own code, through the real server into a dataset of their own beside the output, which is removed again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence

from eagle3_remote.box.disks import filesystem_of
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import space
from eagle3_remote.extract.client import Client
from eagle3_remote.extract.collect import can_rename
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.flow import Flow
from eagle3_remote.extract.input import Bad, parse
from eagle3_remote.extract.journal import open_readonly
from eagle3_remote.extract.plan import (
    Plan,
    check_spec,
    feeder_of,
    forecast,
    identity,
    make_plan,
    open_journal,
    take_up,
)
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.extract.records import Counts
from eagle3_remote.extract.servers import join_servers, lanes_of, urls
from eagle3_remote.extract.sources import Position, Progress
from eagle3_remote.protocol import ExtractSpec, PlanReport, Space, decode, encode

SMOKE = 32
_READ_SECONDS = 8.0
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay")
_MEMORY = ("tmpfs", "ramfs")


def look(plan: Plan) -> tuple[Counts, float]:
    """(counters, how much of the input they are of): from the journal where there is one, else by reading for some seconds."""
    try:
        journal = open_readonly(plan.dataset.journal)
    except FileNotFoundError:
        return _read(plan)
    try:
        wrong = ds.difference(journal.get("identity") or {}, identity(plan))
        counts, reading = journal.counts(plan.shape.file_bytes), journal.reading()
    finally:
        journal.close()
    if wrong and counts.stored:
        raise ExtractionError(f"{plan.dataset.root} was begun with other settings: {wrong}.")
    if wrong or not reading.number:
        return _read(plan)
    return counts, 1.0 if reading.ended else reading.fraction


def _read(plan: Plan) -> tuple[Counts, float]:
    order, progress, end = plan.order, Progress(), time.monotonic() + _READ_SECONDS
    limit = 0 if order.seed is not None else order.limit
    total = rejected = tokens = longest = size = 0
    fraction = 1.0
    for item in plan.source.items(Position(), progress):
        if limit and item.number > limit:
            break
        if time.monotonic() > end:
            fraction = progress.fraction
            break
        if not order.shard.has(item.number):
            continue
        sample = parse(item, plan.rules)
        total += 1
        if isinstance(sample, Bad):
            rejected += 1
            continue
        tokens, longest = tokens + sample.tokens, max(longest, sample.tokens)
        size += plan.shape.file_bytes(sample.tokens)
    found = Counts(
        total=total,
        rejected=rejected,
        waiting=total - rejected,
        tokens_total=tokens,
        largest=longest,
        bytes_total=size,
    )
    return found, fraction


async def smoke(plan: Plan, clients: Sequence[Client]) -> tuple[int, float]:
    """(samples stored, tokens a second) of the first samples, through everything; their dataset is removed.

    Raises:
        ExtractionError: they did not come through.
    """
    parent = os.path.dirname(plan.dataset.root)
    work = tempfile.mkdtemp(prefix=f".{os.path.basename(plan.dataset.root)}.plan-", dir=parent)
    try:
        spec = dataclasses.replace(plan.spec, out=os.path.join(work, "smoke"), limit=SMOKE * plan.order.shard.count)
        order = dataclasses.replace(plan.order, limit=spec.limit, seed=None, on_bad="skip")
        few = dataclasses.replace(plan, spec=spec, order=order, dataset=ds.prepare(spec.out), run=secrets.token_hex(4))
        return await _smoke(few, clients, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


async def _smoke(plan: Plan, clients: Sequence[Client], work: str) -> tuple[int, float]:
    reporter, tuning = Reporter(work, plan.spec), Tuning()
    journal = open_journal(plan)
    try:
        take_up(plan, journal, reporter)
        feeder = feeder_of(plan, reporter)
        await asyncio.to_thread(feeder.run)
        flow = Flow(plan, journal, feeder, lanes_of(plan, clients, tuning), reporter, tuning, work)
        began = time.monotonic()
        await flow.run()
        counts = journal.counts()
    finally:
        journal.close()
    if not counts.stored:
        raise ExtractionError("None of the first samples came through: " + "; ".join(_reasons(plan)))
    return counts.stored, counts.tokens_stored / (time.monotonic() - began)


def _reasons(plan: Plan) -> list[str]:
    journal = open_readonly(plan.dataset.journal)
    try:
        return [f"{kind}: {reason}" for _, _, kind, reason in journal.problems(3)]
    finally:
        journal.close()


def report(plan: Plan, counts: Counts, fraction: float) -> PlanReport:
    """The forecast without a rate."""
    samples, tokens = forecast(plan, counts, fraction)
    left, tokens_left = max(samples - counts.stored, 0), max(tokens - counts.tokens_stored, 0)
    scale = tokens / counts.tokens_total if counts.tokens_total else 1.0
    need = plan.shape.dataset_bytes(tokens_left, left) + space.JOURNAL_FIXED
    in_flight = plan.token_budget * plan.shape.token_bytes
    largest = plan.shape.file_bytes(counts.largest)
    out = _existing(plan.dataset.root)
    where = space.room(out)
    output = _space(out, need + where.margin, left + 16)
    dump = _space(plan.spec.dump_dir, max(2 * largest, in_flight), 0)
    rename = can_rename(plan.spec.dump_dir, out)
    refused, warned = space.judge(need, left + 16, where, out, where.margin)
    refusals, warnings = [one for one in (refused,) if one], [one for one in (warned,) if one]
    if dump.free < largest:
        refusals.append(
            f"The dump directory {dump.path} has {space.gigabytes(dump.free)} free, the longest sample takes "
            f"{space.gigabytes(largest)}: enlarge it or start the server with another one."
        )
    if not samples:
        refusals.append("There is no sample to extract.")
    return PlanReport(
        samples=left,
        tokens=tokens_left,
        bytes=max(round(counts.bytes_total * scale) - counts.bytes_stored, 0),
        longest=counts.largest,
        rejected=counts.rejected,
        read=fraction,
        output=output,
        dump=dump,
        rename=rename,
        notes=tuple(_notes(output, dump, rename)),
        warnings=tuple(warnings),
        refused=tuple(refusals),
    )


def _notes(output: Space, dump: Space, rename: bool) -> list[str]:
    """Whether a dump directory elsewhere would be better."""
    if rename:
        return ["Collecting is a rename: the dump directory lies on the output's own file system."]
    if output.filesystem not in _LOCAL:
        return [f"Collecting is a copy: {dump.path} is {dump.filesystem}, the output {output.filesystem}."]
    better = f"a dump directory beside {output.path} would make collecting a rename"
    if dump.free < dump.need:
        return [
            f"{dump.path} holds {space.gigabytes(dump.free)}, {space.gigabytes(dump.need)} would keep the prefill batch full: "
            f"{better} and hold it (start the server with --dump-dir)."
        ]
    if dump.filesystem in _MEMORY:
        return [
            f"Collecting is a copy out of memory. Where the output's disk is fast {better}, but the server then writes to it."
        ]
    return [f"Collecting is a copy between two disks: {better} (start the server with --dump-dir)."]


def _existing(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path)


def _space(path: str, need: int, files: int) -> Space:
    room = space.room(path)
    return Space(path, filesystem_of(path), room.free, need, room.inodes, files)


async def make(spec: ExtractSpec) -> PlanReport:
    """The whole forecast.

    Raises:
        ExtractionError: the extraction would not start for another reason than space.
    """
    check_spec(spec)
    ds.check_place(spec.out, spec.model, spec.data)
    dataset = ds.Dataset(spec.out)
    clients = [Client(url, extra_key=spec.extra_key) for url in urls(spec)]
    try:
        plan = await make_plan(spec, dataset, clients[0], secrets.token_hex(4))
        plan = await join_servers(plan, clients[1:])
        made = report(plan, *await asyncio.to_thread(look, plan))
        if made.refused or not made.samples:
            return made
        if ds.is_locked(dataset):
            return dataclasses.replace(made, notes=(*made.notes, "An extraction runs: its own rate is the better one."))
        stored, rate = await smoke(plan, clients)
        eta = made.tokens / rate if rate > 0 else None
        return dataclasses.replace(made, smoke_samples=stored, tokens_per_s=rate, eta=eta)
    finally:
        for client in clients:
            await client.close()


def main(argv: Sequence[str]) -> int:
    """Print the forecast of SPEC_JSON; 0 where the extraction would start, 5 where it would not."""
    if len(argv) != 1:
        sys.stderr.write("Usage: main([SPEC_JSON])\n")
        return 2
    words = sys.stdout
    sys.stdout = sys.stderr  # what the extraction says on its way is no part of the answer
    try:
        spec = decode(ExtractSpec, json.loads(argv[0]))
        made = asyncio.run(make(dataclasses.replace(spec, out=os.path.abspath(spec.out))))
    except ExtractionError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    finally:
        sys.stdout = words
    sys.stdout.write(json.dumps(encode(made)) + "\n")
    return 5 if made.refused else 0
