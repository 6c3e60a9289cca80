"""What a folded log means, as the message that consoles get."""

from __future__ import annotations

import calendar
import re
import time

from eagle3_remote.protocol import Phase, PhaseSpan, ServerLog
from eagle3_remote.serverlog.fold import whole
from eagle3_remote.serverlog.state import LogState
from eagle3_remote.serverlog.trouble import Finding, refusal
from eagle3_remote.serverlog.words import PHASES, Step


def view(state: LogState, *, origin: float | None = None, ended: bool = False) -> ServerLog:
    """The log as a message.

    Args:
        origin: when the job started, in the clock the log prints (see `local_seconds`); `None`: the first stamp.
        ended: the process is gone, so that an error which might have been harmless is the cause.
    """
    now = whole(state)
    start = now.first_stamp if origin is None else origin
    found = verdict(now, ended=ended, dead=ended)
    shards = now.shards or (None, None, None, None, "")
    sizes = now.sizes or (None, None, None)
    waiting = tuple(in_order(now.loading)) if now.loaded and now.step is Step.LOAD_WEIGHTS else ()
    return ServerLog(
        phase=Phase.FAILED if found is not None else PHASES[now.step],
        spans=_spans(now, start),
        shards_done=shards[0],
        shards_total=shards[1],
        shard_rate=shards[2],
        shard_eta=shards[3],
        slowest_rank=slowest(now),
        waiting_ranks=waiting,
        model_class=now.model_class,
        max_total_tokens=sizes[0],
        chunked_prefill_size=sizes[1],
        context_len=sizes[2],
        markers=now.markers,
        checked=now.checked,
        refused=now.refused,
        prefill_tps=now.prefill_tps,
        running_requests=now.running,
        queued_requests=now.queued,
        cached_tokens=now.cached,
        failure=None if found is None else found.kind,
        root_cause=None if found is None else found.line,
        failed_rank=None if found is None else found.rank,
        certain=found is not None and found.certain,
        advice=None if found is None else found.advice,
        last_line=now.last_line,
    )


def verdict(now: LogState, *, ended: bool, dead: bool = False) -> Finding | None:
    """Why the server fails or failed; `None`: as far as the log says, it does not.

    Args:
        ended: there will be no more of this log.
        dead: and its process is known to be gone, without being told to.
    """
    if now.refused is not None:
        return refusal(now.refused)
    return now.trouble.verdict(ended=ended, dead=dead, step=now.step)


def slowest(now: LogState) -> str | None:
    """The rank that the others wait for while weights are loaded; afterwards the one that took longest."""
    if now.step <= Step.LOAD_WEIGHTS and now.loaded and now.loading:
        return next(iter(in_order(now.loading)), None)
    return None if now.slowest is None else now.slowest[0]


def in_order(ranks: frozenset[str]) -> list[str]:
    """Ranks as a person counts them: TP2 before TP10."""
    return sorted(
        (rank for rank in ranks if rank),
        key=lambda rank: [(int(part[:9]) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", rank)],
    )


def local_seconds(clock: float) -> float:
    """Unix seconds as the box's wall clock shows them, comparable with the stamps of a log."""
    return float(calendar.timegm(time.localtime(clock))) + clock % 1.0


def _spans(now: LogState, start: float | None) -> tuple[PhaseSpan, ...]:
    """Each phase once, when it was first entered; finer steps of one phase count as one."""
    spans: list[PhaseSpan] = []
    for step, at in now.spans:
        phase = PHASES[step]
        if all(one.phase is not phase for one in spans):
            since = None if at is None or start is None or at < start else at - start
            spans.append(PhaseSpan(phase, since, at))
    return tuple(spans)
