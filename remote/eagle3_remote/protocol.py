"""Messages between console and agent, as frozen dataclasses. Standard library only, importable on both sides.

The agent speaks JSON-RPC 2.0, one object a line, over its stdin and stdout. Calls (params are always an object):

===================  ==============================================================  =========================
method               params                                                          result
===================  ==============================================================  =========================
hello                protocol: int                                                   `Hello`
snapshot             paths: dict[label, path]                                        `Snapshot`
doctor               `DoctorQuery`                                                   `Facts`
server.plan          `ServerSpec`                                                    `LaunchPlan`
server.start         `ServerSpec`                                                    `JobStatus`
server.stop          job: str | null                                                 `StopReport`
server.probe         tokens: int                                                     `ProbeReport`
extract.start        `ExtractSpec`                                                   `JobStatus`
extract.stop         job: str | null                                                 `StopReport`
verify               dataset: str                                                    `VerifyReport`
report               job: str | null                                                 `ExtractReport`
jobs.list            kind: str | null                                                list of `JobStatus`
log.read             job: str, inode: int, offset: int, limit: int                   `LogChunk`
===================  ==============================================================  =========================

Everything is pulled: a console that is slow asks less often, and nothing is buffered for it.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any, TypeVar

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024

E_PARSE, E_REQUEST, E_METHOD, E_PARAMS, E_INTERNAL = -32700, -32600, -32601, -32602, -32603
E_REFUSED = 1
"""The box will not do it; the message is a sentence for a person (what, where, why, what to do)."""
E_SERVER = 2
"""The SGLang server did not do what it should."""


class Phase(str, enum.Enum):
    """Where the SGLang server is, as a stable machine word; `SENTENCES` has the human one."""

    NOT_RUNNING = "not-running"
    SPAWNING = "spawning"
    INITIALISING = "initialising"
    LOADING_WEIGHTS = "loading-weights"
    FINISHING_WEIGHTS = "finishing-weights"
    ALLOCATING_KV_CACHE = "allocating-kv-cache"
    CAPTURING = "capturing"
    HTTP_UP = "http-up"
    WARMING_UP = "warming-up"
    READY = "ready"
    BUSY = "busy"
    UNRESPONSIVE = "unresponsive"
    STOPPING = "stopping"
    EXITED = "exited"
    FAILED = "failed"


class JobState(str, enum.Enum):
    """The four honest states of a detached job, and the moment before the first."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    KILLED = "killed"
    REBOOTED = "rebooted"


class ExtractState(str, enum.Enum):
    """Where an extraction is."""

    PLANNING = "planning"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHING = "finishing"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Hello:
    """The agent's half of the handshake."""

    protocol: int
    version: str
    boot_id: str
    pid: int
    user: str
    host: str
    home: str
    """The box folder: releases and runs lie below it."""
    python: str
    clock: float
    """Unix seconds on the box, for display only."""


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """One detached job, judged from its run directory and the process table."""

    id: str
    kind: str
    """``server``, ``extract`` or ``verify``."""
    state: JobState
    pid: int | None
    rc: int | None
    started_at: float | None
    ended_at: float | None
    run_dir: str
    log_path: str
    log_size: int
    log_inode: int


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
    model_class: str | None = None
    max_total_tokens: int | None = None
    chunked_prefill_size: int | None = None
    context_len: int | None = None
    markers: tuple[PatchMarker, ...] = ()
    refused: str | None = None
    """Why the patch refused, where it did."""
    prefill_tps: float | None = None
    running_requests: int | None = None
    queued_requests: int | None = None
    cached_tokens: int = 0
    """Largest ``#cached-token`` of any prefill batch: above 0 means that the radix cache dropped rows."""
    failure: str | None = None
    """Machine word of the cause, for example ``gpu-oom``."""
    root_cause: str | None = None
    """The line of the log that says it."""
    advice: str | None = None
    last_line: str = ""


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
    health_ms: float | None = None
    """How long the last good health answer took; `None` when there was none."""


@dataclasses.dataclass(frozen=True)
class ExtractSpec:
    """What a person asks for when an extraction is started."""

    data: str
    out: str
    server_url: str = ""
    """Empty: the server job that runs on this box."""
    dump_dir: str = ""
    """Empty: the server job's."""
    python: str = ""
    """The Python with torch and safetensors; empty: the server job's."""
    model: str = ""
    """Where ``config.json`` lies; empty: the server job's."""
    boundaries: tuple[int, ...] = ()
    final: str = "pre"
    max_seq_len: int = 0
    """Cut ids and mask here; 0: never cut, over-long samples are rejected."""
    limit: int = 0
    """Only the first so many samples; 0: all."""
    tokens_in_flight: int = 0
    """0: four prefill chunks of the server."""
    on_bad: str = "skip"
    """``skip`` or ``stop``."""


@dataclasses.dataclass(frozen=True)
class ExtractStatus:
    """How far an extraction is. Counters are absolute, so a lost message costs nothing."""

    state: ExtractState
    sentence: str
    job: JobStatus | None = None
    spec: ExtractSpec | None = None
    total: int = 0
    """Samples in the input, rejected ones included."""
    stored: int = 0
    rejected: int = 0
    """Refused before they were sent (bad input)."""
    failed: int = 0
    """Sent, but no right rows came back."""
    in_flight: int = 0
    tokens_in_flight: int = 0
    tokens_total: int = 0
    """Tokens of all valid samples."""
    tokens_stored: int = 0
    bytes_stored: int = 0
    bytes_total: int = 0
    """What the finished dataset will take."""
    samples_per_s: float = 0.0
    """Over the last 30 s."""
    tokens_per_s: float = 0.0
    bytes_per_s: float = 0.0
    mean_samples_per_s: float = 0.0
    """Since this job began to send."""
    elapsed: float = 0.0
    eta: float | None = None
    """Seconds; `None` until the rate is worth a forecast."""
    cut: int = 0
    """Samples cut at ``max_seq_len``."""


@dataclasses.dataclass(frozen=True)
class Mount:
    """One file system that matters for the run."""

    label: str
    """``output``, ``dump``, ``home``."""
    path: str
    total: int
    free: int
    inodes_free: int | None = None


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One row of nvidia-smi."""

    index: int
    name: str
    memory_used: int
    memory_total: int
    utilisation: int | None = None
    temperature: int | None = None


@dataclasses.dataclass(frozen=True)
class Gauges:
    """The box itself."""

    host: str
    cpus: int
    load1: float
    ram_total: int
    ram_available: int
    mounts: tuple[Mount, ...] = ()
    gpus: tuple[Gpu, ...] = ()


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The whole truth in one message."""

    clock: float
    gauges: Gauges
    server: ServerStatus
    extract: ExtractStatus | None = None


@dataclasses.dataclass(frozen=True)
class LogChunk:
    """Bytes of a log. `offset` is where `data` starts; a changed `inode` or a smaller file restarts at 0."""

    inode: int
    offset: int
    data: str
    """Base64 of the raw bytes."""
    next_offset: int
    size: int


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


@dataclasses.dataclass(frozen=True)
class StopReport:
    """What was stopped and what, if anything, is left."""

    job: str
    stopped: bool
    sentence: str
    leftovers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Problem:
    """One sample that is not in the dataset, or one fault of a dataset."""

    where: str
    """``line 4410`` or ``hs_12.safetensors``."""
    kind: str
    reason: str


@dataclasses.dataclass(frozen=True)
class VerifyReport:
    """A dataset re-checked against its own manifest."""

    dataset: str
    ok: bool
    samples: int
    tokens: int
    bytes: int
    problems: tuple[Problem, ...] = ()
    """At most the first 100."""
    problem_count: int = 0
    seconds: float = 0.0
    complete: bool = True
    """Whether every sample that will come is in it; an extraction that was stopped leaves a part."""


@dataclasses.dataclass(frozen=True)
class ExtractReport:
    """Everything about a finished or running extraction that a person would write down."""

    status: ExtractStatus
    dataset: str
    manifest: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    problem_count: int = 0
    server_argv: tuple[str, ...] = ()
    server_env: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DoctorQuery:
    """What the doctor looks at besides the box itself; empty: not asked."""

    python: str = ""
    model: str = ""
    data: str = ""
    out: str = ""
    dump_dir: str = ""
    port: int = 0


@dataclasses.dataclass(frozen=True)
class PythonFact:
    """One interpreter that was looked at."""

    path: str
    found_by: str
    """``--python``, ``running server``, ``VIRTUAL_ENV``, ``conda``, ``PATH`` or a place."""
    version: str = ""
    sglang: str = ""
    """Empty: SGLang is not installed there."""
    missing: tuple[str, ...] = ()
    """Packages that the extraction needs and this Python lacks."""
    error: str = ""


@dataclasses.dataclass(frozen=True)
class ModelFact:
    """What ``config.json`` says (nested ``text_config`` followed)."""

    path: str
    exists: bool
    architecture: str = ""
    num_layers: int = 0
    hidden_size: int = 0
    vocab_size: int = 0
    context_len: int = 0
    dtype: str = ""
    weight_files: int = 0
    weight_bytes: int = 0
    error: str = ""


@dataclasses.dataclass(frozen=True)
class PathFact:
    """A file or directory named by the person."""

    path: str
    exists: bool
    is_dir: bool = False
    size: int = 0
    parent_exists: bool = False
    writable: bool = False
    """For a directory to be made: whether its parent takes it."""
    free: int = 0
    total: int = 0
    error: str = ""


@dataclasses.dataclass(frozen=True)
class PortFact:
    """Whether a TCP port on the box can be bound, and by whom it is held where that can be seen."""

    port: int
    free: bool
    holder: str = ""
    job: str = ""
    """The id of the job where a server of ours holds it."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the doctor saw. The console judges; the box only tells."""

    host: str
    user: str
    system: str
    machine: str
    python: str
    clock: float
    boot_id: str
    pythons: tuple[PythonFact, ...] = ()
    looked_in: tuple[str, ...] = ()
    gauges: Gauges | None = None
    shm_total: int = 0
    shm_free: int = 0
    model: ModelFact | None = None
    data: PathFact | None = None
    out: PathFact | None = None
    dump: PathFact | None = None
    port: PortFact | None = None


T = TypeVar("T")


def encode(value: Any) -> Any:
    """A message as plain JSON values. Enums become their words, tuples lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], value: Any) -> T:
    """A message from plain JSON values. Unknown keys are ignored, so that a newer side may say more.

    Raises:
        ValueError: a required field is missing or has the wrong type; the text names it.
    """
    return typing.cast(T, _decode(kind, value, kind.__name__))


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in typing.get_args(kind):
            return None
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return _decode(inner[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: a list is needed, not {type(value).__name__}")
        item = typing.get_args(kind)[0]
        return tuple(_decode(item, part, f"{where}[{i}]") for i, part in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: an object is needed, not {type(value).__name__}")
        item = typing.get_args(kind)[1]
        return {str(key): _decode(item, part, f"{where}.{key}") for key, part in value.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type, kind), value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: {kind.__name__} is needed, not {type(value).__name__}")
    return value


def _decode_dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: an object is needed, not {type(value).__name__}")
    hints = typing.get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            given[field.name] = _decode(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**given)
