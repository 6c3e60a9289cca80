"""The SGLang server: what is asked for, how it is launched, what it is doing."""

from __future__ import annotations

import dataclasses
import enum

from eagle3_remote.protocol.jobs import JobStatus


class Phase(str, enum.Enum):
    """Where the SGLang server is, as a stable machine word; `ServerStatus.sentence` has the human one."""

    NOT_RUNNING = "not-running"
    SPAWNING = "spawning"
    INITIALISING = "initialising"
    DOWNLOADING = "downloading"
    LOADING_WEIGHTS = "loading-weights"
    FINISHING_WEIGHTS = "finishing-weights"
    ALLOCATING_KV_CACHE = "allocating-kv-cache"
    WARMING_KERNELS = "warming-kernels"
    CAPTURING = "capturing"
    HTTP_UP = "http-up"
    WARMING_UP = "warming-up"
    READY = "ready"
    BUSY = "busy"
    UNRESPONSIVE = "unresponsive"
    STUCK = "stuck"
    """No progress where progress is due; the sentence says what was seen."""
    STOPPING = "stopping"
    EXITED = "exited"
    FAILED = "failed"


STARTING = (
    Phase.SPAWNING,
    Phase.INITIALISING,
    Phase.DOWNLOADING,
    Phase.LOADING_WEIGHTS,
    Phase.FINISHING_WEIGHTS,
    Phase.ALLOCATING_KV_CACHE,
    Phase.WARMING_KERNELS,
    Phase.CAPTURING,
    Phase.HTTP_UP,
    Phase.WARMING_UP,
)
"""The phases of a start in their usual order. A server may skip some, and go back: a draft model is loaded after the
target's KV cache, and SGLang 0.5.20 and newer may commit the weights after graph capture."""


@dataclasses.dataclass(frozen=True)
class ServerSpec:
    """What a person asks for when a server is started."""

    model: str
    python: str
    port: int = 30000
    host: str = "127.0.0.1"
    tp: int = 1
    boundaries: tuple[int, ...] = ()
    """Empty: SGLang's default for the model's layers."""
    final: str = "pre"
    dump_dir: str = ""
    """Empty: ``/dev/shm/eagle3-console/<job>``."""
    radix_cache: bool = False
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    share_gpus: bool = False
    """Start on GPUs though somebody else holds memory of them."""
    tokens_in_flight: int = 0
    """What the extraction will keep at the server; 0: four prefill chunks of SGLang's own choice."""


@dataclasses.dataclass(frozen=True)
class LaunchPlan:
    """The exact line that will run, and why it has the flags it has."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """Only what is set on top of the box's own environment."""
    sglang_version: str
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PatchMarker:
    """One rank's marker line."""

    patch: str
    sglang: str
    model_class: str
    num_layers: int
    hidden_size: int
    boundaries: tuple[int, ...]
    final: str
    tp_rank: int
    tp_size: int
    writes: bool


@dataclasses.dataclass(frozen=True)
class PhaseSpan:
    """When a phase began, in seconds since the job started; `None` where the log carries no usable clock."""

    phase: Phase
    at: float | None
    stamp: float | None = None
    """The same as the log's own stamps print it: seconds of the box's wall clock, taken as if it were UTC."""


@dataclasses.dataclass(frozen=True)
class ServerLog:
    """What the server's log says, folded by a pure function on the box."""

    phase: Phase = Phase.SPAWNING
    spans: tuple[PhaseSpan, ...] = ()
    shards_done: int | None = None
    shards_total: int | None = None
    shard_rate: str | None = None
    """As tqdm printed it: ``8.00it/s`` or ``4.04s/it``."""
    shard_eta: str | None = None
    slowest_rank: str | None = None
    """While some ranks have loaded and others have not: one that has not. Afterwards: the one that took longest."""
    waiting_ranks: tuple[str, ...] = ()
    """Ranks that still load while others have finished."""
    model_class: str | None = None
    max_total_tokens: int | None = None
    chunked_prefill_size: int | None = None
    context_len: int | None = None
    markers: tuple[PatchMarker, ...] = ()
    checked: bool = False
    """The patch has found the rows of a first prefill right on every rank."""
    refused: str | None = None
    """Why the patch refused, where it did."""
    prefill_tps: float | None = None
    running_requests: int | None = None
    """``#running-req`` of the last batch: requests being decoded."""
    queued_requests: int | None = None
    cached_tokens: int = 0
    """Largest ``#cached-token`` of any prefill batch: above 0 means that the radix cache dropped rows."""
    failure: str | None = None
    """Machine word of the cause, for example ``cuda_oom``."""
    root_cause: str | None = None
    """The line of the log that says it, without its prefix."""
    failed_rank: str | None = None
    """The rank that said it, as the log names it (``TP3``, ``DP1 TP0``, ``rank 3``); `None`: it does not say."""
    certain: bool = False
    """The log names the cause in so many words, on the way down; otherwise it is the likeliest reading."""
    advice: str | None = None
    last_line: str = ""


@dataclasses.dataclass(frozen=True)
class ServerMetrics:
    """What ``/metrics`` says, where it is on; `None`: this server does not say it."""

    running: int | None = None
    """Requests being decoded (``num_running_reqs``, 0.5.9 and 0.5.23): 0 while prefill alone keeps the server busy."""
    queued: int | None = None
    gen_tps: float | None = None
    """New tokens a second of the last decode batches."""
    token_usage: float | None = None
    """Share of the KV pool in use, 0 to 1."""
    cache_hit_rate: float | None = None
    """Share of prompt tokens that came from the prefix cache, 0 to 1."""


@dataclasses.dataclass(frozen=True)
class Restart:
    """One restart of a crashed server by its supervisor."""

    at: float
    """Unix seconds of the crash."""
    kind: str
    """Machine word of the cause; empty where the log names none."""
    reason: str


@dataclasses.dataclass(frozen=True)
class ServerStatus:
    """The truth about the server: process identity, log and HTTP together."""

    phase: Phase
    sentence: str
    job: JobStatus | None = None
    spec: ServerSpec | None = None
    dump_dir: str = ""
    sglang_version: str = ""
    argv: tuple[str, ...] = ()
    log: ServerLog = dataclasses.field(default_factory=ServerLog)
    uptime: float | None = None
    """Seconds since the job started."""
    last_start: float | None = None
    """Seconds that the last start of this model took until it was ready; `None`: not known, or this one is over."""
    health_ms: float | None = None
    """How long the last good health answer took; `None` when there was none."""
    metrics: ServerMetrics | None = None
    """`None`: off (``--enable-metrics``), or not answered yet."""
    extra_key: bool = False
    """Whether requests under an ``extra_key`` of their own are kept apart in the radix cache of this SGLang."""
    watched: bool = False
    """It is started again when it crashes while an extraction runs."""
    restarts: tuple[Restart, ...] = ()


@dataclasses.dataclass(frozen=True)
class ProbeReport:
    """One request through the patched server, checked end to end."""

    ok: bool
    sent: int
    prompt_tokens: int
    dumped: int
    cached: int
    layers: int
    sentence: str
