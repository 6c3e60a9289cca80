"""Lines of a log as bytes: what a container, a launcher or a terminal put around them, and which say nothing."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_CSI = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_CONTROLS = bytes([*range(9), *range(11, 32), 127])

STAMP = re.compile(
    r"\[(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d:\d\d)(?:\.\d{3})?(?P<rank>(?: [A-Z_]+\d+)*)\] ?"
    r"|\[(?P<gpu>gpu(?:_id)?=\d+)\] "
)
"""SGLang's own prefix: 0.4 to 0.5.23 with a date, 0.3 without, 0.2 with the GPU."""

_PREFIXES = (
    # Ray: (SGLangEngine pid=1089, ip=10.0.0.19)
    re.compile(r"\((?P<source>[^()]{1,80}?\bpid=\d+[^()]{0,80})\) ?"),
    # mpirun --tag-output: [1,3]<stderr>:
    re.compile(r"\[(?P<source>\d+,\d+)\](?:<std\w+>)?: ?"),
    # torch: [rank3]: Traceback; torchrun: [default0]:
    re.compile(r"\[(?P<source>(?:rank|default)\d+)\]: ?"),
    # CRI and Actions, GitLab, GCP: ISO time, perhaps the stream and a tag
    re.compile(
        r"(?:[A-Z]+ )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: (?:std\w+ [FP]|\d\d[OE]\+?))?(?: |$)"
    ),
    # Jenkins: [2026-08-12T09:00:01.123Z], or 09:00:01 and two spaces
    re.compile(r"\[\d{4}-\d\d-\d\dT[\d:.]+Z\] ?"),
    re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?  ?"),
    # kubectl --prefix: [pod/sglang-0/server]
    re.compile(r"\[(?P<source>pod/[^\]\s]{1,200})\] ?"),
    # docker compose: sglang-1  | ; also [sglang] |
    re.compile(r"\[?(?P<source>[A-Za-z0-9][\w./-]{0,80})\]? +\|(?: |$)"),
    # journald: Aug 12 09:00:01 box python[4711]:
    re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} [\w.@/-]{1,80}(?:\[\d+\])?: "),
    # srun --label
    re.compile(r" ?(?P<source>\d{1,4}): (?=\S)"),
)
_GLUED = re.compile(r"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]+\d+)*\]")
_MAX_PREFIXES = 5
_MAX_PARTS = 64

_QUIET = (
    rb"(?:Prefill|Decode) batch",
    rb'INFO: +[\d.:]+ - "[A-Z]+ [^\s"]+ HTTP/1\.1" 200 OK',
    rb"Ignore import error ",
)
_QUIET_BARE = (
    rb"  File ",
    rb"    ",
    rb"  warnings\.warn",
    rb"/[^\n]*?\.py:\d+: \w*Warning: ",
    rb"(?:Loading|Multi-thread loading) [a-z_ ]+shards: +\d\d?% Completed \| \d+/\d+ \[[\d:]+<[\d:]+, +[\d.]+(?:it/s|s/it)\](?:\n|\Z)",
)
"""How quiet lines begin; whatever follows is not read."""
_STAMPED = re.compile(
    rb"(?:20[\dT:.Z+-]{15,32} (?:std\w{3} [FP] )?|[A-Za-z][\w.-]{0,60} +\| )?"
    rb"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?((?: [A-Z_]+\d+)*)\] (?:" + b"|".join(_QUIET) + rb")[^\n]*"
)


class Line(NamedTuple):
    """One log record's first line, or a line of its continuation."""

    message: str
    rank: str = ""
    """As the prefix has it: ``TP3``, ``DP0 PP1 TP3``, ``gpu=0``; empty: none."""
    source: str = ""
    """Which process, container or pod, where a launcher says so."""
    stamped: bool = False
    date: str = ""
    time: str = ""


def clean(raw: bytes) -> str:
    """One line without control sequences, NULs and other controls. Invalid UTF-8 becomes U+FFFD."""
    if b"\x1b" in raw:
        raw = _CSI.sub(b"", raw)
    return raw.translate(None, _CONTROLS).decode("utf-8", "replace").rstrip()


def unwrap(raw: bytes) -> list[bytes]:
    """The lines inside a line of Docker's json-file log driver; otherwise the line itself."""
    if raw.startswith(b'{"log":'):
        try:
            text = json.loads(raw)["log"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return [raw]
        if isinstance(text, str):
            return text.encode("utf-8", "replace").replace(b"\r", b"\n").split(b"\n")
    return [raw]


def split(text: str) -> Iterator[Line]:
    """The records in one cleaned line: processes that share a pipe write into each other's lines."""
    source, first = "", STAMP.match(text)
    if first is None:
        source, text = _unprefix(text)
        first = STAMP.search(text) if "[" in text else None
    if first is None:
        yield Line(text, source=source)
        return
    if first.start() and text[: first.start()].strip():
        yield Line(text[: first.start()].rstrip(), source=source)
    for _ in range(_MAX_PARTS):
        following = _GLUED.search(text, first.end()) if text.find("[20", first.end()) >= 0 else None
        message = text[first.end() : following.start() if following else None].rstrip()
        rank = (first["rank"] or "").strip() or (first["gpu"] or "")
        yield Line(message, rank, source, True, first["date"] or "", first["time"] or "")
        if following is None:
            return
        first = STAMP.match(text, following.start())
        assert first is not None


def _unprefix(text: str) -> tuple[str, str]:
    sources = []
    for _ in range(_MAX_PREFIXES):
        for prefix in _PREFIXES:
            if found := prefix.match(text):
                if name := found.groupdict().get("source"):
                    sources.append(name)
                text = text[found.end() :]
                break
        else:
            break
    return "/".join(sources), text


@functools.lru_cache(maxsize=64)
def telling(ranks: frozenset[str], glued: bool) -> re.Pattern[bytes]:
    """Finds the newline before each line that must be looked at one by one, in bytes that begin with a newline.

    All others are `quiet`: they either say nothing (good access lines, a traceback's frames, models that could not be
    imported) or are batch lines of ranks already known and frames of a bar that is not full, of which only the last
    counts. This is what makes a gigabyte cheap: one regular expression, and no Python for a line.

    Args:
        ranks: those already known; a new one is worth a look.
        glued: the bytes have a record's prefix inside a line, so that each line must be searched for one.
    """
    known = b"|".join(re.escape(f" {rank}".encode()) for rank in sorted(ranks) if rank)
    stamp = rb"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?" + (rb"(?:" + known + rb")?" if known else b"") + rb"\] "
    outside = rb"(?:20[\dT:.Z+-]{15,32} (?:std\w{3} [FP] )?|[A-Za-z][\w.-]{0,60} +\| )"
    alone = rb"(?![^\n]*\[20)" if glued else b""
    quiet = rb"(?:%s)?%s%s(?:%s)|%s(?:%s)" % (outside, stamp, alone, b"|".join(_QUIET), alone, b"|".join(_QUIET_BARE))
    return re.compile(rb"\n(?!\n|\Z|%s)" % quiet)


def quiet_rank(raw: bytes) -> str | None:
    """The rank of a line that is quiet but for its rank, which is not known yet; `None`: it is another kind of line."""
    found = _STAMPED.fullmatch(raw)
    if found is None or raw.find(b"[20", found.start(1)) >= 0:
        return None
    return found[1].strip().decode()
