"""The words and shapes of SGLang's log, 0.5.4.post3 to 0.5.23, as data.

From ``srt/model_executor/model_runner.py``, ``srt/utils/common.py``, ``srt/managers/scheduler.py``,
``srt/entrypoints/http_server.py`` and, for the batch lines, the schedulers' metrics reporters.
"""

from __future__ import annotations

import re

from eagle3_remote.protocol import Phase

CSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
RAY = re.compile(r"^\([^()]*\bpid=\d+[^()]*\) ")
STAMP = re.compile(
    r"\[(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d:\d\d)(?:\.\d{3})?(?P<rank>(?: [A-Z_]+\d+)*)\] "
)
BAR = re.compile(
    r"(?P<desc>(?:Loading|Multi-thread loading|Capturing|Compiling|\[BCG\] Capturing)\b[^|\r\n]{0,200}?):\s+\d+%"
    r"(?: Completed)? ?\|(?:[^|\[\]]*\|)? ?(?P<done>\d+)/(?P<total>\d+) "
    r"\[[^\]<]*(?:<(?P<eta>[^,\]]*), *(?P<rate>[^\]]*))?\]"
)
FRAME = (b"it/s]", b"s/it]")
"""Ends of a bar's frame."""
ACCESS = re.compile(rb'\[[^\]]*\] INFO: +\S+ - "[^"]*" \d+ [\w ]+')
BATCH = re.compile(rb"\[[^\]]*\] (?:Prefill|Decode) batch[^\0\x1b]*")
PAIR = re.compile(rb"[,.] (#running-req|#queue-req|#cached-token|input throughput \(token/s\)): ([\d.]+)")
SIZES = re.compile(r"\bmax_total_num_tokens=(\d+), chunked_prefill_size=(-?\d+|None),.*?\bcontext_len=(\d+)")
TYPE = re.compile(r"\bLoad weight end\..*?\btype=(\w+)")

ORDER = (
    Phase.SPAWNING,
    Phase.INITIALISING,
    Phase.LOADING_WEIGHTS,
    Phase.FINISHING_WEIGHTS,
    Phase.ALLOCATING_KV_CACHE,
    Phase.CAPTURING,
    Phase.HTTP_UP,
    Phase.WARMING_UP,
    Phase.READY,
    Phase.STOPPING,
    Phase.EXITED,
)
RANK = {phase: place for place, phase in enumerate(ORDER)}

WORDS: tuple[tuple[str, Phase], ...] = (
    ("Init torch distributed begin", Phase.INITIALISING),
    ("Init parallel begin", Phase.INITIALISING),
    ("Load weight begin", Phase.LOADING_WEIGHTS),
    ("KV Cache is allocated", Phase.ALLOCATING_KV_CACHE),
    ("VA upper bound. dtype", Phase.ALLOCATING_KV_CACHE),
    ("Memory pool end.", Phase.ALLOCATING_KV_CACHE),
    ("Uvicorn running on ", Phase.HTTP_UP),
    ("The server is fired up and ready to roll!", Phase.READY),
    ("SIGTERM received.", Phase.STOPPING),
    ("Gracefully exiting...", Phase.STOPPING),
    ("Finished server process", Phase.EXITED),
)
GRAPH = re.compile(r"\bCapture (?:(?:target|draft) \w+ \w+|piecewise \w+|\w+) graph begin", re.IGNORECASE)
