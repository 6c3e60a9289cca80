"""Asks the box again whenever a field that an answer hangs on was changed, after a pause in the typing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from eagle3_console.errors import AgentSilent, ConsoleError
from eagle3_console.link.errors import LinkError
from eagle3_console.plan import Plan
from eagle3_console.setup.assess import Assessment
from eagle3_console.setup.draft import Draft, Seen, value_of
from eagle3_console.setup.propose import effective, propose
from eagle3_console.ui.setup.seam import SetupBox
from eagle3_remote.protocol import LaunchPlan, SmokeRate

PAUSE = 0.35
"""Seconds without a key before the box is asked."""
AGAIN = 3.0
"""Seconds before it is asked again after the link was lost."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "facts": ("python",),
    "box": ("port",),
    "model": ("model",),
    "data": ("data", "python"),
    "out": ("out", "model", "data"),
}
"""Question -> the fields that it hangs on."""


class Asking:
    """Keeps what the box told for the present draft.

    Args:
        box: who is asked.
        changed: called after every answer.
        first_port: looked for from here on where no port is typed.
    """

    def __init__(self, box: SetupBox, changed: Callable[[], None], first_port: int = Plan.port) -> None:
        self.seen = Seen()
        self.launch: LaunchPlan | None = None
        self.launch_fault = ""
        self._box = box
        self._changed = changed
        self._first_port = first_port
        self._asked: dict[str, tuple[str, ...]] = {}
        self._launch_for: Plan | None = None
        self._line_asked: asyncio.Task[LaunchPlan] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._troubles: dict[str, str] = {}

    def follow(self, draft: Draft) -> None:
        """Ask what this draft makes necessary; answers to what it no longer says are forgotten."""
        for question, fields in _NEEDS.items():
            if question == "data" and self.seen.facts is None:
                continue  # which Python reads tables is not known yet
            texts = tuple(self._text(question, name, draft) for name in fields)
            if self._asked.get(question) == texts:
                continue
            first = question not in self._asked
            self._asked[question] = texts
            if question not in ("facts", "box"):
                self.seen = _with(self.seen, question, None)
            if question == "model":
                self.seen = dataclasses.replace(self.seen, prefill_tps=0.0, smoke=SmokeRate())
            if question in ("facts", "box") or texts[0]:
                pause = 0.0 if first else PAUSE
                self._start(question, lambda question=question, texts=texts: self._ask(question, texts), pause)  # type: ignore[misc]
            else:
                self._stop(question)

    def follow_line(self, made: Assessment) -> None:
        """Ask for the launch line of a plan that is ready."""
        plan = made.plan if made.ready else None
        if plan == self._launch_for:
            return
        self._launch_for, self.launch, self.launch_fault = plan, None, ""
        if plan is None:
            self._stop("launch")
        else:
            self._start("launch", lambda: self._line(plan), 2 * PAUSE)

    def close(self) -> None:
        """Ask no more."""
        for name in list(self._tasks):
            self._stop(name)
        if self._line_asked is not None:
            self._line_asked.cancel()

    def waits_for_line(self) -> bool:
        """Whether the launch line was asked for and is not there yet."""
        return self._launch_for is not None and self.launch is None and not self.launch_fault

    def _text(self, question: str, name: str, draft: Draft) -> str:
        if (question, name) == ("data", "python"):  # the proposed one counts, too
            return effective(name, draft, propose(self.seen, draft))
        return draft.texts.get(name, "").strip()

    def _start(self, name: str, call: Callable[[], Awaitable[None]], pause: float) -> None:
        self._stop(name)
        self._tasks[name] = asyncio.create_task(self._patiently(name, call, pause), name=f"set-up: {name}")

    def _stop(self, name: str) -> None:
        self._troubles.pop(name, None)
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()

    async def _patiently(self, name: str, call: Callable[[], Awaitable[None]], pause: float) -> None:
        """After a pause; again and again while there is no link."""
        await asyncio.sleep(pause)
        again = True
        while again:
            again = False
            try:
                await call()
                self._troubles.pop(name, None)
            except (LinkError, AgentSilent) as lost:
                self._troubles[name] = f"{lost} Asking again every {AGAIN:.0f} s."
                again = True
            except ConsoleError as error:
                self._troubles[name] = str(error)
            trouble = next(iter(self._troubles.values()), "")
            self.seen = dataclasses.replace(self.seen, trouble=trouble)
            self._changed()
            if again:
                await asyncio.sleep(AGAIN)

    async def _ask(self, question: str, texts: tuple[str, ...]) -> None:
        answer = await self._question(question, texts)
        if self._asked.get(question) != texts:
            return  # typed on meanwhile
        self.seen = _with(self.seen, question, answer)
        if question == "model":
            self._changed()  # what the model is need not wait for how fast it was
            await self._rates(texts, answer.fact.path if answer is not None else texts[0])

    async def _rates(self, texts: tuple[str, ...], path: str) -> None:
        """How fast this model was: each counts without the other, and nothing is refused where neither can be had."""
        for name, ask in (("prefill_tps", self._box.measured), ("smoke", self._box.smoke)):
            with contextlib.suppress(ConsoleError):
                rate = await ask(path)
                if self._asked.get("model") == texts:
                    self.seen = _with(self.seen, name, rate)

    async def _question(self, question: str, texts: tuple[str, ...]) -> Any:
        match question:
            case "facts":
                return await self._box.facts(texts[0])
            case "box":
                return await self._box.box(self._port(texts[0]))
            case "model":
                return await self._box.model(texts[0])
            case "data":
                return await self._box.data(texts[0], texts[1])
            case _:
                return await self._box.out(*texts)

    def _port(self, text: str) -> int:
        """The one typed, where it is one."""
        try:
            return int(value_of("port", text))
        except ValueError:
            return self._first_port

    async def _line(self, plan: Plan) -> None:
        # The box loads SGLang for each, and does so to the end: one at a time, and of what was typed meanwhile the last.
        while self._line_asked is not None and not self._line_asked.done():
            await asyncio.wait([self._line_asked])
        if self._launch_for != plan:
            return
        self._line_asked = asyncio.create_task(self._box.launch(plan), name="set-up: the launch line")
        self._line_asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        try:
            line, fault = await asyncio.shield(self._line_asked), ""
        except (LinkError, AgentSilent):
            raise
        except ConsoleError as error:
            line, fault = None, str(error)
        if self._launch_for == plan:
            self.launch, self.launch_fault = line, fault


def _with(seen: Seen, question: str, answer: Any) -> Seen:
    return dataclasses.replace(seen, **{question: answer})
