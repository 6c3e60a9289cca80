"""One extraction from lock to manifest."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Sequence

from eagle3_remote.extract import arrow, history, manifest, probes, spool
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.client import Client, ServerAway
from eagle3_remote.extract.collect import sweep, waited_for
from eagle3_remote.extract.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_SERVER, ExtractionError
from eagle3_remote.extract.flow import Flow
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.plan import (
    Plan,
    check_space,
    check_spec,
    feeder_of,
    foresee,
    make_plan,
    read_to_the_end,
    settle_plan,
)
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.extract.progress import Reporter, line, say
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.servers import dump_dirs, join_servers, lanes_of, urls
from eagle3_remote.protocol import ExtractSpec, ExtractState, encode

_TICK = 0.5


def extract(run_dir: str, spec: ExtractSpec, reporter: Reporter, tuning: Tuning | None = None) -> int:
    """Run to the end, or until SIGTERM or SIGINT; returns the exit code (0 or 7).

    Raises:
        ExtractionError: ended early; its exit code is the job's.
    """
    return asyncio.run(_extract(run_dir, spec, reporter, tuning or Tuning()))


class _Stop:
    """SIGTERM and SIGINT: reading ends after what is being read, sending after what is in flight; a second one does not wait for that."""

    def __init__(self) -> None:
        self.asked = False
        self.begun = asyncio.Event()
        self.flow: Flow | None = None

    def ask(self) -> None:
        again, self.asked = self.asked, True
        self.begun.set()
        if again:
            say("Stopping at once: what is in flight is left and extracted again later.")
        else:
            say("Stopping: nothing more is sent, what is in flight is finished.")
        if self.flow is not None:
            self.flow.stop(at_once=again)


async def _extract(run_dir: str, spec: ExtractSpec, reporter: Reporter, tuning: Tuning) -> int:
    stop = _Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.ask)
    check_spec(spec)
    dataset = ds.prepare(spec.out, spec.model, spec.data)
    lock = ds.take_lock(dataset, run_dir)
    clients = [Client(url, extra_key=spec.extra_key) for url in urls(spec)]
    try:
        plan = await make_plan(spec, dataset, clients[0], secrets.token_hex(4))
        plan = await join_servers(plan, clients[1:])
        say(f"SGLang {plan.server.version} serves {plan.model.path} ({plan.model.architecture}).")
        say(
            f"Boundaries {', '.join(map(str, plan.boundaries))}, final {spec.final}-norm; {plan.token_budget} tokens in flight."
        )
        journal = await settle_plan(plan, reporter)
        feeder = feeder_of(plan, reporter)
        try:
            return await _run(run_dir, plan, journal, feeder, clients, reporter, tuning, stop)
        finally:
            await asyncio.to_thread(feeder.close)
            journal.close()
    finally:
        for client in clients:
            await client.close()
        os.close(lock)


async def _run(
    run_dir: str,
    plan: Plan,
    journal: Journal,
    feeder: Feeder,
    clients: Sequence[Client],
    reporter: Reporter,
    tuning: Tuning,
    stop: _Stop,
) -> int:
    for place in dump_dirs(plan.spec)[1:]:  # the first one's was swept when the run was taken up
        sweep(place, journal.get("runs") or [], set())
    ticking = asyncio.create_task(_tick(plan, journal, feeder, reporter))
    try:
        loop = asyncio.get_running_loop()
        feeder.added = lambda: loop.call_soon_threadsafe(stop.begun.set)
        feeder.start()
        while not (stop.asked or feeder.over) and (plan.order.whole_first or not reporter.counts.waiting):
            await stop.begun.wait()
            stop.begun.clear()
        feeder.check()
        if stop.asked:
            return _stopped(reporter)
        if feeder.done and not journal.waiting(1) and ds.read_manifest(plan.dataset).get("complete"):
            read_to_the_end(plan, journal, reporter)
            reporter.nothing_to_do(history.maker(journal))
            return _ended(plan, reporter)
        check_space(plan, journal, reporter)
        built = manifest.build(plan, journal, run_dir, complete=False)
        if not await _done(lambda: ds.write_json(plan.dataset.manifest, built), plan, reporter, stop):
            return _stopped(reporter)
        if plan.spec.probe and journal.waiting(1) and not await _probe(plan, journal, clients, reporter, stop):
            return _stopped(reporter)
        lanes = lanes_of(plan, clients, tuning)
        stop.flow = Flow(plan, journal, feeder, lanes, reporter, tuning, run_dir)
        reporter.sending()
        if stop.asked:
            stop.flow.stop()
        await stop.flow.run()
        if not feeder.done or journal.waiting(1):
            return _stopped(reporter)
        read_to_the_end(plan, journal, reporter)
        if not await _finish(run_dir, plan, journal, reporter, stop):
            return _stopped(reporter)
    finally:
        ticking.cancel()
    return _ended(plan, reporter)


async def _probe(plan: Plan, journal: Journal, clients: Sequence[Client], reporter: Reporter, stop: _Stop) -> bool:
    """Ask every server what is known; False: stopped meanwhile.

    Raises:
        ExtractionError: an answer is wrong; nothing was sent for the dataset.
    """
    reporter.enter(ExtractState.PLANNING, "Probing the server: questions with known answers, before anything counts.")
    samples = [spool.read(plan.dataset.spool, entry).ids for entry in journal.waiting(64)]
    ids = probes.material(samples, probes.tokens_needed(plan.server.chunk))
    asked = [
        asyncio.create_task(probes.ask(probes.question_of(plan, client, dump_dir), ids))
        for client, dump_dir in zip(clients, dump_dirs(plan.spec), strict=True)
    ]
    while not all(task.done() for task in asked):
        if stop.asked:
            for task in asked:
                task.cancel()
        await asyncio.wait(asked, timeout=_TICK)
    if stop.asked:
        return False
    for task, client in zip(asked, clients, strict=True):
        try:
            answers = task.result()
        except ServerAway as error:
            raise ExtractionError(
                f"The server at {client.url} went away while it was probed ({error}).", EXIT_SERVER
            ) from None
        for answer in answers:
            say(f"Probe, {answer.name}: {answer.result}: {answer.sentence}")
        failed = [answer for answer in answers if answer.result == "failed"]
        if failed:
            raise ExtractionError(
                f"The server at {client.url} failed the probe '{failed[0].name}': {failed[0].sentence} "
                "Its rows cannot be trusted; nothing was extracted.",
                EXIT_SERVER,
            )
    told = [encode(answer) for task in asked for answer in task.result()]
    return await _done(lambda: journal.put("probes", told), plan, reporter, stop)


async def _tick(plan: Plan, journal: Journal, feeder: Feeder, reporter: Reporter) -> None:
    while True:
        if feeder.done:
            read_to_the_end(plan, journal, reporter)
        else:
            foresee(plan, journal, reporter)
            _say_whether_it_waits(plan, feeder, reporter)
        reporter.tick()
        await asyncio.sleep(_TICK)


def _say_whether_it_waits(plan: Plan, feeder: Feeder, reporter: Reporter) -> None:
    """Before anything is sent nobody else notices that the output is full."""
    why = feeder.waits
    if why and reporter.state is ExtractState.PLANNING:
        reporter.enter(ExtractState.PAUSED, why)
    elif not why and reporter.state is ExtractState.PAUSED and ", the input cannot be read on" in reporter.sentence:
        reporter.enter(ExtractState.PLANNING, "Reading the input.")


async def _finish(run_dir: str, plan: Plan, journal: Journal, reporter: Reporter, stop: _Stop) -> bool:
    """Close holes, write the Arrow rows and the manifest; waits for space where there is none. False: stopped while waiting."""
    if not reporter.counts.stored:
        return True
    reporter.enter(ExtractState.FINISHING, "Writing the dataset's rows and manifest.")
    try:
        return await _done(lambda: _make_whole(run_dir, plan, journal), plan, reporter, stop)
    except OSError as error:
        raise ExtractionError(f"Finishing {plan.dataset.root} failed: {error}. What is stored stays.") from None


async def _done(change: Callable[[], None], plan: Plan, reporter: Reporter, stop: _Stop) -> bool:
    """Make a change off the event loop, as often as it takes where it fails for what passes. False: stopped while waiting.

    Raises:
        OSError: it does not pass.
    """
    while True:
        try:
            await asyncio.to_thread(change)
            return True
        except OSError as error:
            why = waited_for(error, plan.dataset.root)
            if why is None:
                raise
        if stop.asked:
            return False
        reporter.enter(ExtractState.PAUSED, why)
        await asyncio.sleep(1)


def _make_whole(run_dir: str, plan: Plan, journal: Journal) -> None:
    ds.close_holes(plan.dataset, journal)
    kept = journal.get("identity")
    rows = (spool.read(plan.dataset.spool, entry) for entry in journal.stored())
    arrow.write(plan.dataset, rows, kept["data"])
    ds.write_json(plan.dataset.manifest, manifest.build(plan, journal, run_dir, complete=True))


def _stopped(reporter: Reporter) -> int:
    reporter.enter(
        ExtractState.STOPPED, "Stopped on request. Start it again to continue; nothing stored is done twice."
    )
    return EXIT_GOOD


def _ended(plan: Plan, reporter: Reporter) -> int:
    counts = reporter.counts
    say(line(reporter.status()))
    if not counts.stored:
        raise ExtractionError(
            f"No sample could be stored: all {counts.failed} failed. Their reasons are in the report.", EXIT_INCOMPLETE
        )
    if counts.rejected or counts.failed:
        text = f"Finished: {counts.stored} stored, {counts.rejected} rejected, {counts.failed} failed."
        reporter.enter(ExtractState.FINISHED, f"{text} The report names them.")
        return EXIT_INCOMPLETE
    reporter.enter(ExtractState.FINISHED, f"Finished: all {counts.stored} samples are stored in {plan.dataset.root}.")
    return EXIT_GOOD
