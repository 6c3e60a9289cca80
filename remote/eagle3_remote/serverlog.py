"""What an SGLang server's log says, folded from its bytes by a pure function.

``feed(state, chunk)`` takes bytes in any pieces; folding in two pieces equals folding at once. ``view(state)`` also
reads the unterminated last piece, because SGLang >= 0.5.10 writes its whole shard bar as one line of ``\\r`` frames.

Memory is bounded whatever comes.
"""

from __future__ import annotations

import calendar
import dataclasses
import json
import re
import time
from typing import Any

from eagle3_patch.layout import MARKER_READY, MARKER_REFUSED
from eagle3_remote import logfailure
from eagle3_remote.logwords import (
    ACCESS,
    BAR,
    BATCH,
    CONTROL,
    CSI,
    FRAME,
    GRAPH,
    PAIR,
    RANK,
    RAY,
    SIZES,
    STAMP,
    TYPE,
    WORDS,
)
from eagle3_remote.protocol import PatchMarker, Phase, PhaseSpan, ServerLog, decode

MAX_LINE = 64 * 1024
"""Bytes of one line that are looked at; the rest of a longer one is skipped."""
_MAX_RANKS = 256
_MAX_SPANS = 64
_MAX_TEXT = 600


@dataclasses.dataclass(frozen=True)
class LogState:
    """Everything the fold remembers. Frozen: `feed` gives a new one."""

    tail: bytes = b""
    skipping: bool = False
    """Inside the rest of a line that was longer than `MAX_LINE`."""
    phase: Phase = Phase.SPAWNING
    spans: tuple[tuple[Phase, float | None], ...] = ((Phase.SPAWNING, None),)
    first_stamp: float | None = None
    last_stamp: float | None = None
    """Seconds of the box's wall clock as printed, time zone unknown."""
    begun: frozenset[str] = frozenset()
    """Ranks that began to load weights, by their prefix."""
    loaded: frozenset[str] = frozenset()
    shards: tuple[int, int, str | None, str | None] | None = None
    model_class: str | None = None
    sizes: tuple[int, int | None, int] | None = None
    markers: tuple[PatchMarker, ...] = ()
    refused: str | None = None
    prefill_tps: float | None = None
    running: int | None = None
    queued: int | None = None
    cached: int = 0
    active: bool = False
    """The last line that was not an access line reports a batch."""
    trouble: logfailure.Trouble = dataclasses.field(default_factory=logfailure.Trouble)
    last_line: str = ""


def feed(state: LogState, chunk: bytes) -> LogState:
    """Fold `chunk` in. Never raises, whatever the bytes are."""
    first, *rest = chunk.replace(b"\r", b"\n").split(b"\n")
    fold = _Fold(state)
    fold.append(first)
    if rest:
        fold.end_of_line()
        for piece in rest[:-1]:
            if piece:
                fold.line(piece[:MAX_LINE])
        fold.append(rest[-1])
    return fold.state()


def view(state: LogState, *, origin: float | None = None, ended: bool = False) -> ServerLog:
    """The log as a message.

    Args:
        origin: when the job started, in the clock the log prints (see `local_seconds`); `None`: the first stamp.
        ended: the process is gone, so that an error which might have been harmless is the cause.
    """
    fold = _Fold(state)
    if not fold.skipping and fold.tail:
        fold.line(bytes(fold.tail))
    now = fold.state()
    start = now.first_stamp if origin is None else origin
    phase = now.phase
    verdict = now.trouble.verdict(ended=ended)
    if now.refused is not None:
        verdict = logfailure.refusal(now.refused)
    if verdict is not None:
        phase = Phase.FAILED
    shards = now.shards or (None, None, None, None)
    sizes = now.sizes or (None, None, None)
    return ServerLog(
        phase=phase,
        spans=tuple(
            PhaseSpan(one, None if at is None or start is None or at < start else at - start) for one, at in now.spans
        ),
        shards_done=shards[0],
        shards_total=shards[1],
        shard_rate=shards[2],
        shard_eta=shards[3],
        model_class=now.model_class,
        max_total_tokens=sizes[0],
        chunked_prefill_size=sizes[1],
        context_len=sizes[2],
        markers=now.markers,
        refused=now.refused,
        prefill_tps=now.prefill_tps,
        running_requests=now.running,
        queued_requests=now.queued,
        cached_tokens=now.cached,
        failure=None if verdict is None else verdict.kind,
        root_cause=None if verdict is None else verdict.line,
        advice=None if verdict is None else verdict.advice,
        last_line=now.last_line,
    )


def local_seconds(clock: float) -> float:
    """Unix seconds as the box's wall clock shows them, comparable with the stamps of a log."""
    return float(calendar.timegm(time.localtime(clock))) + clock % 1.0


def clean(raw: bytes) -> str:
    """One line without control sequences, NULs and other controls. Invalid UTF-8 becomes U+FFFD."""
    text = raw.replace(b"\0", b"").decode("utf-8", "replace")
    return CONTROL.sub("", CSI.sub("", text)).strip()


class _Fold:
    """A `LogState` opened for writing."""

    def __init__(self, state: LogState) -> None:
        self._old = state
        self._new: dict[str, Any] = {}
        self.tail = bytearray(state.tail)
        self.skipping = state.skipping
        self._stamp_text = ""
        self._last_raw: bytes | None = None

    def state(self) -> LogState:
        if self._last_raw is not None:
            self._new["last_line"] = clean(self._last_raw)[:_MAX_TEXT]
            self._last_raw = None
        return dataclasses.replace(self._old, tail=bytes(self.tail), skipping=self.skipping, **self._new)

    def get(self, name: str) -> Any:
        return self._new[name] if name in self._new else getattr(self._old, name)

    def append(self, piece: bytes) -> None:
        if self.skipping or not piece:
            return
        room = MAX_LINE - len(self.tail)
        self.tail += piece[:room]
        if len(piece) > room:
            self.line(bytes(self.tail))
            self.tail.clear()
            self.skipping = True

    def end_of_line(self) -> None:
        if not self.skipping and self.tail:
            self.line(bytes(self.tail))
        self.tail.clear()
        self.skipping = False

    def line(self, raw: bytes) -> None:
        framed = FRAME[0] in raw or FRAME[1] in raw
        # Nearly all lines of a long run are these two kinds: they are told apart before anything is decoded.
        if not framed and self._place() >= RANK[Phase.READY]:
            if ACCESS.fullmatch(raw):
                return
            if BATCH.fullmatch(raw):
                self._batch(raw)
                self._last_raw = raw
                return
        text = clean(raw)
        if framed and (bar := BAR.search(text)):
            self._bar(bar)
            # A log line may be glued to a frame: the frame has no newline, and another process writes in between.
            text = text[: bar.start()].strip() + text[bar.end() :].strip()
        if text:
            self._text(RAY.sub("", text))

    def _bar(self, bar: re.Match[str]) -> None:
        desc, done, total = bar["desc"], int(bar["done"]), int(bar["total"])
        self._say(bar[0])
        if "Capturing" in desc or "Compiling" in desc:
            self._enter(Phase.CAPTURING)
            return
        rate = (bar["rate"] or "").strip()
        eta = (bar["eta"] or "").strip()
        shown = (rate if rate and "?" not in rate else None, eta if eta and "?" not in eta else None)
        self._new["shards"] = (done, total, *shown)
        if self._place() <= RANK[Phase.FINISHING_WEIGHTS]:
            self._enter(Phase.FINISHING_WEIGHTS if done >= total else Phase.LOADING_WEIGHTS, back=True)

    def _text(self, text: str) -> None:
        stamp = STAMP.search(text)
        rank, message = "", text
        if stamp is not None:
            rank, message = stamp["rank"].strip(), text[stamp.end() :]
            if stamp["date"]:
                self._clock(stamp["date"], stamp["time"])
        if message.startswith("INFO: ") and " HTTP/1." in message:
            if '"POST /generate' in message and self._place() == RANK[Phase.HTTP_UP]:
                self._enter(Phase.WARMING_UP)
            return
        self._say(text)
        if message.startswith(("Prefill batch", "Decode batch")):
            self._batch(message.encode("utf-8", "replace"))
            return
        self._new["active"] = False
        if MARKER_READY in message:
            self._marker(message.partition(MARKER_READY)[2])
        elif MARKER_REFUSED in message:
            self._refusal(message.partition(MARKER_REFUSED)[2])
        else:
            self._stage(rank, message)
            self._new["trouble"] = self.get("trouble").see(text, message, stamp is not None, self.get("phase"))

    def _say(self, text: str) -> None:
        self._last_raw = None
        self._new["last_line"] = text[:_MAX_TEXT]

    def _clock(self, date: str, clock: str) -> None:
        if self._stamp_text == date + clock:
            return
        self._stamp_text = date + clock
        try:
            seconds = float(calendar.timegm(time.strptime(f"{date} {clock}", "%Y-%m-%d %H:%M:%S")))
        except (ValueError, OverflowError):
            return
        if self.get("first_stamp") is None:
            self._new["first_stamp"] = seconds
        self._new["last_stamp"] = seconds

    def _stage(self, rank: str, message: str) -> None:
        if message.startswith("server_args="):
            self._restart()
            self._enter(Phase.INITIALISING)
            return
        if message.startswith("Load weight begin"):
            self._new["begun"] = _with(self.get("begun"), rank)
        elif message.startswith("Load weight end"):
            self._new["loaded"] = _with(self.get("loaded"), rank)
            if kind := TYPE.search(message):
                self._new["model_class"] = kind[1]
            if self.get("loaded") >= self.get("begun"):
                self._enter(Phase.FINISHING_WEIGHTS)
            return
        sizes = SIZES.search(message) if "max_total_num_tokens=" in message else None
        if sizes is not None:
            chunk = None if sizes[2] == "None" else int(sizes[2])
            self._new["sizes"] = (int(sizes[1]), chunk, int(sizes[3]))
        if GRAPH.search(message):
            self._enter(Phase.CAPTURING)
            return
        for words, phase in WORDS:
            if words in message:
                self._enter(phase)
                return

    def _batch(self, raw: bytes) -> None:
        """``key: value`` pairs, separated by ``, ``; which there are, and in which order, differs by version."""
        values = dict(PAIR.findall(raw))
        self._new["active"] = True
        self._new["running"] = _int(values.get(b"#running-req"), self.get("running"))
        self._new["queued"] = _int(values.get(b"#queue-req"), self.get("queued"))
        if b"Prefill batch" not in raw:
            return
        self._new["cached"] = max(self.get("cached"), _int(values.get(b"#cached-token"), 0) or 0)
        self._new["prefill_tps"] = _float(values.get(b"input throughput (token/s)"), self.get("prefill_tps"))
        if self._place() == RANK[Phase.HTTP_UP]:
            self._enter(Phase.WARMING_UP)

    def _marker(self, text: str) -> None:
        try:
            # Whatever follows the object was glued to it by another process.
            marker = decode(PatchMarker, json.JSONDecoder().raw_decode(text.lstrip())[0])
        except (ValueError, RecursionError):
            return
        others = [one for one in self.get("markers") if one.tp_rank != marker.tp_rank]
        self._new["markers"] = tuple(sorted([*others, marker], key=lambda one: one.tp_rank))[:_MAX_RANKS]

    def _refusal(self, text: str) -> None:
        if self.get("refused") is not None:
            return
        try:
            reason = json.JSONDecoder().raw_decode(text.lstrip())[0]["reason"]
        except (ValueError, TypeError, KeyError, RecursionError):
            reason = text
        self._new["refused"] = str(reason)[:_MAX_TEXT]

    def _restart(self) -> None:
        """A second ``server_args=`` means that another server writes into the same file: begin anew."""
        if self._place() <= RANK[Phase.SPAWNING] and not self.get("trouble").seen:
            return
        fresh = LogState(first_stamp=self.get("last_stamp"), last_stamp=self.get("last_stamp"))
        for field in dataclasses.fields(LogState):
            if field.name not in ("tail", "skipping", "last_line"):
                self._new[field.name] = getattr(fresh, field.name)

    def _place(self) -> int:
        return RANK[self.get("phase")]

    def _enter(self, phase: Phase, *, back: bool = False) -> None:
        """Phases go forward; only the bar of a slower rank may lead back (`back`)."""
        now = self.get("phase")
        if phase is now or (RANK[phase] < RANK[now] and not back):
            return
        self._new["phase"] = phase
        if phase is Phase.READY and not self.get("trouble").seen:
            self._new["trouble"] = logfailure.Trouble()  # it got ready in spite of what was logged before
        spans = self.get("spans")
        if all(one is not phase for one, _ in spans) and len(spans) < _MAX_SPANS:
            self._new["spans"] = (*spans, (phase, self.get("last_stamp")))


def _with(ranks: frozenset[str], rank: str) -> frozenset[str]:
    return ranks if len(ranks) >= _MAX_RANKS else ranks | {rank}


def _int(text: bytes | None, default: int | None) -> int | None:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def _float(text: bytes | None, default: float | None) -> float | None:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default
