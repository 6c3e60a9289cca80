"""Storing checked dumps: copy, name, make durable and journal in groups, then delete the dump. A full disk is waited for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable

from eagle3_remote.extract import collect
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.journal import WAITING, Entry, Journal, StoredFile
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Budget, Tuning
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.protocol import ExtractState


class Storer:
    """The last part of every sample's way."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        reporter: Reporter,
        budget: Budget,
        threads: concurrent.futures.Executor,
        tuning: Tuning,
        wake: asyncio.Event,
    ) -> None:
        self._plan, self._journal, self._reporter, self._budget = plan, journal, reporter, budget
        self._threads, self._tuning, self._wake = threads, tuning, wake
        self._named: list[tuple[StoredFile, Entry, str]] = []
        self.ending = False
        """Do not wait for space any more."""
        self.closing = False
        """No sample comes any more."""

    @property
    def uncommitted(self) -> int:
        """Samples whose file has its name and whose journal row does not say so yet."""
        return len(self._named)

    async def store(self, folder: str, entry: Entry) -> bool:
        """Put a checked dump under its final name. False: ended while waiting for space; the sample waits again.

        Raises:
            ExtractionError: the output cannot be written for another reason than space.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                copied = await loop.run_in_executor(
                    self._threads, collect.store, folder, self._plan.dataset.states, entry.row
                )
                file = StoredFile(entry.line, entry.row, copied.bytes, copied.crc32, time.time())
                self._named.append((file, entry, folder))
                return True
            except OSError as error:
                if not collect.is_full(error):
                    text = f"Storing row {entry.row} in {self._plan.dataset.states} failed: {error}."
                    raise ExtractionError(text) from None
            if self.ending:
                await self.note(lambda: self._journal.set_state(entry.line, WAITING))
                return False
            await self._pause_full()

    async def note(self, change: Callable[[], None]) -> None:
        """Change the journal, waiting for space as long as it takes: it lies on the output's file system.

        Raises:
            ExtractionError: ended while waiting. The files decide at the next start, so nothing is lost.
        """
        while True:
            try:
                return change()
            except OSError as error:
                if not collect.is_full(error) or self.ending:
                    text = f"The journal in {self._plan.dataset.ours} cannot be written: {error}."
                    raise ExtractionError(text) from None
            await self._pause_full()

    async def _pause_full(self) -> None:
        text = f"Paused: {self._plan.dataset.root} is full. It goes on by itself when there is space."
        self._reporter.enter(ExtractState.PAUSED, text)
        await asyncio.sleep(self._tuning.poll)

    async def commit_until_closed(self) -> None:
        """Commit what was named, again and again."""
        while not self.closing:
            await asyncio.sleep(self._tuning.commit_every)
            await self.commit()

    async def commit(self) -> None:
        """Make the new names durable, journal them in one transaction, and only then delete their dumps."""
        loop = asyncio.get_running_loop()
        batch, self._named = self._named, []
        if not batch:
            return
        await loop.run_in_executor(self._threads, collect.sync_dir, self._plan.dataset.states)
        await self.note(lambda: self._journal.set_stored([file for file, _, _ in batch]))
        for file, entry, _ in batch:
            self._reporter.moved(stored=1, tokens=entry.tokens, bytes_=file.bytes)
        await loop.run_in_executor(self._threads, collect.remove_dumps, [folder for _, _, folder in batch])
        self._budget.bytes -= sum(self._plan.shape.file_bytes(entry.tokens) for _, entry, _ in batch)
        self._wake.set()
