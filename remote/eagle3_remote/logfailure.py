"""Why an SGLang server failed, from its log lines: a table of causes, and a small memory that finds the first real one.

A cause is believed more the nearer it is to the end of the server: an exception that the scheduler itself reports
beats one that was merely printed, a named cause beats an unknown exception, and both beat words that only say that a
child is gone. Among equals the first wins, because the others follow from it. Nothing is invented: where no cause is
named, the line that says that the server is going down is given as it is.
"""

from __future__ import annotations

import dataclasses
import re

from eagle3_remote.protocol import Phase

_MAX_TEXT = 600


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One cause."""

    kind: str
    line: str
    advice: str


@dataclasses.dataclass(frozen=True)
class Cause:
    """One row of the table."""

    kind: str
    pattern: re.Pattern[str]
    advice: str
    fatal: bool = False
    """The line alone means that the server goes down, wherever it stands."""
    weight: int = 3
    """3: a cause, 2: a consequence that is worth a name, 0: only says that something is gone."""


def _row(kind: str, pattern: str, advice: str, *, fatal: bool = False, weight: int = 3) -> Cause:
    return Cause(kind, re.compile(pattern), advice, fatal, weight)


_OOM_KILL = (
    "The kernel killed it, most likely for host memory: pinned buffers, the page cache of a cgroup and /dev/shm all "
    "count. Look at `dmesg -T | grep -i oom` and the container's memory limit, and empty /dev/shm."
)
_TOKEN = (
    "A request carried a token id outside the vocabulary. Find the sample and drop it: ids must be 0 to vocab_size - 1."
)

CAUSES: tuple[Cause, ...] = (
    _row("token-out-of-range", r"Assertion `srcIndex < srcSelectDimSize` failed", _TOKEN, fatal=True),
    _row("token-out-of-range", r"IndexError: index out of range in self", _TOKEN),
    _row(
        "device-assert",
        r"device-side assert triggered",
        "A GPU kernel's check failed, most often for a token id outside the vocabulary. "
        "Start again with CUDA_LAUNCH_BLOCKING=1 to see which kernel.",
    ),
    _row(
        "illegal-memory-access",
        r"illegal memory access",
        "A GPU kernel touched memory that is not its own; the process cannot go on. Start again, and if it comes back "
        "start with CUDA_LAUNCH_BLOCKING=1 and try another --attention-backend.",
    ),
    _row("gpu-oom", r"OutOfMemoryError|CUDA out of memory|HIP out of memory", ""),
    _row(
        "kv-pool-too-small",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "After the weights nothing is left for the KV cache: raise --mem-fraction-static, or use more GPUs (--tp-size).",
    ),
    _row(
        "kv-exhausted",
        r"(?:Prefill|Decode) out of memory\.",
        "The KV cache is full: send fewer tokens at once, or raise --mem-fraction-static.",
    ),
    _row(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout",
        "One rank waited for another in NCCL until the time limit: look in the log for the rank that stopped first, "
        "and check NCCL_* settings and the GPUs' links.",
        fatal=True,
    ),
    _row(
        "nccl-init",
        r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError|NCCL error in",
        "NCCL could not connect the ranks: set NCCL_DEBUG=INFO and start again; in a container check that /dev/shm is "
        "large (--shm-size) and that the GPUs may talk to each other.",
    ),
    _row(
        "invalid-device",
        r"invalid device ordinal",
        "--tp-size asks for more GPUs than this process may see: check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`.",
    ),
    _row(
        "cuda-driver",
        r"driver version is insufficient|no kernel image is available|Found no NVIDIA driver",
        "The GPU driver and this build of torch do not fit: update the driver or install a torch for this CUDA.",
    ),
    _row(
        "host-oom-kill",
        r"(?:died during initialization \(exit code: -9\)|crashed with exit code -9\b|^Exit code: -9\b)",
        _OOM_KILL,
        fatal=True,
    ),
    _row(
        "sigbus",
        r"crashed with exit code -7\b|\(exit code: -7\)|Fatal Python error: Bus error",
        "A bus error: shared memory is full. Make /dev/shm larger (docker: --shm-size or --ipc=host).",
        fatal=True,
    ),
    _row(
        "native-crash",
        r"crashed with exit code -(?:6|11)\b|\(exit code: -(?:6|11)\)|Fatal Python error: (?:Aborted|Segmentation fault)",
        "Native code crashed (SIGABRT or SIGSEGV): the cause is in the lines above it, often NCCL or a GPU kernel.",
        fatal=True,
        weight=2,
    ),
    _row(
        "port-in-use",
        r"\[Errno 98\]|[Aa]ddress already in use|EADDRINUSE",
        "A port is taken: choose another --port, or end the process that holds it.",
    ),
    _row(
        "bad-args",
        r"\berror: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)",
        "This SGLang does not take that argument: correct or remove it.",
        fatal=True,
    ),
    _row(
        "corrupt-weights",
        r"SafetensorError|HeaderTooLarge|InvalidHeaderDeserialization|MetadataIncompleteBuffer|invalid load key",
        "A weight file is damaged or cut short: compare sizes and checksums with the source and copy it again.",
    ),
    _row(
        "missing-weights",
        r"Cannot find any model weights|does not appear to have a file named|No such file or directory: .*"
        r"(?:safetensors|\.bin|config\.json)",
        "A file of the model is missing: check the model directory against its model.safetensors.index.json.",
    ),
    _row(
        "download-failed",
        r"LocalEntryNotFoundError|huggingface\.co.*(?:Max retries|Connection)|offline mode is enabled",
        "The model is not on this box and could not be fetched: give the path of a local model directory.",
    ),
    _row("disk-full", r"No space left on device|\[Errno 28\]", ""),
    _row(
        "permission-denied",
        r"PermissionError|\[Errno 13\]",
        "A file or directory may not be used by this user: see the path in the line.",
    ),
    _row(
        "import-error",
        r"ModuleNotFoundError|ImportError",
        "A package is missing or does not fit this SGLang in the Python it was started with.",
    ),
    _row(
        "kv-leak-check",
        r"memory leak detected",
        "SGLang's own check of its KV cache failed: a fault of SGLang; start again.",
    ),
    _row(
        "watchdog-timeout",
        r"(?:[Ww]atchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\))",
        "A rank made no progress for the watchdog's time. If it was compiling kernels for the first time, start again "
        "with --watchdog-timeout 1800; otherwise look for the rank that hung.",
        fatal=True,
        weight=2,
    ),
    _row(
        "peer-died",
        r"Connection (?:closed|reset) by peer|ProcessGroup.*(?:abort|shutdown)",
        "Another rank died first: its own error is elsewhere in the log.",
        weight=2,
    ),
    _row(
        "scheduler-died",
        r"scheduler died during initialization|scheduler is dead|Subprocess \S+ \(pid=\d+\) crashed with exit code",
        "A scheduler process is gone without saying why: read the lines above.",
        fatal=True,
        weight=0,
    ),
    _row(
        "child-failed",
        r"Received sigquit from a child proces|SIGQUIT received\.",
        "A child process failed: the cause stands above this line, if it was logged.",
        fatal=True,
        weight=0,
    ),
)

_OOM_ADVICE = {
    Phase.LOADING_WEIGHTS: "The weights do not fit: use more GPUs (--tp-size), or end what else uses these GPUs.",
    Phase.FINISHING_WEIGHTS: "The weights do not fit: use more GPUs (--tp-size), or end what else uses these GPUs.",
    Phase.ALLOCATING_KV_CACHE: "The KV cache is too large for what is left: lower --mem-fraction-static.",
    Phase.CAPTURING: "Graph capture needs room: lower --mem-fraction-static, or start with --disable-cuda-graph.",
}
_OOM_RUNTIME = "A batch needs more than is left: lower --chunked-prefill-size or --mem-fraction-static."
_OOM_EARLY = "The GPU is full before the model is loaded: see `nvidia-smi` for what else uses it."

_BENIGN = ("Can not initialize", "Ignore import error", "[http_server] Error:", "Failed to load plugin")
_ENDS = ("Scheduler hit an exception", "hit an exception:", "Initialization failed.", "Capture cuda graph failed")
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Failure)(?::.*)?$")
_HINTS = re.compile(
    r"[Ee]rror|[Aa]ssert|memory|NCCL|nccl|code:? -\d|Watchdog|watchdog|[Ss]igquit|SIGQUIT|scheduler|crashed|invalid|"
    r"driver|kernel|[Aa]ddress|safetensors|Safetensor|EADDR|device|Header|Buffer|weights|appear|Connection|ProcessGroup|"
    r"huggingface|LocalEntry|offline|load key"
)


@dataclasses.dataclass(frozen=True)
class Trouble:
    """What was seen so far."""

    seen: bool = False
    """Anything that ends a server."""
    traceback: str = ""
    """Inside one: ``fatal``, ``plain`` or ``benign``; empty: not inside one."""
    score: int = -1
    best: Verdict | None = None

    def see(self, text: str, message: str, stamped: bool, phase: Phase) -> Trouble:
        """One line, cleaned. `message` is `text` without its log prefix."""
        if any(words in message for words in _BENIGN):
            return dataclasses.replace(self, traceback="benign") if _TRACEBACK in message else self
        ends = any(words in message for words in _ENDS)
        if _TRACEBACK in message:
            kind = "fatal" if ends else self.traceback or "plain"
            return dataclasses.replace(self, traceback=kind, seen=self.seen or ends)
        if self.traceback and not stamped and _EXCEPTION.match(message):
            inside, closed = self.traceback, dataclasses.replace(self, traceback="")
            if inside == "benign":
                return closed
            return closed._weigh(text, message, phase, in_fatal=inside == "fatal", unknown=1)
        if self.traceback == "benign" and not stamped:
            return self
        if not ends and not _HINTS.search(message):
            return self
        return self._weigh(text, message, phase, in_fatal=ends, unknown=0 if ends else None)

    def _weigh(self, text: str, message: str, phase: Phase, *, in_fatal: bool, unknown: int | None) -> Trouble:
        cause = next((one for one in CAUSES if one.pattern.search(message)), None)
        if cause is None and unknown is None:
            return self
        fatal = in_fatal or (cause is not None and cause.fatal)
        weight = unknown if cause is None else cause.weight
        score = (weight or 0) + (10 if fatal and weight else 0)
        seen = dataclasses.replace(self, seen=self.seen or fatal)
        if score <= self.score:
            return seen
        kind = "exception" if cause is None else cause.kind
        return dataclasses.replace(seen, score=score, best=Verdict(kind, text[:_MAX_TEXT], _advice(cause, text, phase)))

    def verdict(self, *, ended: bool) -> Verdict | None:
        """The cause, once the server is known to be going down (`ended`: because its process is gone)."""
        return self.best if self.seen or ended else None


def refusal(reason: str) -> Verdict:
    """The patch itself ended the server."""
    advice = "The patch could not be sure of right data and ended the server: change what it names and start again."
    return Verdict("patch-refused", reason, advice)


def _advice(cause: Cause | None, text: str, phase: Phase) -> str:
    if cause is None:
        return "An exception that is not in the table of known causes: read the lines above it."
    if cause.kind == "gpu-oom":
        if phase in (Phase.SPAWNING, Phase.INITIALISING):
            return _OOM_EARLY
        return _OOM_ADVICE.get(phase, _OOM_RUNTIME)
    if cause.kind == "disk-full":
        where = "/dev/shm" if "/dev/shm" in text else "the file system of the path in the line"
        return f"No space is left on {where}: free some (inodes too: `df -i`), then start again."
    return cause.advice
