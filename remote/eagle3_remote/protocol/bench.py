"""How fast a server is for one request at a time."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class BenchSpec:
    """What is measured."""

    decode_tokens: int = 128
    prefill_tokens: int = 2048
    repeats: int = 3
    """The median of so many counts, after one that does not count."""


@dataclasses.dataclass(frozen=True)
class BenchRun:
    """One measurement, as it is kept on the box."""

    at: float
    """Unix seconds of the box."""
    model: str
    sglang_version: str
    decode_tps: float
    """Tokens a second of one stream, from the first token on: the median."""
    prefill_tps: float
    """Prompt tokens a second of one prompt, its one new token included: the median."""
    decode_tokens: int
    prefill_tokens: int
    decode_all: tuple[float, ...] = ()
    prefill_all: tuple[float, ...] = ()
    gpus: tuple[str, ...] = ()
    tp: int = 1
    argv: tuple[str, ...] = ()
    nccl: dict[str, str] = dataclasses.field(default_factory=dict)
    """The ``NCCL_*`` variables of the server's own environment."""
    job: str = ""


@dataclasses.dataclass(frozen=True)
class BenchReport:
    """This measurement and those kept from before, oldest first, of any model."""

    run: BenchRun | None
    """`None`: only the kept ones were asked for."""
    earlier: tuple[BenchRun, ...] = ()
    path: str = ""
    """Where they are kept on the box."""
