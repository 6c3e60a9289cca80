"""Sending, collecting, checking and storing, side by side, under a budget of tokens and of bytes.

Everything here runs on the event loop's thread but for reading lines, checking and copying, which go to worker threads. A sample's way:
waiting -> sent -> (answer, dump) -> checked -> named in hidden_states/ -> stored. Dump folders are deleted only after the journal says
stored, so that whatever kills the process leaves either the dump or the file.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import os
import time
from collections.abc import Callable
from typing import TypeVar

from eagle3_patch import layout
from eagle3_remote.extract import checks, collect, space, spool
from eagle3_remote.extract.client import Client, ServerAway
from eagle3_remote.extract.errors import EXIT_SERVER, ExtractionError, SampleFailure
from eagle3_remote.extract.facts import check_server
from eagle3_remote.extract.input import Sample
from eagle3_remote.extract.journal import CHECKED, FAILED, SENT, WAITING, Entry, Journal
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Budget, Failures, Tuning
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.storing import Storer
from eagle3_remote.protocol import ExtractState

T = TypeVar("T")

_PREDICTION_SLACK = 4.0
_QUEUE = 256


class Flow:
    """One run over what the journal has waiting, and what the feeder still adds to it."""

    def __init__(
        self, plan: Plan, journal: Journal, feeder: Feeder, client: Client, reporter: Reporter, tuning: Tuning
    ) -> None:
        self._plan, self._journal, self._client, self._reporter, self._tuning = plan, journal, client, reporter, tuning
        self._feeder = feeder
        self._threads = concurrent.futures.ThreadPoolExecutor(tuning.threads, "extract")
        self._wake = asyncio.Event()
        self._queue: collections.deque[Entry] = collections.deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._budget = Budget(plan.token_budget, max(space.room(plan.spec.dump_dir).free // 2, 1))
        self._storer = Storer(plan, journal, reporter, self._budget, self._threads, tuning, self._wake)
        self._failures = Failures(tuning.attempts, tuning.streak)
        self._away: str | None = None
        self._losses = 0
        self._stopping = False
        self._journal_runs: list[str] = journal.get("runs") or []
        self._end: BaseException | None = None
        self._dtype: str | None = journal.get("dtype")
        self._known_dump = journal.get("dump") is not None
        self._began = time.monotonic()
        self._tokens_done = 0

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
        try:
            loop = asyncio.get_running_loop()
            self._feeder.added = lambda: loop.call_soon_threadsafe(self._wake.set)
            try:
                await self._send_all()
            except ExtractionError as error:
                self._give_up(error)
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._storer.closing = True
            await asyncio.wait([commits])
            try:
                await self._storer.commit()
                await self._in_thread(self._sweep)
            finally:
                self._threads.shutdown()
        if self._end is not None:
            raise self._end

    def _sweep(self) -> None:
        collect.sweep(self._plan.spec.dump_dir, self._journal_runs, set())

    # sending

    async def _send_all(self) -> None:
        while not self._stopping and self._end is None:
            if self._away is not None and not self._tasks:
                await self._wait_for_server()
                continue
            all_read = self._feeder.done  # asked before the journal is, which gets the last samples first
            entry = self._next() if self._away is None else None
            if entry is None and self._away is None and not self._tasks:
                if all_read:
                    return
                self._feeder.check()
            if entry is not None and (why := self._no_room(entry)) is None:
                self._queue.popleft()
                await self._start(entry)
                continue
            if entry is not None and why:
                self._reporter.enter(ExtractState.PAUSED, why)
            await self._sleep_until_woken()

    def _next(self) -> Entry | None:
        if not self._queue:
            self._queue.extend(self._journal.waiting(_QUEUE))
        return self._queue[0] if self._queue else None

    def _no_room(self, entry: Entry) -> str | None:
        """`None`: send it. ``""``: the budgets are full. A sentence: a file system is."""
        plan, size = self._plan, self._plan.shape.file_bytes(entry.tokens)
        if not self._budget.fits(entry.tokens, size):
            return ""
        output = space.output_full(space.room(plan.dataset.root), self._budget.bytes, size, plan.dataset.root)
        why = output or space.dump_full(space.room(plan.spec.dump_dir), size, plan.spec.dump_dir)
        # While work of ours is on its way out, the space may be ours and come back by itself.
        return "" if why and self._budget.bytes else why

    async def _start(self, entry: Entry) -> None:
        await self._storer.note(lambda: self._journal.set_state(entry.line, SENT))
        if self._reporter.state is not ExtractState.RUNNING:
            self._reporter.enter(ExtractState.RUNNING, "Extracting.")
        self._budget.take(entry.tokens, self._plan.shape.file_bytes(entry.tokens))
        self._show()
        task = asyncio.create_task(self._one(entry))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._show()
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._give_up(error)

    def _give_up(self, error: BaseException | None) -> None:
        """The first reason counts; what is in flight is still finished, but waits for no space."""
        if error is not None and self._end is None:
            self._end, self._storer.ending = error, True

    def _show(self) -> None:
        self._reporter.in_flight, self._reporter.tokens_in_flight = len(self._tasks), self._budget.tokens

    async def _sleep_until_woken(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), self._tuning.poll)
        except asyncio.TimeoutError:
            return
        finally:
            self._wake.clear()

    # one sample

    async def _one(self, entry: Entry) -> None:
        rid = f"{layout.RID_PREFIX}{self._plan.run}-{entry.row}-{entry.attempts + 1}"
        folder = os.path.join(self._plan.spec.dump_dir, layout.folder_name(rid))
        handed_on = False
        try:
            sample = await self._prefill(rid, entry)
            await collect.wait_for_dump(folder, self._tuning.dump_timeout)
            expected = checks.Expected(
                self._plan.boundaries, self._plan.spec.final, self._plan.model.hidden_size, self._dtype
            )
            checked = await self._in_thread(lambda: checks.check_dump(folder, expected, sample.ids))
            await self._storer.note(lambda: self._learn(checked))
            await self._storer.note(lambda: self._journal.set_state(entry.line, CHECKED))
            handed_on = await self._storer.store(folder, entry)
            if handed_on:
                self._failures.stored()
                self._tokens_done += entry.tokens
        except ServerAway as error:
            await self._lost_with_server(entry, error)
        except SampleFailure as failure:
            await self._failed(entry, failure)
            if failure.kind == "timeout":
                await self._client.abort(rid)
        finally:
            if not handed_on:
                self._budget.bytes -= self._plan.shape.file_bytes(entry.tokens)
                await self._in_thread(lambda: collect.remove_dumps([folder]))

    async def _prefill(self, rid: str, entry: Entry) -> Sample:
        try:
            sample = await self._in_thread(lambda: spool.read(self._plan.dataset.spool, entry))
            answer = await self._client.prefill(rid, sample.ids, self._timeout())
        finally:
            self._budget.tokens -= entry.tokens
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

    def _timeout(self) -> float:
        """From what is ahead of a request now and the rate so far, with slack."""
        span = time.monotonic() - self._began
        if not self._tokens_done:
            return 2 * self._tuning.min_timeout  # nothing to go by yet, and the first batches warm kernels up
        return max(self._tuning.min_timeout, _PREDICTION_SLACK * self._budget.tokens * span / self._tokens_done)

    def _learn(self, checked: checks.Checked) -> None:
        """The first good dump tells the dtype and the versions of this dataset."""
        if self._dtype is None:
            self._dtype = checked.dtype
            self._journal.put("dtype", checked.dtype)
        if not self._known_dump:
            self._known_dump = True
            self._journal.put(
                "dump", {key: checked.meta.get(key) for key in ("sglang_version", "patch_version", "model_class")}
            )

    async def _failed(self, entry: Entry, failure: SampleFailure) -> None:
        if failure.kind == "dump-full" and len(self._tasks) > 1:
            # Too much of ours at once: not the sample's fault.
            self._budget.halve_bytes()
            await self._storer.note(lambda: self._journal.set_failed(entry.line, WAITING, failure.kind, failure.reason))
            return
        final = self._failures.failed(entry.line, failure)
        state = FAILED if final else WAITING
        await self._storer.note(lambda: self._journal.set_failed(entry.line, state, failure.kind, failure.reason))
        say(f"line {entry.line} (row {entry.row}), attempt {entry.attempts + 1}: {failure.kind}: {failure.reason}")
        if final:
            self._reporter.moved(failed=1)
        waiting = self._reporter.counts.waiting - self._storer.uncommitted
        self._give_up(self._failures.verdict(entry.line, failure, waiting))

    async def _lost_with_server(self, entry: Entry, error: ServerAway) -> None:
        """Back to waiting, uncounted; but a sample that loses the server again and again is not sent for ever."""
        self._away = self._away or str(error)
        times = self._failures.lost(entry.line)
        if times < self._tuning.attempts:
            await self._storer.note(lambda: self._journal.set_failed(entry.line, WAITING, "away", str(error)))
        else:
            await self._failed(
                entry, SampleFailure("server-error", f"the server went away {times} times with it: {error}")
            )

    # a server that is away

    async def _wait_for_server(self) -> None:
        self._queue.clear()
        if await self._server_is_back():  # one broken connection, not a lost server
            return
        self._losses += 1
        if self._losses > self._tuning.server_losses:
            self._give_up(
                ExtractionError(
                    f"The server went away {self._losses} times in this run (last: {self._away}): look at its log. "
                    "What is stored stays; start the extraction again to continue.",
                    EXIT_SERVER,
                )
            )
            return
        self._reporter.enter(
            ExtractState.PAUSED, f"Paused: the server is away ({self._away}). Waiting for it to come back."
        )
        end = time.monotonic() + self._tuning.server_wait
        while not self._stopping:
            if await self._server_is_back():
                self._reporter.enter(ExtractState.RUNNING, "The server is back; extracting.")
                return
            if time.monotonic() > end:
                self._give_up(
                    ExtractionError(
                        f"The server did not come back within {self._tuning.server_wait:.0f} s. "
                        "What is stored stays; start the server and the extraction again to continue.",
                        EXIT_SERVER,
                    )
                )
                return
            await asyncio.sleep(min(2.0, self._tuning.poll * 4))

    async def _server_is_back(self) -> bool:
        """Healthy, and still the server that was planned with.

        Raises:
            ExtractionError: another server came up in its place.
        """
        if not await self._client.healthy():
            return False
        try:
            server = await self._client.facts(self._plan.model)
        except ServerAway:
            return False
        check_server(server, self._plan.model)
        self._away = None
        return True

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
