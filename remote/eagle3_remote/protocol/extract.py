"""Extractions and datasets."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from eagle3_remote.protocol.jobs import JobStatus


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
class ExtractServer:
    """A further server behind one extraction."""

    url: str
    dump_dir: str
    """Its own, on this box."""


@dataclasses.dataclass(frozen=True)
class ExtractSpec:
    """What a person asks for when an extraction is started."""

    data: str
    out: str
    server_url: str = ""
    """Empty: the server job that runs on this box."""
    api_key: str = dataclasses.field(default="", repr=False)
    """What a server that somebody else started asks for; on the box it is kept apart from all that is shown."""
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
    """Only the first so many lines of the whole input, with a seed of its shuffled order; 0: all. Raised later, the same dataset goes
    on."""
    tokens_in_flight: int = 0
    """0: four prefill chunks of the server."""
    on_bad: str = "skip"
    """``skip`` or ``stop``."""
    extra_key: bool = False
    """Send every request under a cache key of its own, so that a server whose radix cache is on computes every row."""
    duplicates: str = "keep"
    """Samples that repeat the ids of an earlier one: ``keep`` (extract each) or ``skip`` (refuse them)."""
    shuffle: int | None = None
    """Seed of a shuffled order; `None`: the order of the input."""
    shard: str = ""
    """``i/n``: this part of the input alone; empty: what Slurm, Kubernetes or torchrun say in the environment, else all of it."""
    servers: tuple[ExtractServer, ...] = ()
    """More servers with the same model, beside the first."""
    on_trouble: str = "stop"
    """What three samples in a row that fail in one way do: ``pause`` until ``extract resume``, or ``stop`` with an exit code."""
    probe: bool = True
    """Ask the server a few questions with known answers before anything is sent."""


@dataclasses.dataclass(frozen=True)
class ExtractWish:
    """A wish for an extraction that runs. It outlives the console."""

    action: str
    """``pause``, ``resume`` or ``budget``."""
    tokens: int = 0
    """With ``budget``: so many tokens in flight at each server; 0: as the extraction was started with."""
    job: str | None = None
    """`None`: the one that runs."""


@dataclasses.dataclass(frozen=True)
class ControlReport:
    """What became of the wish."""

    job: str
    sentence: str


@dataclasses.dataclass(frozen=True)
class VerifyQuery:
    """Which dataset is checked, and by which server besides."""

    dataset: str
    server: str = ""
    """Empty: files alone; ``running``: the server job of this box; else a URL."""
    dump_dir: str = ""
    """Of a server that somebody else started; empty: look for it."""


@dataclasses.dataclass(frozen=True)
class Verified:
    """What the last check of a finished dataset came to; it is kept with the dataset."""

    at: float
    """Unix seconds by the box's clock."""
    ok: bool
    samples: int
    faults: int = 0


@dataclasses.dataclass(frozen=True)
class ExtractStatus:
    """How far an extraction is. Counters are absolute, so a lost message costs nothing."""

    state: ExtractState
    sentence: str
    job: JobStatus | None = None
    spec: ExtractSpec | None = None
    total: int = 0
    """Samples read from the input, rejected ones included; more may come until `total_final`."""
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
    """Over the last 30 s that were no pause; 0 while it pauses."""
    tokens_per_s: float = 0.0
    bytes_per_s: float = 0.0
    mean_samples_per_s: float = 0.0
    """Since this job began to send, without its pauses."""
    elapsed: float = 0.0
    eta: float | None = None
    """Seconds; `None` until the rate is worth a forecast, and while it pauses."""
    cut: int = 0
    """Samples cut at ``max_seq_len``."""
    held: str = ""
    """Why it goes on only when a person says so: ``request`` (a person paused it) or ``failures``; empty: by itself."""
    total_final: bool = True
    """Whether the input was read to its end, so that `total`, `tokens_total` and `bytes_total` will not grow."""
    verified: Verified | None = None
    """`None`: not checked since it was finished."""
    nothing_to_do: bool = False
    """The dataset was whole before this job began: it added nothing, and the rates are those of the job that made it."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One sample that is not in the dataset, or one fault of a dataset."""

    where: str
    """``line 4410`` or ``hs_12.safetensors``."""
    kind: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ProbeAnswer:
    """One question to a live server."""

    name: str
    result: str
    """``passed``, ``failed`` or ``not possible``."""
    sentence: str


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
    probes: tuple[ProbeAnswer, ...] = ()
    """Where a live server was asked as well."""
    unchecked: tuple[str, ...] = ()
    """What could not be looked at, and why."""
    to_remake: int = 0
    """Files that are missing or not what was stored: the next extraction into the dataset makes them again."""
    not_kept: str = ""
    """Why a finished dataset does not remember this check; empty: it does, or it is not finished."""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run of an extraction, from its start to its end or to the last time it was heard of."""

    run: str
    began_at: float
    """Unix seconds by the box's clock."""
    seconds: float = 0.0
    state: str = ""
    """How it ended; one that was killed stays in the state it was in."""
    stored: int = 0
    """Samples that this run stored."""
    tokens: int = 0
    bytes: int = 0
    spent: dict[str, float] = dataclasses.field(default_factory=dict)
    """Seconds by what they went to: ``extracting``, ``planning``, ``server away``, ``output full`` and so on."""


@dataclasses.dataclass(frozen=True)
class Training:
    """How a trainer goes on with a dataset."""

    trainer: str
    command: str
    """Lines for a shell."""
    notes: tuple[str, ...] = ()


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
    runs: tuple[RunRecord, ...] = ()
    """Every run that wrote to the dataset, oldest first."""
    training: tuple[Training, ...] = ()
