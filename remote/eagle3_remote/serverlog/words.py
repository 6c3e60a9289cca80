"""The words and shapes of SGLang's log, 0.5.4.post3 to 0.5.23, as data.

From ``srt/model_executor/model_runner.py`` and ``runner/``, ``srt/distributed/bootstrap.py``, ``srt/model_loader``,
``srt/layers/deep_gemm_wrapper/compile_utils.py``, ``srt/managers/scheduler.py``, ``srt/entrypoints/http_server.py`` and,
for the batch lines, the schedulers' metrics reporters.
"""

from __future__ import annotations

import enum
import re

from eagle3_remote.protocol import Phase


class Step(enum.IntEnum):
    """How far a log goes, finer than `Phase` and in the usual order. The name in small letters is the public word."""

    UNKNOWN = 0
    SPAWNING = 1
    DIST_INIT = 2
    DOWNLOAD = 3
    LOAD_WEIGHTS = 4
    LOAD_WEIGHTS_DONE = 5
    KV_CACHE = 6
    JIT_WARMUP = 7
    GRAPH_CAPTURE = 8
    GRAPH_CAPTURE_DONE = 9
    HTTP_UP = 10
    WARMUP = 11
    READY = 12
    SERVING = 13
    STOPPING = 14
    EXITED = 15


PHASES: dict[Step, Phase] = {
    Step.UNKNOWN: Phase.SPAWNING,
    Step.SPAWNING: Phase.SPAWNING,
    Step.DIST_INIT: Phase.INITIALISING,
    Step.DOWNLOAD: Phase.DOWNLOADING,
    Step.LOAD_WEIGHTS: Phase.LOADING_WEIGHTS,
    Step.LOAD_WEIGHTS_DONE: Phase.FINISHING_WEIGHTS,
    Step.KV_CACHE: Phase.ALLOCATING_KV_CACHE,
    Step.JIT_WARMUP: Phase.WARMING_KERNELS,
    Step.GRAPH_CAPTURE: Phase.CAPTURING,
    Step.GRAPH_CAPTURE_DONE: Phase.CAPTURING,
    Step.HTTP_UP: Phase.HTTP_UP,
    Step.WARMUP: Phase.WARMING_UP,
    Step.READY: Phase.READY,
    Step.SERVING: Phase.READY,
    Step.STOPPING: Phase.STOPPING,
    Step.EXITED: Phase.EXITED,
}

WORDS: tuple[tuple[str, Step], ...] = (
    ("Init torch distributed", Step.DIST_INIT),
    ("Init parallel begin", Step.DIST_INIT),
    ("Init parallel ends", Step.DIST_INIT),
    ("Memory baseline taken.", Step.DIST_INIT),
    ("Memory profiling: available_gpu_memory", Step.KV_CACHE),
    ("Mamba Cache is allocated", Step.KV_CACHE),
    ("KV Cache is allocated", Step.KV_CACHE),
    ("VA upper bound. dtype", Step.KV_CACHE),
    ("Memory pool end.", Step.KV_CACHE),
    ("Entering DeepGEMM JIT Pre-Comp", Step.JIT_WARMUP),
    ("Try DeepGEMM JIT Compiling", Step.JIT_WARMUP),
    ("PP-parallel DeepGEMM warmup start", Step.JIT_WARMUP),
    ("Running FlashInfer autotune", Step.JIT_WARMUP),
    ("Autotuning process starts", Step.JIT_WARMUP),
    ("start build [module_", Step.JIT_WARMUP),
    ("Application startup complete", Step.HTTP_UP),
    ("Uvicorn running on ", Step.HTTP_UP),
    ("Start of pd disaggregation warmup", Step.WARMUP),
    ("Running warmup ", Step.WARMUP),
    ("Sending warmup request to gRPC server", Step.WARMUP),
    ("The server is fired up and ready to roll!", Step.READY),
    ("SIGTERM received", Step.STOPPING),
    ("Gracefully exiting...", Step.STOPPING),
    ("Application shutdown complete", Step.EXITED),
    ("Finished server process", Step.EXITED),
)
"""What a line says of the whole server. Begin and end of loading and of capture are counted rank by rank instead."""

LOAD_BEGIN = "Load weight begin"
LOAD_END = "Load weight end"
CAPTURE = re.compile(r"\bCapture (?:(?:target|draft) \w+ \w+|piecewise \w+|\w+) graph (begin|end)\b", re.IGNORECASE)
TYPE = re.compile(r"\btype=(\w+)")
ELAPSED = re.compile(r"\belapsed=([\d.]+) s")
SIZES = re.compile(r"\bmax_total_num_tokens=(\d+), chunked_prefill_size=(-?\d+|None),.*?\bcontext_len=(\d+)")

BAR = re.compile(
    r"(?P<desc>\b(?:Loading|Multi-thread loading|Capturing|Compiling|\[BCG\] Capturing|DeepGEMM warmup|Fetching|"
    r"Downloading|Warmup prefill)\b[^|\r\n]{0,200}?|\b[\w.-]+\.(?:safetensors|bin|gguf|pt|json|model)):\s+\d+%"
    r"(?: Completed)? ?\|(?:[^|\[\]]*\|)? ?(?P<done>[\d.]+[kMGT]?)/(?P<total>[\d.]+[kMGT]?) "
    r"\[[^\]<]*(?:<(?P<eta>[^,\]]*), *(?P<rate>[^\]]*))?\]"
)
BAR_ENDS = ("it/s]", "s/it]", "B/s]")
BARE_BAR = re.compile(r"^\s*\d+%\|[^|\[\]]*\| ?\d+/\d+ \[[^\]]*\]")
"""A bar without a description: the first frame of a capture, before SGLang names the batch."""
RATE = re.compile(r"^([\d.]+) ?(it/s|s/it)$")

TPS = b"input throughput (token/s): "
DATE = re.compile(rb"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)")
CACHED = re.compile(rb"#cached-token: ([1-9]\d*)")
AT_WORK = re.compile(rb"Decode batch|Prefill batch[^\n]*#new-token: (?!1\b)\d")
"""A batch that is more than the one token of a health probe."""
HEALTH = re.compile(r'"GET /health\S* HTTP/[\d.]+" (\d{3})')

KEY = re.compile(
    rb"server_args=|Init torch|Init parallel|baseline taken|oad weight |graph |Cache is alloc|upper bound|Memory p|max_total_num|"
    rb"DeepGEMM|utotun|start build|Application s|Uvicorn r|armup|fired up|SIG|Gracefully|Finished server|EAGLE3|eagle3|Rank |"
    rb"rank|Process |Subprocess|Prefill batch|Decode batch|it/s|s/it|B/s|/health|Health|rror|xception|ssert|raceback|ailed|ailure|"
    rb"atchdog|[kK]illed|oom|OOM|[fF]ault|imed ?out|imeout|[mM]emory|NCCL|nccl|[gG]loo|igquit|xit code|xited with|erminat|[aA]bort|"
    rb"rrno|ermission|pace left|[sS]hared|peer|orrupt|lready in use|EADDR|quota|No module|weights|issing|nvalid|llegal|driver|"
    rb"PTX|kernel image|egfault|[sS]ignal|roken pipe|EOF|malloc|Interrupt|Exit|Expired|NotFound|navailable|recogni|supported|"
    rb"symbol|GLIBC|offline|retries|resolve|checksum|Short read|download|leak|recv|send|Bus |ead-only|writable|dead|%\|"
)
"""A line without any of these changes nothing. Every word of `WORDS` and of the table of causes has one."""
