"""One of the servers an extraction sends to: its budgets, its pace, and whether it is there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from eagle3_remote.extract import space
from eagle3_remote.extract.client import Answer, Client, ServerAway
from eagle3_remote.extract.errors import SampleFailure
from eagle3_remote.extract.facts import check_server
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Budget, Pace, Tuning
from eagle3_remote.extract.progress import say

_LOOK_AGAIN = 2.0


class Lane:
    """A server, seen from the flow. Used on the event loop's thread."""

    def __init__(self, plan: Plan, client: Client, dump_dir: str, rename: bool, tuning: Tuning) -> None:
        self.client, self.dump_dir, self.rename = client, dump_dir, rename
        """`rename`: the dump directory lies on the output's file system."""
        self.budget, self.pace = Budget(plan.token_budget), Pace()
        self.in_flight: set[str] = set()
        """Request ids whose dump is still needed."""
        self.late: set[str] = set()
        """Request ids that are not waited for any more; their dumps may still come."""
        self.alone = False
        """A suspect is under way and gets no company."""
        self.away: str | None = None
        """Why nothing is sent; `None`: the server is there."""
        self.leaving = False
        """It is being stopped on purpose just now: what is in flight may still be answered."""
        self.on_purpose = False
        """It is away, or about to be, because somebody stopped it: no request that breaks is to blame."""
        self.awaited = False
        """Somebody waits for it to come back."""
        self.gone = False
        """It did not come back in time."""
        self._plan, self._tuning = plan, tuning
        self._was_full = False
        self._asking: set[asyncio.Task[Answer]] = set()
        self._heard = time.monotonic()
        self._verdict: asyncio.Task[bool] | None = None

    @property
    def there(self) -> bool:
        """Whether it can be sent to."""
        return self.away is None and not self.gone

    def room(self, size: int) -> str | None:
        """`None`: its dump directory takes one more sample of `size` bytes. Else a sentence that says why not."""
        try:
            where = space.room(self.dump_dir)
        except OSError as error:
            return (
                f"Paused: the dump directory {self.dump_dir} cannot be looked at ({error.strerror}). "
                "It goes on by itself when it is there again."
            )
        fits = space.dump_fits(where, self.budget.written, self.budget.bytes, size, self._was_full)
        self._was_full = not fits
        return None if fits else space.dump_full(where, self.dump_dir)

    async def ask(self, rid: str, ids: Sequence[int]) -> Answer:
        """Prefill one prompt.

        Raises:
            ServerAway: the server went away, or hangs.
            SampleFailure: as `Client.prefill`.
        """
        now = time.monotonic()
        if not self._asking:
            self._heard = now
        self.pace.sent(now)
        timeout = self.pace.timeout(now, self.budget.tokens, self._tuning.min_timeout)
        task = asyncio.create_task(self.client.prefill(rid, ids, timeout))
        self._asking.add(task)
        try:
            answer = await task
        except asyncio.CancelledError:
            if self.away is not None and task.cancelled():
                raise ServerAway(self.away) from None
            task.cancel()
            raise
        except SampleFailure as failure:
            if failure.kind == "timeout" and not await self.client.healthy():
                raise ServerAway(f"{failure}, and it does not call itself healthy") from None
            self._heard = time.monotonic()
            raise
        finally:
            self._asking.discard(task)
        self._heard = time.monotonic()
        self.pace.answered(self._heard, len(ids))
        return answer

    async def check_alive(self) -> None:
        """For one who waits for a dump.

        Raises:
            ServerAway: the server does not answer any more.
        """
        known = self.away is not None and not self.leaving
        if known or not await self.client.healthy():
            raise ServerAway(self.away or "it answered and went away before the dump was complete")

    async def watch(self) -> None:
        """Find out that the server hangs: requests are open, none was answered for long, and twice it does not call itself healthy."""
        silent = 0
        patience = self._tuning.min_timeout / 2
        while True:
            await asyncio.sleep(min(5.0, patience / 4))
            if self.away is not None or not self._asking or time.monotonic() - self._heard < patience:
                silent = 0
                continue
            silent = 0 if await self.client.healthy() else silent + 1
            if silent >= 2 and self.away is None:
                self.away = f"it has not answered anything for {time.monotonic() - self._heard:.0f} s"
                for task in self._asking:
                    task.cancel()

    def leave(self) -> None:
        """It is being stopped on purpose: nothing more is sent until it is back."""
        self.leaving = self.on_purpose = True
        self.away = self.away or "stopped on purpose"

    async def lost(self, why: str) -> bool:
        """After a request broke: whether the server is away. One look, however many requests broke."""
        if self._verdict is None:
            self.away = self.away or why
            self._verdict = asyncio.create_task(self._is_lost())
        return await asyncio.shield(self._verdict)

    async def _is_lost(self) -> bool:
        try:
            with contextlib.suppress(ServerAway):
                if await self._is_fit() and not self.on_purpose:
                    self.away = self._verdict = None
                    return False
            return True
        except BaseException:
            self._verdict = None
            raise

    async def come_back(self) -> bool:
        """Wait for a server that is away; whether it came within `Tuning.server_wait`.

        Raises:
            ExtractionError: another server came up in its place.
        """
        say(f"The server at {self.client.url} is away ({self.away}). Waiting for it to come back.")
        end = time.monotonic() + self._tuning.server_wait
        while time.monotonic() < end:
            with contextlib.suppress(ServerAway):
                if not self.leaving and await self._is_fit() and not self.leaving:
                    self.pace = Pace()
                    self.away = self._verdict = None
                    self.awaited = self.on_purpose = False
                    say(f"The server at {self.client.url} is back.")
                    return True
            await asyncio.sleep(min(_LOOK_AGAIN, self._tuning.poll * 4))
        self.gone = True
        return False

    async def _is_fit(self) -> bool:
        if not await self.client.healthy():
            return False
        check_server(await self.client.facts(self._plan.model), self._plan.model)
        return True


def spread(lanes: Sequence[Lane], tokens: int, size: int) -> Lane | None:
    """The server with the most room for one more sample; `None`: their budgets are full."""
    fitting = [lane for lane in lanes if lane.budget.fits(tokens, size)]
    return min(fitting, key=_load, default=None)


def _load(lane: Lane) -> Any:
    return lane.budget.tokens / lane.budget.most_tokens
