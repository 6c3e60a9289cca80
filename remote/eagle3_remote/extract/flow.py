"""Sending, collecting, checking and storing, side by side, under a budget of tokens and of bytes.

Everything here runs on the event loop's thread but for reading lines, checking and copying, which go to worker threads. A sample's way:
waiting -> sent -> (answer, dump) -> checked and copied -> durable and named in hidden_states/ -> stored. Dump folders are deleted only
after the journal says stored, so that whatever kills the process leaves either the dump or the file.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from eagle3_patch import layout
from eagle3_remote.extract import checks, collect, spool
from eagle3_remote.extract.client import ServerAway
from eagle3_remote.extract.dispatch import Dispatcher
from eagle3_remote.extract.errors import ExtractionError, SampleFailure
from eagle3_remote.extract.input import Sample
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.lane import Lane
from eagle3_remote.extract.late import LateDumps
from eagle3_remote.extract.outage import Outages
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Failures, Tuning
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.records import FAILED, SENT, WAITING, Entry
from eagle3_remote.extract.scan import Norms
from eagle3_remote.extract.steering import Steering
from eagle3_remote.extract.storing import Dump, Storer
from eagle3_remote.extract.window import Window
from eagle3_remote.protocol import ExtractState

T = TypeVar("T")


class Flow:
    """One run over what the journal has waiting, and what the feeder still adds to it."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        feeder: Feeder,
        lanes: Sequence[Lane],
        reporter: Reporter,
        tuning: Tuning,
        run_dir: str,
    ) -> None:
        self._plan, self._journal, self._lanes, self._reporter = plan, journal, lanes, reporter
        self._feeder, self._tuning = feeder, tuning
        self._threads = concurrent.futures.ThreadPoolExecutor(2, "extract")
        self._storer = Storer(plan, journal, reporter, tuning)
        self._wake = asyncio.Event()
        self._window = Window(journal, self._storer, feeder, tuning.window, self._start_beside)
        self._dispatcher = Dispatcher(plan, lanes, self._window)
        self._tasks: set[asyncio.Task[None]] = set()
        """One a sample."""
        self._beside: set[asyncio.Task[None]] = set()
        self._failures = Failures(tuning.attempts, tuning.streak)
        self._norms = Norms()
        self._steering = Steering(plan, lanes, self._failures, run_dir)
        self._outages = Outages(lanes, reporter, tuning, self._start_beside, run_dir)
        self._stopping = False
        self._end: BaseException | None = None
        self._first_sent: float | None = None
        self._before, self._cpu = reporter.counts, sum(os.times()[:2])
        self._dtype: str | None = journal.get("dtype")
        self._known_dump = journal.get("dump") is not None
        self._late = LateDumps(lanes, journal.get("runs") or [])

    def stop(self, at_once: bool = False) -> None:
        """Send nothing more; what is in flight is finished, or left where it must be `at_once`."""
        self._stopping = self._storer.ending = True
        if at_once:
            for task in self._tasks:
                task.cancel()
        self._wake.set()

    async def run(self) -> None:
        """Return when all was read and nothing is waiting any more, or after `stop`.

        Raises:
            ExtractionError: three failures of one kind in a row (exit code 7, 6 for time-outs), or the server stays away (6).
        """
        commits = asyncio.create_task(self._storer.commit_until_closed())
        commits.add_done_callback(self._done)
        for work in (self._late.remove_often(self._tuning.sweep_every), *(lane.watch() for lane in self._lanes)):
            self._start_beside(work)
        loop = asyncio.get_running_loop()
        self._feeder.added = lambda: loop.call_soon_threadsafe(self._wake.set)
        try:
            while not self._over:
                try:
                    await self._send_all()
                except ExtractionError as error:
                    self._give_up(error)
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self._storer.commit()  # what could not be written after all waits again
                self._window.look_again()
                if not await self._storer.ask(lambda: self._journal.waiting(1)):
                    break
        finally:
            for task in (*self._tasks, *self._beside):
                task.cancel()
            await asyncio.gather(*self._tasks, *self._beside, return_exceptions=True)
            self._storer.closing = True
            await asyncio.wait([commits])
            try:
                await self._storer.commit()
                with contextlib.suppress(ExtractionError):  # a full disk: the next start makes them wait again
                    for entry in self._dispatcher.suspects:
                        await self._storer.note(functools.partial(self._journal.set_state, entry.line, WAITING))
                self._note_rate()
                await self._late.remove_last()
            finally:
                self._threads.shutdown()
                self._storer.shutdown()
        if self._end is not None:
            raise self._end

    def _note_rate(self) -> None:
        """What this run did, from its first request to its last durable row."""
        if self._first_sent is None:
            return
        seconds = max(time.monotonic() - self._first_sent, 1e-3)
        now, cpu = self._reporter.counts, sum(os.times()[:2]) - self._cpu
        samples, tokens = now.stored - self._before.stored, now.tokens_stored - self._before.tokens_stored
        with contextlib.suppress(OSError):  # a full disk: the log has it
            self._journal.put("flow", {"seconds": seconds, "samples": samples, "tokens": tokens, "cpu_seconds": cpu})
        say(f"{samples} samples, {tokens} tokens in {seconds:.1f} s: {tokens / seconds:.0f} tokens/s.")

    @property
    def _over(self) -> bool:
        return self._stopping or self._end is not None

    def _start_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._done)
        return task

    # sending

    async def _send_all(self) -> None:
        while not self._over:
            self._steering.hear()
            self._outages.hear()
            now = self._steering.held(bool(self._tasks)) or self._dispatcher.next(bool(self._tasks))
            if now.entry is not None and now.lane is not None:
                self._start(now.entry, now.lane)
                await asyncio.sleep(0)
                continue
            if not now.wait:
                return
            if now.sentence:
                self._reporter.held = now.held
                self._reporter.enter(ExtractState.PAUSED, now.sentence)
            await self._sleep_until_woken()

    def _start(self, entry: Entry, lane: Lane) -> None:
        if self._reporter.state is not ExtractState.RUNNING:
            self._reporter.enter(ExtractState.RUNNING, "Extracting.")
        self._first_sent = self._first_sent or time.monotonic()
        lane.budget.take(entry.tokens, self._plan.shape.file_bytes(entry.tokens))
        task = asyncio.create_task(self._one(dataclasses.replace(entry, attempts=entry.attempts + 1), lane, lane.alone))
        self._tasks.add(task)
        self._show()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._beside.discard(task)
        self._show()
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """The first reason counts; what is in flight is still finished, but waits for no space."""
        if self._end is None:
            self._end, self._storer.ending = error, True
            self._wake.set()

    def _show(self) -> None:
        self._reporter.in_flight = len(self._tasks)
        self._reporter.tokens_in_flight = sum(lane.budget.tokens for lane in self._lanes)

    async def _sleep_until_woken(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), self._tuning.poll)
        except asyncio.TimeoutError:
            return
        finally:
            self._wake.clear()

    # one sample

    async def _one(self, entry: Entry, lane: Lane, alone: bool) -> None:
        rid = f"{layout.RID_PREFIX}{self._plan.run}-{entry.row}-{entry.attempts}"
        folder = os.path.join(lane.dump_dir, layout.folder_name(rid))
        size = self._plan.shape.file_bytes(entry.tokens)
        written = 0
        lane.in_flight.add(rid)

        def release() -> None:
            lane.in_flight.discard(rid)
            lane.budget.bytes -= size
            lane.budget.written -= written
            self._wake.set()

        # Beside the request: the server does not wait for the journal.
        noted = asyncio.create_task(self._storer.note(lambda: self._journal.set_state(entry.line, SENT)))
        handed_on = suspected = False
        try:
            try:
                sample = await self._prefill(rid, entry, lane)
                await collect.wait_for_dump(folder, self._tuning.dump_timeout, lane.check_alive)
            finally:
                await noted
            written = size
            lane.budget.written += written
            handed_on = await self._store(sample, Dump(entry, folder, lane.rename, release))
            if handed_on:
                lane.budget.grow_bytes(size)
        except ServerAway as error:
            suspected = await self._lost_with_server(entry, lane, alone, error)
            if not suspected:
                lane.late.add(rid)
        except SampleFailure as failure:
            if failure.kind in ("timeout", "dump-missing"):
                lane.late.add(rid)
                await lane.client.abort(rid)
            await self._failed(entry, lane, failure)
        finally:
            if not suspected:
                self._window.leave(entry.line)
            if alone:
                lane.alone = False
            if not handed_on:
                self._window.look_again()
                release()
                await self._in_thread(lambda: collect.remove_dumps([folder]))

    async def _store(self, sample: Sample, dump: Dump) -> bool:
        """Whether the dump is checked and copied and now the storer's."""
        expected = checks.Expected(
            self._plan.boundaries, self._plan.spec.final, self._plan.model.hidden_size, self._dtype
        )
        staged = await self._storer.stage(dump, checks.DumpCheck(expected, sample.ids, self._norms))
        if staged is None:
            return False
        assert staged.checked is not None
        await self._learn(staged.checked)
        self._failures.stored()
        self._outages.over()
        return True

    async def _prefill(self, rid: str, entry: Entry, lane: Lane) -> Sample:
        try:
            sample = await self._in_thread(lambda: spool.read(self._plan.dataset.spool, entry))
            answer = await lane.ask(rid, sample.ids)
        finally:
            lane.budget.tokens -= entry.tokens
            self._wake.set()
        if answer.prompt_tokens != sample.tokens:
            raise SampleFailure(
                "prompt-tokens", f"{sample.tokens} tokens were sent, the server counts {answer.prompt_tokens}"
            )
        if answer.cached_tokens:
            raise SampleFailure(
                "cached-tokens", f"{answer.cached_tokens} of {sample.tokens} tokens came from the prefix cache"
            )
        return sample

    async def _learn(self, checked: checks.Checked) -> None:
        """The first good dump tells the dtype and the versions of this dataset."""
        self._norms.add(checked.norms)
        if self._dtype is None:
            self._dtype = checked.dtype
            await self._storer.note(lambda: self._journal.put("dtype", checked.dtype))
        if not self._known_dump:
            self._known_dump = True
            facts = {key: checked.meta.get(key) for key in ("sglang_version", "patch_version", "model_class")}
            await self._storer.note(lambda: self._journal.put("dump", facts))

    async def _failed(self, entry: Entry, lane: Lane, failure: SampleFailure) -> None:
        if lane.on_purpose:  # what a server answers while it is being stopped says nothing of the sample
            await self._wait_again(entry, failure.kind, failure.reason)
            return
        if failure.kind == "dump-full" and len(lane.in_flight) > 1:
            # Too much of ours at once: not the sample's fault.
            lane.budget.halve_bytes()
            await self._wait_again(entry, failure.kind, failure.reason)
            return
        final = self._failures.failed(entry.line, failure)
        state = FAILED if final else WAITING
        await self._storer.note(lambda: self._journal.set_failed(entry.line, state, failure.kind, failure.reason))
        say(f"line {entry.line} (row {entry.row}), attempt {entry.attempts}: {failure.kind}: {failure.reason}")
        if final:
            self._reporter.moved(failed=1)
        waiting = self._reporter.counts.waiting - self._storer.uncommitted
        verdict = self._failures.verdict(entry.line, failure, waiting)
        if verdict is None:
            return
        if self._plan.spec.on_trouble == "pause":
            self._steering.pause(f"Paused: {verdict}")
        else:
            self._give_up(verdict)

    # a server that is away

    async def _lost_with_server(self, entry: Entry, lane: Lane, alone: bool, error: ServerAway) -> bool:
        """Back to waiting, uncounted. Those in flight when a server died are tried alone, and one it dies of twice is not sent again.

        Returns whether it is to be tried alone. Where the server was stopped on purpose, nobody is suspected.
        """
        lost = lane.on_purpose or await lane.lost(str(error))
        if lane.on_purpose:
            await self._wait_again(entry, "away", str(error))
            return False
        if not lost:  # one broken connection, not a lost server
            if self._failures.broken(entry.line):
                reason = f"the connection broke {self._tuning.attempts} times with it: {error}"
                await self._failed(entry, lane, SampleFailure("server-error", reason))
            else:
                await self._wait_again(entry, "away", str(error))
            return False
        self._outages.await_return(lane)
        if self._failures.lost(entry.line, alone):
            reason = f"the server died twice with it, the second time with nothing else in flight: {error}"
            await self._failed(entry, lane, SampleFailure("kills-server", reason))
            self._outages.over()
            return False
        self._dispatcher.suspects.append(entry)
        return True

    async def _wait_again(self, entry: Entry, kind: str, reason: str) -> None:
        await self._storer.note(lambda: self._journal.set_failed(entry.line, WAITING, kind, reason))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
