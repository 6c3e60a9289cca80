"""The box itself: handshake, gauges and what the doctor saw."""

from __future__ import annotations

import dataclasses


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
