"""Sending, collecting, checking and storing, side by side, under a budget of tokens and of bytes.

Everything here runs on the event loop's thread but for reading lines, checking and copying, which go to worker threads. A sample's way:
waiting -> sent -> (answer, dump) -> checked -> named in hidden_states/ -> stored. Dump folders are deleted only after the journal says
stored, so that whatever kills the process leaves either the dump or the file.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import os
import time
from collections.abc import Callable
from typing import TypeVar

from eagle3_patch import layout
from eagle3_remote.extract import checks, collect, space
from eagle3_remote.extract.client import Client, ServerAway
from eagle3_remote.extract.errors import EXIT_INCOMPLETE, EXIT_SERVER, ExtractionError, SampleFailure
from eagle3_remote.extract.facts import check_server
from eagle3_remote.extract.input import Sample, parse, read_line
from eagle3_remote.extract.journal import CHECKED, FAILED, SENT, WAITING, Entry, Journal, StoredFile
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.protocol import ExtractState

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Patience and sizes; the defaults are for a real server."""

    min_timeout: float = 120.0
    """Seconds a request may take at least; more where the rate so far predicts more."""
    dump_timeout: float = 120.0
    """Seconds from the answer to the complete dump."""
    server_wait: float = 600.0
    """Seconds to wait for a server that is away."""
    server_losses: int = 3
    """So often the server may go away within one run."""
    attempts: int = 3
    streak: int = 3
    """So many samples in a row failing in one way end the run."""
    threads: int = 4
    poll: float = 0.5
    commit_every: float = 0.1
    """Seconds over which stored files are made durable and journalled together."""


_PREDICTION_SLACK = 4.0
_QUEUE = 256


class Flow:
    """One run over what the journal has waiting."""

    def __init__(self, plan: Plan, journal: Journal, client: Client, reporter: Reporter, tuning: Tuning) -> None:
        self._plan, self._journal, self._client, self._reporter, self._tuning = plan, journal, client, reporter, tuning
        self._threads = concurrent.futures.ThreadPoolExecutor(tuning.threads, "extract")
        self._wake = asyncio.Event()
        self._queue: collections.deque[Entry] = collections.deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._committing: list[tuple[StoredFile, Entry, str]] = []
        self._tokens = 0
        self._bytes = 0
        self._byte_budget = max(space.room(plan.spec.dump_dir).free // 2, 1)
        self._tries: collections.Counter[int] = collections.Counter()
        self._lost: collections.Counter[int] = collections.Counter()
        self._streak: dict[int, tuple[str, bool]] = {}
        self._away: str | None = None
        self._losses = 0
        self._stopping = self._closing = False
        self._journal_runs: list[str] = journal.get("runs") or []
        self._end: BaseException | None = None
        self._dtype: str | None = journal.get("dtype")
        self._known_dump = journal.get("dump") is not None
        self._began = time.monotonic()
        self._tokens_done = 0

    def stop(self) -> None:
        """Send nothing more; what is in flight is finished."""
        self._stopping = True
        self._wake.set()

    @property
    def stopped(self) -> bool:
        return self._stopping

    async def run(self) -> None:
        """Return when nothing is waiting any more, or after `stop`.

        Raises:
            ExtractionError: three failures of one kind in a row (exit code 7, 6 for time-outs), or the server stays away (6).
        """
        commits = asyncio.create_task(self._commit_for_ever())
        try:
            await self._send_all()
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._closing = True
            await commits
            await self._commit()
            await self._in_thread(self._sweep)
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
            entry = self._next() if self._away is None else None
            if entry is None and self._away is None and not self._tasks:
                return
            if entry is not None and (why := self._no_room(entry)) is None:
                self._queue.popleft()
                self._start(entry)
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
        if self._tasks and (self._tokens + entry.tokens > plan.token_budget or self._bytes + size > self._byte_budget):
            return ""
        output = space.output_full(space.room(plan.dataset.root), self._bytes, size, plan.dataset.root)
        why = output or space.dump_full(space.room(plan.spec.dump_dir), size, plan.spec.dump_dir)
        # While work of ours is on its way out, the space may be ours and come back by itself.
        return "" if why and self._bytes else why

    def _start(self, entry: Entry) -> None:
        if self._reporter.state is not ExtractState.RUNNING:
            self._reporter.enter(ExtractState.RUNNING, "Extracting.")
        self._journal.set_state(entry.line, SENT)
        self._tokens += entry.tokens
        self._bytes += self._plan.shape.file_bytes(entry.tokens)
        self._show()
        task = asyncio.create_task(self._one(entry))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._show()
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None and self._end is None:
            self._end = error

    def _show(self) -> None:
        self._reporter.in_flight, self._reporter.tokens_in_flight = len(self._tasks), self._tokens

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
            sample = await self._in_thread(lambda: self._read(entry))
            await self._prefill(rid, sample)
            await collect.wait_for_dump(folder, self._tuning.dump_timeout)
            expected = checks.Expected(
                self._plan.boundaries, self._plan.spec.final, self._plan.model.hidden_size, self._dtype
            )
            checked = await self._in_thread(lambda: checks.check_dump(folder, expected, sample.ids))
            self._learn(checked)
            self._journal.set_state(entry.line, CHECKED)
            copied = await self._store(folder, entry)
            if copied is not None:
                file = StoredFile(entry.line, entry.row, copied.bytes, copied.crc32, time.time())
                self._committing.append((file, entry, folder))
                handed_on = True
                self._streak.clear()
                self._tokens_done += entry.tokens
        except ServerAway as error:
            self._lost_with_server(entry, error)
        except SampleFailure as failure:
            self._failed(entry, failure)
            if failure.kind == "timeout":
                await self._client.abort(rid)
        finally:
            if not handed_on:
                self._bytes -= self._plan.shape.file_bytes(entry.tokens)
                await self._in_thread(lambda: collect.remove_dumps([folder]))

    def _read(self, entry: Entry) -> Sample:
        with open(self._plan.spec.data, "rb") as file:
            sample = parse(read_line(file, entry.line, entry.offset, entry.size), self._plan.rules)
        if not isinstance(sample, Sample):
            raise SampleFailure(
                "input-changed" if sample.kind != "too-long" else "refused", f"line {entry.line}: {sample.reason}"
            )
        if sample.fingerprint != entry.fingerprint:
            raise SampleFailure("input-changed", f"line {entry.line} has other token ids than when it was read")
        return sample

    async def _prefill(self, rid: str, sample: Sample) -> None:
        try:
            answer = await self._client.prefill(rid, sample.ids, self._timeout())
        finally:
            self._tokens -= sample.tokens
            self._wake.set()
        if answer.prompt_tokens != sample.tokens:
            raise SampleFailure(
                "prompt-tokens", f"{sample.tokens} tokens were sent, the server counts {answer.prompt_tokens}"
            )
        if answer.cached_tokens:
            raise SampleFailure(
                "cached-tokens", f"{answer.cached_tokens} of {sample.tokens} tokens came from the prefix cache"
            )

    def _timeout(self) -> float:
        """From what is ahead of a request now and the rate so far, with slack."""
        span = time.monotonic() - self._began
        if not self._tokens_done:
            return self._tuning.min_timeout * 2
        return max(self._tuning.min_timeout, _PREDICTION_SLACK * self._tokens * span / self._tokens_done)

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

    async def _store(self, folder: str, entry: Entry) -> collect.Copied | None:
        """Store, waiting for space as long as it takes. `None`: stopped while waiting; the sample is extracted again later."""
        while True:
            try:
                return await self._in_thread(lambda: collect.store(folder, self._plan.dataset.states, entry.row))
            except OSError as error:
                if not collect.is_full(error):
                    raise ExtractionError(
                        f"Storing row {entry.row} in {self._plan.dataset.states} failed: {error}."
                    ) from None
            if self._stopping or self._end is not None:
                self._journal.set_state(entry.line, WAITING)
                return None
            self._reporter.enter(
                ExtractState.PAUSED,
                f"Paused: {self._plan.dataset.root} is full. It goes on by itself when there is space.",
            )
            await asyncio.sleep(self._tuning.poll)

    def _failed(self, entry: Entry, failure: SampleFailure) -> None:
        if failure.kind == "dump-full" and len(self._tasks) > 1:
            # Too much of ours at once: not the sample's fault.
            self._byte_budget = max(self._byte_budget // 2, 1)
            self._journal.set_failed(entry.line, WAITING, failure.kind, failure.reason)
            return
        self._tries[entry.line] += 1
        final = self._tries[entry.line] >= self._tuning.attempts or failure.kind == "refused"
        self._journal.set_failed(entry.line, FAILED if final else WAITING, failure.kind, failure.reason)
        say(f"line {entry.line} (row {entry.row}), attempt {entry.attempts + 1}: {failure.kind}: {failure.reason}")
        if final:
            self._reporter.moved(failed=1)
        if any(kind != failure.kind for kind, _ in self._streak.values()):
            self._streak.clear()
        self._streak[entry.line] = (failure.kind, final)
        own = sum(1 for _, gone in self._streak.values() if not gone)
        others = self._reporter.counts.waiting - len(self._committing) > own
        if len(self._streak) >= self._tuning.streak and others and self._end is None:
            code = EXIT_SERVER if failure.kind == "timeout" else EXIT_INCOMPLETE
            why = checks.EXPLANATIONS.get(failure.kind, failure.kind)
            self._end = ExtractionError(
                f"{len(self._streak)} samples in a row failed in one way ({failure.kind}): {why}. "
                f"Last: line {entry.line}: {failure.reason}. What is stored stays; start the extraction again to continue.",
                code,
            )

    def _lost_with_server(self, entry: Entry, error: ServerAway) -> None:
        """Back to waiting, uncounted; but a sample that loses the server again and again is not sent for ever."""
        self._away = self._away or str(error)
        self._lost[entry.line] += 1
        if self._lost[entry.line] < self._tuning.attempts:
            self._journal.set_failed(entry.line, WAITING, "away", str(error))
        else:
            self._failed(
                entry,
                SampleFailure("server-error", f"the server went away {self._lost[entry.line]} times with it: {error}"),
            )

    # storing for good

    async def _commit_for_ever(self) -> None:
        while not self._closing:
            await asyncio.sleep(self._tuning.commit_every)
            await self._commit()

    async def _commit(self) -> None:
        batch, self._committing = self._committing, []
        if not batch:
            return
        await self._in_thread(lambda: collect.sync_dir(self._plan.dataset.states))
        self._journal.set_stored([file for file, _, _ in batch])
        for file, entry, _ in batch:
            self._reporter.moved(stored=1, tokens=entry.tokens, bytes_=file.bytes)
        await self._in_thread(lambda: collect.remove_dumps([folder for _, _, folder in batch]))
        self._bytes -= sum(self._plan.shape.file_bytes(entry.tokens) for _, entry, _ in batch)
        self._wake.set()

    # a server that is away

    async def _wait_for_server(self) -> None:
        self._queue.clear()
        if await self._server_is_back():  # one broken connection, not a lost server
            return
        self._losses += 1
        if self._losses > self._tuning.server_losses:
            self._end = ExtractionError(
                f"The server went away {self._losses} times in this run (last: {self._away}): look at its log. "
                "What is stored stays; start the extraction again to continue.",
                EXIT_SERVER,
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
                self._end = ExtractionError(
                    f"The server did not come back within {self._tuning.server_wait:.0f} s. "
                    "What is stored stays; start the server and the extraction again to continue.",
                    EXIT_SERVER,
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
