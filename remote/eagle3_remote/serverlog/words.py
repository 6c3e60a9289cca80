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
REQUEST = re.compile(r"\b(?:Receive|Finish): obj=|\"event\": ?\"request\.")
"""Where a logged request begins (``--log-requests``, ``srt/utils/request_logger.py``, before 0.5.8 ``tokenizer_manager.py``)."""
HEALTH = re.compile(r'"GET /health\S* HTTP/[\d.]+" (\d{3})')

# fmt: off
STAGES = (
    "/health", "Application s", "B/s", "Cache is alloc", "Decode batch", "DeepGEMM", "Finished server",
    "Gracefully", "Init parallel", "Init torch", "Memory p", "Prefill batch", "SIGTERM", "Uvicorn r", "armup",
    "baseline taken", "EAGLE3", "eagle3", "fired up", "graph begin", "graph end", "it/s", "s/it",
    "max_total_num", "oad weight ", "server_args=", "start build [", "upper bound", "utotun", "%|",
)
"""A line that says how far a server has come has one of these."""
TROUBLES = (
    "rror", "xception", "raceback", "ssert", "ailed", "ailure", "atchdog", "illed", "access fault", "imed out",
    "imedout", "imeout", "emory", "NCCL", "nccl", "loo/", "loo connect", "makeDevice", "SIGQUIT", "igquit",
    "xit code", "xited with", "erminat", "bort", "rrno", "ermission", "pace left", "hared obj", "peer",
    "orrupt", "lready in use", "EADDR", "quota", "o module", "odel weights", "weights leave", "weights are",
    "weights is", "issing", "nvalid", "llegal", "driver", "PTX", "kernel image", "egfault", "egmentation",
    "aught signal", "roken pipe", "EOF", "malloc", "Interrupt", "Exit", "Expired", "NotFound", "navailable",
    "recognize", "Unrecognized", "ot supported", "currently supported", "undefined symbol", "GLIBC", "offline",
    "retries", "name resolution", "hostname", "checksum", "Short read", "incomplete", "leak detected",
    "recvValue", "sendBytes", "to recv", "to send", "Bus err", "ead-only", "writable", "is dead", "oom-k",
    "oom_k", "OOMK", "Process ", "Rank ", "Subprocess", "Health check", "clients", "Duplicate GPU", "Bootstrap",
    "no room for the full", "cannot hold", "mem_fraction", "Not enough", "not a valid", "Incorrect path",
    "too old", "nstalled with", "minimum required", "misaligned", "unspecified", "aptured", "Unknown ",
    "crashed",
)
"""A line that says what went wrong has one of these."""
COUNTS = ("#running-req: ", "#queue-req: ", TPS.decode(), "#cached-token: ", "% Completed |")
"""What is read of lines that are otherwise passed over in bulk."""
# fmt: on


def any_of(words: tuple[str, ...]) -> str:
    """A pattern for any of `words`; they are grouped by their first letter, which makes the search several times faster."""
    rests: dict[str, list[str]] = {}
    for word in words:
        rests.setdefault(word[0], []).append(re.escape(word[1:]))
    return "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())


def has_any(text: str, words: tuple[str, ...]) -> bool:
    """Whether any of `words` is in `text`; in one line that is faster than a pattern of them."""
    return any(map(text.__contains__, words))


KEY = re.compile(any_of(STAGES + TROUBLES).encode())
"""A line without any of these changes nothing."""

BENIGN = (
    "Can not initialize",
    "Ignore import error",
    "[http_server] Error:",
    "Failed to load plugin",
    "freeze_gc failed",
    "Exception in ASGI application",
    "Exception ignored in",
    "--- Logging error ---",
    "Task exception was never retrieved",
    "self.soft=True",
    "Custom allreduce",
    "custom allreduce",
    "To silence this warning",
    "init failed (",
    "resource_tracker",
    "Request is disconnected",
    "falling back",
    "Falling back",
    ", trying port",
    "will retry",
    "retrying",
    "is not supported on this device",
    "Fail to set RLIMIT",
)
"""Lines that look like errors and are none; a traceback after one does not count either."""
