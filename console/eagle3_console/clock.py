"""This machine's clocks, and whether it slept."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time

JUMP = 5.0
"""Seconds that two looks at the clocks may be wrong by; a clock that is set counts as a sleep, which costs one question."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """Both clocks at once, in seconds. The monotonic one stands still while the machine sleeps, the wall clock does not."""

    wall: float
    monotonic: float


def slept(before: Moment, now: Moment) -> bool:
    """Whether the machine slept between two looks at the clocks."""
    return (now.wall - before.wall) - (now.monotonic - before.monotonic) > JUMP


class Clock:
    """The real clocks; a test brings quicker ones."""

    def now(self) -> Moment:
        """Both clocks."""
        return Moment(time.time(), time.monotonic())

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Until `event` is set, but no longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
