"""Why nothing is sent though there is something to send: a person paused, or the run paused itself after failures."""

from __future__ import annotations

from collections.abc import Sequence

from eagle3_remote.extract import control
from eagle3_remote.extract.dispatch import Next
from eagle3_remote.extract.lane import Lane
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Failures
from eagle3_remote.extract.progress import say


class Steering:
    """What a person wants, and what the run wants of a person."""

    def __init__(self, plan: Plan, lanes: Sequence[Lane], failures: Failures, run_dir: str) -> None:
        self._plan, self._lanes, self._failures, self._run_dir = plan, lanes, failures, run_dir
        self._wishes = control.Wishes()
        self._trouble: str | None = None
        """Why the run has paused by itself until a person says go on."""

    def pause(self, why: str) -> None:
        """The run pauses by itself; the first reason counts."""
        self._trouble = self._trouble or why

    def hear(self) -> None:
        """What a person wants by now."""
        wishes, before = control.read(self._run_dir), self._wishes
        if wishes == before:
            return
        self._wishes = wishes
        if wishes.resumes != before.resumes and self._trouble is not None:
            self._trouble = None
            self._failures.stored()
        tokens = min(wishes.tokens_in_flight or self._plan.token_budget, self._plan.server.max_total_tokens)
        if tokens != self._lanes[0].budget.most_tokens:
            say(f"From now on {tokens} tokens may be in flight at each server.")
            for lane in self._lanes:
                lane.budget.most_tokens = tokens

    def held(self, busy: bool) -> Next | None:
        """Nothing is sent; `busy`: samples are under way. `None`: go on."""
        if self._trouble is not None:
            return Next(wait=True, sentence=self._trouble, held="failures")
        if not self._wishes.paused:
            return None
        if busy:
            sentence = "Pausing on request: what is in flight is finished, nothing more is sent."
            return Next(wait=True, sentence=sentence, held="request")
        return Next(wait=True, sentence="Paused on request.", held="request")
