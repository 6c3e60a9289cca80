"""The fold: ``feed(state, chunk)`` takes bytes in any pieces, and folding in two pieces equals folding at once.

SGLang 0.5.10 and newer write a whole shard bar as one line of ``\\r`` frames, so ``\\r`` ends a line here, and the
unterminated last one is read as well when the state is looked at. Memory is bounded whatever comes. Lines that say
nothing are passed over in bulk; see `lines.telling`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

from eagle3_patch.layout import MARKER_CHECKED, MARKER_READY, MARKER_REFUSED
from eagle3_remote.serverlog.lines import Line, clean, quiet_rank, split, telling, unwrap
from eagle3_remote.serverlog.sieve import condense, idle, sift
from eagle3_remote.serverlog.stages import MAX_RANKS, Stages
from eagle3_remote.serverlog.state import LogState
from eagle3_remote.serverlog.words import (
    AT_WORK,
    BAR,
    BAR_ENDS,
    BARE_BAR,
    CACHED,
    DATE,
    HEALTH,
    KEY,
    REQUEST,
    TPS,
    Step,
)

MAX_LINE = 64 * 1024
"""Bytes of one line that are looked at; the rest of a longer one is skipped."""
_HALF = MAX_LINE // 2
_BLOCK = 64 * 1024
_SAMPLE = 8
_SPARSE = 512
"""A block goes through the sieve where its first eighth has more than one telling line in so many bytes."""
_MAX_TEXT = 600
_NUMBER = re.compile(rb"\d{1,15}(?:\.\d{1,15})?")


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


class Fold(Stages):
    """Reads bytes into a `LogState`."""

    def __init__(self, state: LogState) -> None:
        super().__init__(state)
        self.tail = b""

    def state(self) -> LogState:
        return dataclasses.replace(self._old, tail=self.tail, **self._new)

    def lines(self, body: bytes) -> None:
        """Complete lines, without the last newline."""
        if any(body.find(b"\n", place, place + _HALF) < 0 for place in range(0, len(body) - _HALF, _HALF)):
            body = b"\n".join(line[:MAX_LINE] for line in body.split(b"\n"))
        data = b"\n" + body
        place = 0
        while place < len(data):
            end = data.find(b"\n", place + _BLOCK)
            self._block(data[place : end if end >= 0 else len(data)])
            place = end if end >= 0 else len(data)
        self._last_words(data)

    def line(self, raw: bytes) -> None:
        """One line, of at most `MAX_LINE` bytes."""
        if raw:
            self._read(b"\n" + raw)
            self._last_words(b"\n" + raw)

    def _block(self, data: bytes) -> None:
        """Some lines, each behind a newline."""
        sample = telling(self.get("ranks"), False).finditer(data, 0, len(data) // _SAMPLE)
        many = itertools.islice(sample, len(data) // _SAMPLE // _SPARSE, None)
        if next(many, None) is None:
            self._read(data)
        elif not self._sifted(data):
            self._read(condense(data))

    def _sifted(self, data: bytes) -> bool:
        """Read only the lines that matter; `False`: more would have mattered, and nothing was done."""
        if self.get("trouble").open or b"raceback" in data or b"server_args=" in data:
            return False
        before, stamp_text, ranks = dict(self._new), self._stamp_text, self.get("ranks")
        if (
            self._read(sift(data, ranks), alone=True)
            and ranks <= self.get("ranks")
            and len(self.get("ranks")) < MAX_RANKS
        ):
            return True
        self._new, self._stamp_text = before, stamp_text
        return False

    def _read(self, data: bytes, *, alone: bool = False) -> bool:
        """Lines, each behind a newline. With `alone` it ends with `False` as soon as a traceback is open."""
        place, ranks = 0, self.get("ranks")
        glued = data.count(b"[20") != data.count(b"\n[20")
        search = telling(ranks, glued).search
        while found := search(data, place):
            start = found.start()
            if start > place:
                self._quiet(data, place, start)
            end = data.find(b"\n", start + 1)
            place = len(data) if end < 0 else end
            self._telling(data[start + 1 : place])
            if alone and self.get("trouble").open:
                return False
            if self.get("ranks") is not ranks:
                ranks = self.get("ranks")
                search = telling(ranks, glued).search
        if len(data) > place:
            self._quiet(data, place, len(data))
        return True

    def _last_words(self, data: bytes) -> None:
        """The last line that has text in it and is not about an HTTP request."""
        end = len(data)
        while end > 0:
            start = data.rfind(b"\n", 0, end)
            for raw in reversed(unwrap(data[start + 1 : end]) if end > start + 1 else []):
                if b" HTTP/1." not in raw and (text := clean(raw).strip()):
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
        if all(data.find(words, start, end) < 0 for words in (b"#", TPS, b" batch")):
            return
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
        closed = not self.get("trouble").open
        if closed and idle(raw, self.get("ranks")):
            return
        rank = quiet_rank(raw)
        if rank is not None:
            self._rank(rank)
            self._quiet(b"\n" + raw, 0, len(raw) + 1)
            return
        if raw.startswith(b'{"log":'):
            for inner in unwrap(raw):
                if inner and inner != raw:
                    self._read(b"\n" + inner[:MAX_LINE])
            return
        if closed and KEY.search(raw, raw.find(b"] ") + 2 if raw.startswith(b"[20") else 0) is None:
            if b"[" in raw:
                for line in split(clean(raw)):
                    self._rank(line.rank)
            return
        text = clean(raw)
        if (": obj=" in text or '"request.' in text) and (request := REQUEST.search(text)):
            text = text[: request.start()]  # prompts and answers say nothing of the server
        if "%" in text and (BAR_ENDS[0] in text or BAR_ENDS[1] in text or BAR_ENDS[2] in text):
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


def _line_at(data: bytes, place: int, start: int, end: int) -> bytes:
    """The line around `place`, inside ``data[start:end]``."""
    first = data.rfind(b"\n", start, place) + 1
    last = data.find(b"\n", place, end)
    return data[first : end if last < 0 else last]


def _last_number(data: bytes, key: bytes, start: int, end: int) -> float | None:
    """The number behind the last `key` that has one."""
    while (place := data.rfind(key, start, end)) >= 0:
        if found := _NUMBER.match(data, place + len(key), end):
            return float(found[0])
        end = place
    return None
