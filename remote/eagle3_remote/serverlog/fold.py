"""The fold: ``feed(state, chunk)`` takes bytes in any pieces, and folding in two pieces equals folding at once.

SGLang 0.5.10 and newer write a whole shard bar as one line of ``\\r`` frames, so ``\\r`` ends a line here, and the
unterminated last one is read as well when the state is looked at. Memory is bounded whatever comes. Lines that say
nothing are passed over in bulk; see `lines.telling`.
"""

from __future__ import annotations

import calendar
import dataclasses
import json
import re
import time
from typing import Any

from eagle3_patch.layout import MARKER_CHECKED, MARKER_READY, MARKER_REFUSED
from eagle3_remote.protocol import PatchMarker, decode
from eagle3_remote.serverlog.lines import Line, clean, quiet_rank, split, telling, unwrap
from eagle3_remote.serverlog.trouble import Trouble
from eagle3_remote.serverlog.words import (
    AT_WORK,
    BAR,
    BAR_ENDS,
    BARE_BAR,
    CACHED,
    CAPTURE,
    DATE,
    ELAPSED,
    HEALTH,
    KEY,
    LOAD_BEGIN,
    LOAD_END,
    SIZES,
    TPS,
    TYPE,
    WORDS,
    Step,
)

MAX_LINE = 64 * 1024
"""Bytes of one line that are looked at; the rest of a longer one is skipped."""
_HALF = MAX_LINE // 2
_MAX_RANKS = 256
_MAX_TEXT = 600
_NUMBER = re.compile(rb"\d{1,15}(?:\.\d{1,15})?")
_TP = re.compile(r"^(.*?)\b([A-Z_]*TP)(\d+)\b")
_NAMED = (re.compile(r"\bRank (\d+) scheduler\b"), re.compile(r"\bSubprocess (scheduler\w*) \(pid="))


@dataclasses.dataclass(frozen=True)
class LogState:
    """Everything the fold remembers. Frozen: `feed` gives a new one."""

    tail: bytes = b""
    step: Step = Step.UNKNOWN
    spans: tuple[tuple[Step, float | None], ...] = ((Step.UNKNOWN, None),)
    first_stamp: float | None = None
    last_stamp: float | None = None
    """Seconds of the box's wall clock as printed, time zone unknown."""
    ranks: frozenset[str] = frozenset()
    """Every rank that the log names, as it names it."""
    sources: frozenset[str] = frozenset()
    """Where a ``server_args=`` line came from: a second one from there is another server's."""
    loading: frozenset[str] = frozenset()
    """Ranks that began to load weights and have not ended."""
    loaded: frozenset[str] = frozenset()
    begins: bool = False
    """The log has the beginning of a load, so that `loading` can be relied on."""
    slowest: tuple[str, float] | None = None
    """Of the ranks that have loaded: the one that took longest, and its seconds."""
    capturing: frozenset[str] = frozenset()
    shards: tuple[int, int, str | None, str | None, str] | None = None
    """Done, total, rate, time left, and what the bar counts."""
    captured: tuple[int, int] | None = None
    model_class: str | None = None
    sizes: tuple[int, int | None, int] | None = None
    markers: tuple[PatchMarker, ...] = ()
    checked: bool = False
    refused: str | None = None
    prefill_tps: float | None = None
    running: int | None = None
    queued: int | None = None
    cached: int = 0
    active: bool = False
    """A batch is the last that it was heard to do."""
    trouble: Trouble = dataclasses.field(default_factory=Trouble)
    last_line: str = ""


def feed(state: LogState, chunk: bytes) -> LogState:
    """Fold `chunk` in. Never raises, whatever the bytes are."""
    if not chunk:
        return state
    data = chunk.translate(None, b"\0") if b"\0" in chunk else chunk
    body, newline, rest = data.replace(b"\r", b"\n").rpartition(b"\n")
    if not newline:
        return dataclasses.replace(state, tail=(state.tail + rest[:MAX_LINE])[:MAX_LINE])
    fold = Fold(state)
    first, newline, body = body.partition(b"\n")
    fold.line((state.tail + first)[:MAX_LINE])
    if newline:
        fold.lines(body)
    fold.tail = rest[:MAX_LINE]
    return fold.state()


def whole(state: LogState) -> LogState:
    """`state` as if its unterminated last line had ended here."""
    if not state.tail:
        return state
    fold = Fold(state)
    fold.line(state.tail)
    fold.tail = state.tail
    return fold.state()


class Fold:
    """A `LogState` opened for writing."""

    def __init__(self, state: LogState) -> None:
        self._old = state
        self._new: dict[str, Any] = {}
        self.tail = b""
        self._stamp_text = ""

    def state(self) -> LogState:
        return dataclasses.replace(self._old, tail=self.tail, **self._new)

    def get(self, name: str) -> Any:
        return self._new[name] if name in self._new else getattr(self._old, name)

    def lines(self, body: bytes) -> None:
        """Complete lines, without the last newline."""
        if any(body.find(b"\n", place, place + _HALF) < 0 for place in range(0, len(body) - _HALF, _HALF)):
            body = b"\n".join(line[:MAX_LINE] for line in body.split(b"\n"))
        self._run(b"\n" + body)

    def line(self, raw: bytes) -> None:
        """One line, of at most `MAX_LINE` bytes."""
        if raw:
            self._run(b"\n" + raw)

    def _run(self, data: bytes) -> None:
        """`data` begins with a newline."""
        place = 0
        glued = data.count(b"[20") != data.count(b"\n[20")
        for found in telling(self.get("ranks"), glued).finditer(data):
            start = found.start()
            if start > place:
                self._quiet(data, place, start)
            end = data.find(b"\n", start + 1)
            place = len(data) if end < 0 else end
            self._telling(data[start + 1 : place])
        if len(data) > place:
            self._quiet(data, place, len(data))
        self._last_words(data)

    def _last_words(self, data: bytes) -> None:
        """The last line that has text in it and is not about an HTTP request."""
        end = len(data)
        while end > 0:
            start = data.rfind(b"\n", 0, end)
            if end > start + 1 and data.find(b" HTTP/1.", start, end) < 0:
                text = clean(unwrap(data[start + 1 : end])[-1]).strip()
                if text:
                    self._new["last_line"] = text[:_MAX_TEXT]
                    return
            end = start

    def _quiet(self, data: bytes, start: int, end: int) -> None:
        """Lines of which only the last batch and the last frame of a bar count."""
        bar = data.rfind(b"% Completed |", start, end)
        if bar >= 0 and (frame := BAR.search(clean(_line_at(data, bar, start, end)))):
            self._bar(frame)
        self._batches(data, start, end)
        trouble = self.get("trouble")
        if (trouble.unhealthy or trouble.health) and data.find(b'"GET /health', start, end) >= 0:
            self._new["trouble"] = trouble.health_answer(200, "", self.get("step"))

    def _batches(self, data: bytes, start: int, end: int) -> None:
        """``key: value`` pairs; which there are, and in which order, differs by version. The last of each counts."""
        for name, key in (("running", b"#running-req: "), ("queued", b"#queue-req: "), ("prefill_tps", TPS)):
            value = _last_number(data, key, start, end)
            if value is not None:
                self._new[name] = value if name == "prefill_tps" else int(value)
        if cached := CACHED.findall(data, start, end):
            self._new["cached"] = max(self.get("cached"), *(int(number[:18]) for number in cached))
        places = [
            place for words in (b"Prefill batch", b"Decode batch") if (place := data.find(words, start, end)) >= 0
        ]
        if not places:
            return
        self._new["active"] = True
        self._progress()
        if self.get("step") is Step.HTTP_UP:
            stamp = DATE.search(_line_at(data, min(places), start, end))
            if stamp is not None:
                self._clock(stamp[1].decode(), stamp[2].decode())
            self._enter(Step.WARMUP)
        elif self.get("step") is Step.READY and AT_WORK.search(data, start, end):
            self._enter(Step.SERVING)

    def _telling(self, raw: bytes) -> None:
        rank = quiet_rank(raw)
        if rank is not None:
            self._rank(rank)
            self._quiet(b"\n" + raw, 0, len(raw) + 1)
            return
        if raw.startswith(b'{"log":'):
            for inner in unwrap(raw):
                if inner != raw:
                    self.line(inner[:MAX_LINE])
            return
        if not KEY.search(raw):
            if b"[" in raw:
                for line in split(clean(raw)):
                    self._rank(line.rank)
            return
        text = clean(raw)
        if BAR_ENDS[0] in text or BAR_ENDS[1] in text or BAR_ENDS[2] in text:
            text = self._frames(text)
        if text.strip():
            for line in split(text):
                self._record(line)

    def _frames(self, text: str) -> str:
        """`text` without the frames of bars in it, which have no newline, so that other processes write behind them."""
        bare = BARE_BAR.match(text)
        if bare is not None:
            return text[bare.end() :]
        for _ in range(64):
            bar = BAR.search(text)
            if bar is None:
                break
            self._bar(bar)
            text = text[: bar.start()] + "\n" + text[bar.end() :] if bar.start() else text[bar.end() :]
        return text.replace("\n", " ") if not text.strip() else text

    def _bar(self, bar: re.Match[str]) -> None:
        desc = bar["desc"]
        try:
            done, total = int(bar["done"]), int(bar["total"])
        except ValueError:
            done, total = 0, 0  # a download counts bytes
        if "Capturing" in desc or "Compiling" in desc:
            self._new["captured"] = (done, total)
            self._move(Step.GRAPH_CAPTURE, Step.HTTP_UP)
        elif desc.startswith("DeepGEMM"):
            self._move(Step.JIT_WARMUP, Step.READY)
        elif desc.startswith("Warmup"):
            self._move(Step.WARMUP, Step.READY)
        elif desc.startswith(("Loading", "Multi-thread")):
            self._shards(desc, done, total, bar)
        else:
            self._move(Step.DOWNLOAD, Step.LOAD_WEIGHTS_DONE)
        self._progress()

    def _shards(self, desc: str, done: int, total: int, bar: re.Match[str]) -> None:
        rate = (bar["rate"] or "").strip()
        eta = (bar["eta"] or "").strip()
        counts = (
            "batches"
            if "Fastsafetensor" in desc
            else "tensors"
            if "Streamer" in desc or "Instant" in desc
            else "shards"
        )
        shown = (rate if rate and "?" not in rate else None, eta if eta and "?" not in eta else None)
        self._new["shards"] = (done, total, *shown, counts)
        if self.get("step") >= Step.HTTP_UP or self.get("capturing"):
            return
        full = done >= total
        self._enter(Step.LOAD_WEIGHTS_DONE if full and not self._waiting() else Step.LOAD_WEIGHTS)

    def _record(self, line: Line) -> None:
        message = line.message
        self._rank(line.rank)
        if not message or message.startswith("Ignore import error"):
            return
        if message.startswith(("Prefill batch", "Decode batch")):
            if line.date and self.get("step") is Step.HTTP_UP:
                self._clock(line.date, line.time)  # the message itself has no stamp any more
            raw = message.encode("utf-8", "replace")
            self._batches(b"\n" + raw, 0, len(raw) + 1)
            return
        if message.startswith("INFO: ") and " HTTP/1." in message:
            if health := HEALTH.search(message):
                trouble = self.get("trouble")
                self._new["trouble"] = trouble.health_answer(int(health[1]), message, self.get("step"))
            return
        if line.date:
            self._clock(line.date, line.time)
        self._new["active"] = False
        if MARKER_READY in message:
            self._marker(message.partition(MARKER_READY)[2])
        elif MARKER_CHECKED in message:
            self._new["checked"] = True
        elif MARKER_REFUSED in message:
            self._refusal(message.partition(MARKER_REFUSED)[2])
        elif not self._stage(line):
            before = self.get("trouble")
            after = before.see(line, self.get("step"))
            if after is not before:
                self._new["trouble"] = after

    def _rank(self, rank: str) -> None:
        known = self.get("ranks")
        if rank and rank not in known and len(known) < _MAX_RANKS:
            self._new["ranks"] = known | {rank}

    def _progress(self, *, ready: bool = False) -> None:
        before = self.get("trouble")
        after = before.progress(ready=ready)
        if after is not before:
            self._new["trouble"] = after

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

    def _stage(self, line: Line) -> bool:
        """Whether the line is one of a start's or an end's known words."""
        message, rank = line.message, line.rank
        if message.startswith("server_args="):
            self._server_args(line.source)
        elif LOAD_BEGIN in message:
            self._new["loading"] = _with(self.get("loading"), rank)
            self._new["loaded"] = self.get("loaded") - {rank}
            self._new["begins"] = True
            self._move(Step.LOAD_WEIGHTS, Step.READY)
        elif LOAD_END in message:
            self._load_end(message, rank)
        elif capture := CAPTURE.search(message):
            self._capture(rank, begin=capture[1].lower() == "begin")
        elif "max_total_num_tokens=" in message and (sizes := SIZES.search(message)):
            chunk = None if sizes[2] == "None" else int(sizes[2][:18])
            self._new["sizes"] = (int(sizes[1][:18]), chunk, int(sizes[3][:18]))
        else:
            for words, step in WORDS:
                if words in message:
                    self._reach(step)
                    return True
            for name in _NAMED:
                if found := name.search(message):
                    self._rank(f"rank {found[1]}" if found[1].isdigit() else found[1])
            return False
        return True

    def _server_args(self, source: str) -> None:
        sources = self.get("sources")
        if source in sources and (self.get("step") > Step.SPAWNING or self.get("trouble").dying):
            fresh = LogState(first_stamp=self.get("last_stamp"), last_stamp=self.get("last_stamp"))
            for field in dataclasses.fields(LogState):
                if field.name not in ("tail", "last_line"):
                    self._new[field.name] = getattr(fresh, field.name)
        self._new["sources"] = _with(self.get("sources"), source)
        self._move(Step.SPAWNING, Step.SPAWNING)

    def _load_end(self, message: str, rank: str) -> None:
        self._new["loading"] = self.get("loading") - {rank}
        self._new["loaded"] = _with(self.get("loaded"), rank)
        if kind := TYPE.search(message):
            self._new["model_class"] = kind[1]
        elapsed = ELAPSED.search(message)
        if elapsed is not None and rank:
            slowest, seconds = self.get("slowest"), _float(elapsed[1].rstrip("."), 0.0)
            if slowest is None or seconds > slowest[1]:
                self._new["slowest"] = (rank, seconds)
        if self.get("step") <= Step.LOAD_WEIGHTS_DONE:
            self._enter(Step.LOAD_WEIGHTS if self._waiting() else Step.LOAD_WEIGHTS_DONE)
        self._progress()

    def _waiting(self) -> bool:
        """Some ranks have loaded and others have not; where the log begins later, ranks are missing from the row."""
        loaded = self.get("loaded")
        if not loaded:
            return False
        if self.get("loading"):
            return True
        return not self.get("begins") and _gap(loaded)

    def _capture(self, rank: str, *, begin: bool) -> None:
        now = self.get("capturing")
        self._new["capturing"] = now = _with(now, rank) if begin else now - {rank}
        self._move(Step.GRAPH_CAPTURE if now else Step.GRAPH_CAPTURE_DONE, Step.HTTP_UP)

    def _reach(self, step: Step) -> None:
        now = self.get("step")
        if step in (Step.STOPPING, Step.EXITED):
            if now < step:
                self._enter(step)
            if not self.get("trouble").dying:
                self._new["trouble"] = dataclasses.replace(self.get("trouble"), stopped=True)
        elif step is Step.READY:
            self._enter(Step.READY)
            self._progress(ready=True)
        elif step is Step.KV_CACHE and self.get("capturing"):
            pass  # another rank's; the slower ones do not lead back
        else:
            self._move(step, Step.READY if step >= Step.JIT_WARMUP else Step.HTTP_UP)

    def _move(self, step: Step, before: Step) -> None:
        """Go to `step`, back as well, unless the server has come to `before`."""
        if self.get("step") < before:
            self._enter(step)
            self._progress()

    def _enter(self, step: Step) -> None:
        if step is self.get("step"):
            return
        self._new["step"] = step
        spans = self.get("spans")
        if all(one is not step for one, _ in spans):
            self._new["spans"] = (*spans, (step, self.get("last_stamp")))

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


def _line_at(data: bytes, place: int, start: int, end: int) -> bytes:
    """The line around `place`, inside ``data[start:end]``."""
    first = data.rfind(b"\n", start, place) + 1
    last = data.find(b"\n", place, end)
    return data[first : end if last < 0 else last]


def _gap(ranks: frozenset[str]) -> bool:
    """Whether tensor-parallel ranks between the lowest and the highest are missing."""
    groups: dict[str, set[int]] = {}
    for rank in ranks:
        if found := _TP.match(rank):
            groups.setdefault(found[1] + found[2], set()).add(int(found[3][:6]))
    return any(max(numbers) - min(numbers) + 1 > len(numbers) for numbers in groups.values())


def _with(names: frozenset[str], name: str) -> frozenset[str]:
    return names if len(names) >= _MAX_RANKS else names | {name}


def _last_number(data: bytes, key: bytes, start: int, end: int) -> float | None:
    """The number behind the last `key` that has one."""
    while (place := data.rfind(key, start, end)) >= 0:
        if found := _NUMBER.match(data, place + len(key), end):
            return float(found[0])
        end = place
    return None


def _float(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
