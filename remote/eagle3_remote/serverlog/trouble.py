"""A small memory that finds the first real cause in a log of many processes.

A cause is believed more the nearer it is to the end of the server: an exception that a scheduler itself reports beats one
that was merely printed, a named cause beats an unknown exception, and both beat what follows from them: ranks that
lost their peer, exit codes, words that only say that a child is gone. Among equals the first wins. Nothing is invented:
where the traceback of a failing process is cut, that is what is said.
"""

from __future__ import annotations

import dataclasses
import functools
import re

from eagle3_remote.serverlog import causes
from eagle3_remote.serverlog.causes import CAUSES, CONSEQUENCE, PRIMARY, Cause
from eagle3_remote.serverlog.lines import Line
from eagle3_remote.serverlog.words import BENIGN, TROUBLES, Step, has_any

_MAX_TEXT = 600
_MAX_OPEN = 32
_TRACEBACK = "Traceback (most recent call last)"
_HEADS = ("hit an exception:", "Initialization failed. warmup error", "Capture cuda graph failed", "CUDA graph failed:")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Failure|Expired|NotFound|Unavailable)"
    r"(?:: .*|:)?$|^Exception(?:: .*)?$"
)
_ODD_EXCEPTION = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z]\w*(?::|$)")
"""One of a name that does not say what it is; believed only where a traceback waits for its last line."""
_STOPPED = re.compile(r"^(?:KeyboardInterrupt|asyncio\.exceptions\.CancelledError|SystemExit)\b")
_DURING = "During handling of the above exception"
_DIRECT = "The above exception was the direct cause"
_PROCESS = re.compile(r"^Process .*?scheduler_?((?:[A-Z_]+\d+_?)*)")
_NAMED_RANK = re.compile(r"\b[Rr]ank[ -]?(\d+)\b")
_SUBPROCESS = re.compile(r"\bSubprocess (\S+) \(pid=")
_DEAD = "scheduler is dead"
_GPU = re.compile(r"\bGPU (\d+) has a total capacity")

_UNKNOWN = 10 * CONSEQUENCE
_CUT = 25
_PLAIN = 15
"""Scores: weight times ten in a failing process; what was only printed counts less than a cut traceback of a scheduler,
and more than words that something is gone."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One cause."""

    kind: str
    line: str
    advice: str
    rank: str | None = None
    certain: bool = False
    score: int = 0


@dataclasses.dataclass(frozen=True)
class Open:
    """A traceback whose last line, the exception, has not come yet."""

    source: str
    rank: str
    kind: str
    """``fatal``: a process reports it on its way down; ``plain``: printed; ``benign``."""
    line: str = ""
    chained: bool = False
    """Announced as following from the one before: its head comes next."""
    during: bool = False
    """Raised while another exception was handled: it, and not the other, is what the process died of."""


@dataclasses.dataclass(frozen=True)
class Trouble:
    """What was seen so far."""

    dying: bool = False
    """Anything that ends a server."""
    failing: frozenset[str] = frozenset()
    """Ranks whose processes reported an exception."""
    open: tuple[Open, ...] = ()
    mixed: bool = False
    """Tracebacks of several ranks came at once: whose an exception is, only the line itself can tell."""
    closed: Open | None = None
    """The traceback that ended last: another one may follow from it."""
    announced: str = ""
    """What the line before said of a traceback that may follow: ``benign``, ``plain`` or a rank."""
    best: Finding | None = None
    printed: Finding | None = None
    """An exception outside a failing process, after which nothing went on."""
    health: Finding | None = None
    unhealthy: int = 0
    """Health answers of 503 in a row."""
    stopped: bool = False
    """The server was told to end: what processes say from then on follows from it."""

    def progress(self, *, ready: bool = False) -> Trouble:
        """The server went on: what was printed before was not its end."""
        if self.printed is None and self.health is None and not self.unhealthy and not (ready and not self.dying):
            return self
        now = dataclasses.replace(self, printed=None, health=None, unhealthy=0)
        if ready and not self.dying:
            return dataclasses.replace(now, best=None, open=(), closed=None, failing=frozenset(), mixed=False)
        return now

    def health_answer(self, status: int, line: str, step: Step) -> Trouble:
        """One answer to a health request; before the server is ready 503 is the right one."""
        if status == 200:
            return dataclasses.replace(self, health=None, unhealthy=0) if self.health or self.unhealthy else self
        if status != 503 or step not in (Step.READY, Step.SERVING):
            return self
        found = self.health or (Finding("health_503", line[:_MAX_TEXT], causes.HEALTH) if self.unhealthy >= 2 else None)
        return dataclasses.replace(self, health=found, unhealthy=min(self.unhealthy + 1, 3))

    def see(self, line: Line, step: Step) -> Trouble:
        """One record or one line of its continuation."""
        message = line.message
        if not message or message.startswith(("  File ", "    ")):
            return self
        head = _TRACEBACK in message
        announced, now = self.announced, self
        if announced and (head or not message.startswith((" ", "\t"))):
            now = dataclasses.replace(now, announced="")
        if has_any(message, BENIGN):
            return now._head(line, "benign") if head else dataclasses.replace(now, announced="benign")
        if line.stamped and now.closed is not None and now.closed.source == line.source:
            now = dataclasses.replace(now, closed=None)
        if _DURING in message or _DIRECT in message:
            if now.closed is None:
                return now
            again = dataclasses.replace(now.closed, chained=True, during=_DURING in message)
            return dataclasses.replace(now, open=(*now.open, again)[-_MAX_OPEN:], closed=None)
        fatal = has_any(message, _HEADS)
        if head:
            return now._head(line, "fatal" if fatal else announced or "plain")
        inside = any(one.source == line.source for one in now.open)
        if not line.stamped and (_EXCEPTION.match(message) or (inside and _ODD_EXCEPTION.match(message))):
            return now._exception(line, step)
        if (process := _PROCESS.match(message)) and not line.stamped:
            return dataclasses.replace(now, announced=process[1].replace("_", " ").strip() or "plain")
        if line.stamped and step in (Step.READY, Step.SERVING) and message.startswith("Health check failed"):
            return dataclasses.replace(now, health=Finding("health_503", message[:_MAX_TEXT], causes.HEALTH))
        if (not fatal and not has_any(message, TROUBLES)) or (now.open and message.startswith("  ")):
            return now
        return now._line(line, step, fatal)

    def _head(self, line: Line, kind: str) -> Trouble:
        known = [one for one in self.open if one.source == line.source]
        rank = line.rank or _of_source(line.source)
        if kind not in ("fatal", "plain", "benign"):
            rank, kind = kind, "plain"
        if kind == "plain" and not line.stamped and known and known[-1].chained:
            rest = tuple(one for one in self.open if one is not known[-1])
            return dataclasses.replace(self, open=(*rest, dataclasses.replace(known[-1], chained=False)))
        one = Open(line.source, rank, kind, line.message[:_MAX_TEXT])
        failing = self.failing | {rank} if kind == "fatal" and len(self.failing) < _MAX_OPEN else self.failing
        dying = self.dying or kind == "fatal"
        return dataclasses.replace(self, open=(*self.open, one)[-_MAX_OPEN:], failing=failing, dying=dying)

    def _exception(self, line: Line, step: Step) -> Trouble:
        mine = [one for one in self.open if one.source == line.source]
        if not mine:
            return self._printed(line, step)
        one = _owner(mine, line.message)
        rest = tuple(other for other in self.open if other is not one)
        fatal = {other.rank for other in mine if other.kind == "fatal"}
        mixed = one.kind == "fatal" and (self.mixed or len(fatal) > 1)
        now = dataclasses.replace(self, open=rest, closed=one, mixed=mixed and bool(fatal))
        if one.kind == "benign":
            return now
        message = line.message.strip()
        if _STOPPED.match(message):
            return dataclasses.replace(now, stopped=True)
        if one.kind == "plain":
            return now._printed(line, step, one)
        cause = _cause(message, exception=True)
        if cause is None and "warmup error" in one.line:
            cause = _cause(one.line, exception=False)
        rank = one.rank or _rank(line)
        if mixed:
            gpu = _GPU.search(message)
            rank = next((other for other in sorted(self.failing) if gpu and re.search(rf"\bTP{gpu[1]}\b", other)), "")
        return now._weigh(
            cause, message, rank, step, score=_UNKNOWN, certain=not mixed or bool(rank), replaces=one.during
        )

    def _printed(self, line: Line, step: Step, one: Open | None = None) -> Trouble:
        """An exception of no process that said it is going down."""
        message = line.message.strip()
        cause = _cause(message, exception=True)
        if cause is not None and cause.fatal:
            return self._weigh(cause, message, _rank(line), step, score=0, certain=True)
        kind = "launch_exception" if cause is None else cause.kind
        if cause is not None and cause.weight < PRIMARY:
            score = _PLAIN - 2
        else:
            score = _PLAIN if cause is not None else _PLAIN - 1
        rank = (one.rank if one is not None else "") or _rank(line) or None
        advice = causes.UNKNOWN_EXCEPTION if cause is None else causes.advice_for(cause, message, step)
        found = Finding(kind, message[:_MAX_TEXT], advice, rank, score=score)
        now = self
        if self.dying:
            # Other processes' last words come after the first one's death.
            return now._keep(dataclasses.replace(found, kind="scheduler_exception" if cause is None else kind))
        if self.printed is None or found.score > self.printed.score or (one is not None and one.during):
            now = dataclasses.replace(now, printed=found)
        return now._keep(found)

    def _line(self, line: Line, step: Step, fatal: bool) -> Trouble:
        cause = _cause(line.message, exception=fatal)
        if cause is None:
            if not fatal:
                return self
            said = line.message.partition("exception:")[2].strip() or line.message.strip()
            return self._weigh(None, said, _rank(line), step, score=_UNKNOWN, certain=True)
        if self.stopped and cause.weight < PRIMARY:
            return self
        if self._refines(line, cause):
            now = dataclasses.replace(self, best=None)
            return now._weigh(
                cause, line.message.strip(), self.best.rank or "" if self.best else "", step, score=0, certain=True
            )
        counts = fatal or cause.fatal
        if not counts and line.stamped and step >= Step.READY and not self.dying:
            return self  # a running server reports such lines of requests that fail, and goes on
        if not counts:
            found = Finding(
                cause.kind,
                line.message.strip()[:_MAX_TEXT],
                causes.advice_for(cause, line.message, step),
                _rank(line) or None,
                score=_PLAIN - (cause.weight < PRIMARY),
            )
            printed = self.printed if self.printed is not None and self.printed.score >= found.score else found
            return dataclasses.replace(self, printed=printed)._keep(found)
        sure = cause.weight >= CONSEQUENCE
        rank = _rank(line)
        if not rank and line.message.startswith("Exit code:") and self.best is not None and _DEAD in self.best.line:
            rank = self.best.rank or ""  # 0.5.9 and older say who it was on the line before
        return self._weigh(cause, line.message.strip(), rank, step, score=0, certain=sure)

    def _refines(self, line: Line, cause: Cause) -> bool:
        """NCCL says on the lines after its exception what failed inside it."""
        return (
            not line.stamped
            and self.closed is not None
            and self.closed.source == line.source
            and self.best is not None
            and self.best.kind == "nccl_init"
            and cause.weight == PRIMARY
            and cause.kind != "nccl_init"
        )

    def _weigh(
        self,
        cause: Cause | None,
        message: str,
        rank: str,
        step: Step,
        *,
        score: int,
        certain: bool,
        replaces: bool = False,
    ) -> Trouble:
        now = dataclasses.replace(self, dying=True)
        if cause is None:
            found = Finding(
                "scheduler_exception", message[:_MAX_TEXT], causes.UNKNOWN_EXCEPTION, rank or None, certain, score
            )
        else:
            advice = causes.advice_for(cause, message, step)
            found = Finding(cause.kind, message[:_MAX_TEXT], advice, rank or None, certain, 10 * cause.weight)
        if self.stopped and found.score < _UNKNOWN:
            return now
        if found.kind == "host_oom_kill" and found.score < _UNKNOWN and self.best and _DEAD not in self.best.line:
            # A parent kills the others with the same signal once one has failed.
            found = dataclasses.replace(found, score=0)
        if replaces and self.best is not None and self.best.score == found.score == _UNKNOWN:
            return dataclasses.replace(now, best=found)
        return now._keep(found)

    def _keep(self, found: Finding) -> Trouble:
        if self.best is not None and found.score <= self.best.score:
            return self
        return dataclasses.replace(self, best=found)

    def verdict(self, *, ended: bool, dead: bool, step: Step) -> Finding | None:
        """The cause, once the server is known to be going down.

        Args:
            ended: there will be no more of this log.
            dead: and its process is known to be gone, without being told to.
        """
        if self.dying:
            best = self.best
            cut = next((one for one in self.open if one.kind == "fatal"), None)
            if cut is not None and ended and (best is None or best.score < _CUT):
                words = cut.line.strip()
                return Finding("traceback_cut", words, causes.TRACEBACK_CUT, cut.rank or None)
            return best
        if not ended or self.stopped:
            return None
        if self.printed is not None:
            if step >= Step.READY and not dead and self.printed.kind == "launch_exception":
                return self.health
            return self.printed
        plain = next((one for one in self.open if one.kind == "plain"), None)
        if plain is not None and step < Step.READY:
            return Finding("traceback_cut", plain.line.strip(), causes.TRACEBACK_CUT, plain.rank or None)
        return self.health


def refusal(reason: str) -> Finding:
    """The patch itself ended the server."""
    advice = "The patch could not be sure of right data and ended the server: change what it names and start again."
    return Finding("patch_refused", reason, advice, certain=True)


@functools.lru_cache(maxsize=256)
def _cause(message: str, *, exception: bool) -> Cause | None:
    return next((one for one in CAUSES if (exception or one.anywhere) and one.pattern.search(message)), None)


def _owner(mine: list[Open], message: str) -> Open:
    """Whose exception it is: of the traceback opened last, unless the line names a GPU whose rank has one open."""
    gpu = _GPU.search(message)
    for one in mine:
        if gpu is not None and re.search(rf"\bTP{gpu[1]}\b", one.rank):
            return one
    kinds = [one for one in mine if one.kind != "benign"]
    return mine[-1] if mine[-1].kind == "benign" or not kinds else kinds[-1]


def _of_source(source: str) -> str:
    found = re.search(r"\brank(\d+)$", source)
    return f"rank {found[1]}" if found else ""


def _rank(line: Line) -> str:
    if line.rank:
        return line.rank
    if found := _SUBPROCESS.search(line.message):
        return found[1]
    if found := _NAMED_RANK.search(line.message):
        return f"rank {found[1]}"
    return _of_source(line.source)
