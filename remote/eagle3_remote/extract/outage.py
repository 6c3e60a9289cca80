"""Servers that went away: waited for, and given up where they do not come back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from eagle3_remote.extract import leaving
from eagle3_remote.extract.errors import EXIT_SERVER, ExtractionError
from eagle3_remote.extract.lane import Lane
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.protocol import ExtractState


class Outages:
    """Waits for each server once, however many requests it took with it.

    Args:
        beside: runs a coroutine beside the flow, which ends with what that raises.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        reporter: Reporter,
        tuning: Tuning,
        beside: Callable[[Coroutine[Any, Any, None]], object],
        run_dir: str,
    ) -> None:
        self._lanes, self._reporter, self._tuning, self._beside = lanes, reporter, tuning, beside
        self._run_dir = run_dir
        self._losses = 0

    def over(self) -> None:
        """A sample was stored, or it is known which one the server died of: what comes now is another story."""
        self._losses = 0

    def hear(self) -> None:
        """Whether somebody stops a server on purpose by now. It is waited for like one that went away, but it is no loss."""
        port = leaving.leaving(self._run_dir)
        for lane in self._lanes:
            if port is None or lane.gone or leaving.port_of(lane.client.url) != port:
                lane.leaving = False
            elif not lane.leaving:
                lane.leave()
                self.await_return(lane)

    def await_return(self, lane: Lane) -> None:
        """A server is away: wait for it beside everything else."""
        if not lane.awaited:
            lane.awaited = True
            self._beside(self._return_of(lane))

    async def _return_of(self, lane: Lane) -> None:
        if not lane.on_purpose:
            self._losses += 1
        if self._losses > self._tuning.server_losses:
            raise ExtractionError(
                f"The server went away {self._losses} times without a sample stored in between (last: {lane.away}): look at "
                "its log. What is stored stays; start the extraction again to continue.",
                EXIT_SERVER,
            )
        if await lane.come_back():
            if self._reporter.state is ExtractState.PAUSED and not self._reporter.held:
                self._reporter.enter(ExtractState.RUNNING, "The server is back; extracting.")
            return
        if any(not other.gone for other in self._lanes):
            say(f"The server at {lane.client.url} did not come back; the others go on.")
            return
        raise ExtractionError(
            f"The server did not come back within {self._tuning.server_wait:.0f} s. "
            "What is stored stays; start the server and the extraction again to continue.",
            EXIT_SERVER,
        )
