"""Storing dumps: check and copy in threads, make durable, name and journal in groups, then delete the dump. A full disk is waited for.

The order, for whatever kills us between two steps: bytes durable, name, name durable, journal, dump deleted.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TypeVar

from eagle3_remote.extract import collect
from eagle3_remote.extract.collect import Check, Staged
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.extract.records import WAITING, Entry, StoredFile
from eagle3_remote.protocol import ExtractState

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Dump:
    """A complete dump of one sample."""

    entry: Entry
    folder: str
    rename: bool
    """It lies on the output's file system."""
    release: Callable[[], None]
    """Called on the event loop's thread when the dump is deleted."""


class Storer:
    """The last part of every sample's way."""

    def __init__(self, plan: Plan, journal: Journal, reporter: Reporter, tuning: Tuning) -> None:
        self._plan, self._journal, self._reporter, self._tuning = plan, journal, reporter, tuning
        self._copiers = concurrent.futures.ThreadPoolExecutor(tuning.threads, "copy")
        # Apart from the copiers: a disk that is slow to sync does not hold up what is copied into memory.
        self._syncers = concurrent.futures.ThreadPoolExecutor(tuning.threads, "sync")
        # One: changes of the journal happen in their order, and none waits on the event loop's thread for a busy disk.
        self._scribe = concurrent.futures.ThreadPoolExecutor(1, "journal")
        self._staged: list[tuple[Dump, Staged]] = []
        self._committing = asyncio.Lock()
        self.ending = False
        """Do not wait for space any more."""
        self.closing = False
        """No sample comes any more."""

    def shutdown(self) -> None:
        """End the threads."""
        self._copiers.shutdown()
        self._syncers.shutdown()
        self._scribe.shutdown()

    @property
    def uncommitted(self) -> int:
        """Samples that are checked and copied, and whose journal row does not say so yet."""
        return len(self._staged)

    async def stage(self, dump: Dump, check: Check | None) -> Staged | None:
        """Check a dump and copy it; `commit` does the rest. `None`: ended while waiting for space; the sample waits again.

        Raises:
            SampleFailure: the dump is not right.
            ExtractionError: the output cannot be written for another reason than space.
        """
        row, states = dump.entry.row, self._plan.dataset.states
        while True:
            try:
                staged = await self._on(
                    self._copiers,
                    lambda: collect.stage(dump.folder, states, row, check, rename=dump.rename),
                )
                self._staged.append((dump, staged))
                return staged
            except OSError as error:
                why = self._passes(error)
                if why is None:
                    raise ExtractionError(f"Storing row {row} in {states} failed: {error}.") from None
            if self.ending:
                await self.note(lambda: self._journal.set_state(dump.entry.line, WAITING))
                return None
            await self._pause(why)

    async def ask(self, question: Callable[[], T]) -> T:
        """Ask the journal, after what was noted before."""
        return await self._on(self._scribe, question)

    async def note(self, change: Callable[[], None]) -> None:
        """Change the journal, waiting as long as it takes for space (it lies on the output's file system) and for who else holds it.

        Raises:
            ExtractionError: ended while waiting. The files decide at the next start, so nothing is lost.
        """
        while True:
            try:
                return await self._on(self._scribe, change)
            except OSError as error:
                why = self._passes(error)
                if why is None or self.ending:
                    text = f"The journal in {self._plan.dataset.ours} cannot be written: {error}."
                    raise ExtractionError(text) from None
            await self._pause(why)

    def _passes(self, error: OSError) -> str | None:
        return collect.waited_for(error, self._plan.dataset.root)

    async def _pause(self, why: str) -> None:
        self._reporter.enter(ExtractState.PAUSED, why)
        await asyncio.sleep(self._tuning.poll)

    async def commit_until_closed(self) -> None:
        """Commit what was staged, again and again."""
        while not self.closing:
            await asyncio.sleep(self._tuning.commit_every)
            await self.commit()

    async def commit(self) -> None:
        """Make the staged files durable, name them, journal them in one transaction, and only then delete their dumps.

        Raises:
            ExtractionError: the output cannot be written for another reason than space.
        """
        async with self._committing:  # who calls this wants to know what became of a batch that is on its way, too
            batch, self._staged = self._staged, []
            if batch:
                await self._commit(batch)

    async def _commit(self, batch: list[tuple[Dump, Staged]]) -> None:
        synced = await asyncio.gather(
            *(self._on(self._syncers, functools.partial(_sync, staged)) for _, staged in batch)
        )
        failed = {staged.row: error for (_, staged), error in zip(batch, synced, strict=True) if error is not None}
        failed |= await self._name_all([staged for _, staged in batch if staged.row not in failed])
        good = [(dump, staged) for dump, staged in batch if staged.row not in failed]
        now = time.time()
        files = [
            StoredFile(dump.entry.line, staged.row, staged.copied.bytes, staged.copied.crc32, now)
            for dump, staged in good
        ]
        await self.note(lambda: self._journal.set_stored(files))
        for dump, staged in good:
            self._reporter.moved(stored=1, tokens=dump.entry.tokens, bytes_=staged.copied.bytes)
        for dump, staged in batch:
            if staged.row in failed:
                await self._not_written(dump, failed[staged.row])
        folders = [dump.folder for dump, _ in batch]
        await self._on(self._syncers, lambda: collect.remove_dumps(folders))
        for dump, _ in batch:
            dump.release()

    async def _name_all(self, staged: list[Staged]) -> dict[int, OSError]:
        """A directory may need a block of its own for a new name: waits for it. Returns why rows are not named."""
        left, gone = list(staged), dict[int, OSError]()
        while True:
            try:
                await self._on(self._syncers, lambda: self._name(left, gone))
                return gone
            except OSError as error:
                why = self._passes(error)
                if why is None or self.ending:
                    text = f"Naming files in {self._plan.dataset.states} failed: {error}."
                    raise ExtractionError(text) from None
            await self._pause(why)

    def _name(self, left: list[Staged], gone: dict[int, OSError]) -> None:
        """What has its name is taken from the list: the next try goes on with the rest."""
        while left:
            try:
                collect.name(left[-1], self._plan.dataset.states)
            except FileNotFoundError as error:
                gone[left[-1].row] = error
            left.pop()
        collect.sync_dir(self._plan.dataset.states)

    async def _not_written(self, dump: Dump, error: OSError) -> None:
        """Once an fsync failed, the file's pages are not to be trusted: the sample is extracted again.

        So is one that somebody took away: with `Dump.rename` its file lies in the dump directory until it has its name.
        """
        taken = isinstance(error, FileNotFoundError)
        if not collect.is_full(error) and not taken:
            text = f"Storing row {dump.entry.row} in {self._plan.dataset.states} failed: {error}."
            raise ExtractionError(text) from None
        kind, why = ("dump-missing", "it was taken away") if taken else ("output-full", "it could not be written")
        await self.note(lambda: self._journal.set_failed(dump.entry.line, WAITING, kind, f"{why}: {error}"))

    async def _on(self, threads: concurrent.futures.Executor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)


def _sync(staged: Staged) -> OSError | None:
    try:
        collect.sync_file(staged.path)
    except OSError as error:
        return error
    return None
