"""How a record or a bar's frame moves a `LogState` on: stages, ranks, clock, shards, and the patch's own lines."""

from __future__ import annotations

import calendar
import dataclasses
import functools
import json
import re
import time
from typing import Any

from eagle3_remote.protocol import PatchMarker, decode
from eagle3_remote.serverlog.lines import Line
from eagle3_remote.serverlog.state import LogState
from eagle3_remote.serverlog.words import CAPTURE, ELAPSED, LOAD_BEGIN, LOAD_END, SIZES, TYPE, WORDS, Step

MAX_RANKS = 256
_MAX_TEXT = 600
_TP = re.compile(r"^(.*?)\b([A-Z_]*TP)(\d+)\b")
_NAMED = (re.compile(r"\bRank (\d+) scheduler\b"), re.compile(r"\bSubprocess (scheduler\w*) \(pid="))


class Stages:
    """A `LogState` opened for writing."""

    def __init__(self, state: LogState) -> None:
        self._old = state
        self._new: dict[str, Any] = {}
        self._stamp_text = ""

    def get(self, name: str) -> Any:
        return self._new[name] if name in self._new else getattr(self._old, name)

    def _rank(self, rank: str) -> None:
        known = self.get("ranks")
        if rank and rank not in known and len(known) < MAX_RANKS:
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
        seconds = _seconds(date, clock)
        if seconds is None:
            return
        if self.get("first_stamp") is None:
            self._new["first_stamp"] = seconds
        self._new["last_stamp"] = seconds

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
        elif "graph" in message.lower() and (capture := CAPTURE.search(message)):
            self._capture(rank, begin=capture[1].lower() == "begin")
        elif "max_total_num_tokens=" in message and (sizes := SIZES.search(message)):
            chunk = None if sizes[2] == "None" else int(sizes[2][:18])
            self._new["sizes"] = (int(sizes[1][:18]), chunk, int(sizes[3][:18]))
        else:
            for words, step in WORDS:
                if words in message:
                    self._reach(step)
                    return True
            for name in _NAMED if "scheduler" in message else ():
                if found := name.search(message):
                    self._rank(f"rank {found[1]}" if found[1].isdigit() else found[1])
            return False
        return True

    def _server_args(self, source: str) -> None:
        sources = self.get("sources")
        if (not source or source in sources) and (self.get("step") > Step.SPAWNING or self.get("trouble").dying):
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
        self._new["markers"] = tuple(sorted([*others, marker], key=lambda one: one.tp_rank))[:MAX_RANKS]

    def _refusal(self, text: str) -> None:
        if self.get("refused") is not None:
            return
        try:
            reason = json.JSONDecoder().raw_decode(text.lstrip())[0]["reason"]
        except (ValueError, TypeError, KeyError, RecursionError):
            reason = text
        self._new["refused"] = str(reason)[:_MAX_TEXT]


def _seconds(date: str, clock: str) -> float | None:
    """Since 1970, as the stamp is written; `None`: there is no such time."""
    midnight = _midnight(date)
    hour, minute, second = (int(part) for part in clock.split(":"))
    if midnight is None or hour > 23 or minute > 59 or second > 61:
        return None
    return midnight + hour * 3600 + minute * 60 + second


@functools.lru_cache(maxsize=64)
def _midnight(date: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(date, "%Y-%m-%d")))
    except (ValueError, OverflowError):
        return None


def _gap(ranks: frozenset[str]) -> bool:
    """Whether tensor-parallel ranks between the lowest and the highest are missing."""
    groups: dict[str, set[int]] = {}
    for rank in ranks:
        if found := _TP.match(rank):
            groups.setdefault(found[1] + found[2], set()).add(int(found[3][:6]))
    return any(max(numbers) - min(numbers) + 1 > len(numbers) for numbers in groups.values())


def _with(names: frozenset[str], name: str) -> frozenset[str]:
    return names if len(names) >= MAX_RANKS else names | {name}


def _float(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
