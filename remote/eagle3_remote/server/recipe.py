"""What an extraction needs of the server's command line, for every version: data, no code.

Spellings are those of SGLang's own argument parsers, 0.5.4.post3 to 0.5.23 (``srt/server_args.py``, from 0.5.16 on also
``srt/arg_groups/``); `tests/patch/test_launch_lines.py` holds them against the nine real ones.
"""

from __future__ import annotations

import dataclasses

Version = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Spelling:
    """How the versions ``since <= version < until`` write it."""

    flag: str
    since: Version = (0, 0, 0)
    until: Version = (99, 0, 0)


@dataclasses.dataclass(frozen=True)
class Measure:
    """One thing that every server of ours needs."""

    what: str
    why: str
    spellings: tuple[Spelling, ...]
    otherwise: str = ""
    """Why a version that has no flag for it needs none; empty: every version has one."""


RADIX_OFF = Measure(
    "radix cache off",
    "a cached prefix never passes the layers, and its rows are lost",
    (Spelling("--disable-radix-cache"),),
)

MEASURES: tuple[Measure, ...] = (
    Measure(
        "CUDA graphs off",
        "a replayed graph runs no capture of hidden states; it also saves minutes at start and GPU memory",
        (Spelling("--disable-cuda-graph", until=(0, 5, 16)), Spelling("--disable-decode-cuda-graph", since=(0, 5, 16))),
    ),
    Measure(
        "prefill graphs off",
        "this version captures them by default, and a replayed graph runs no capture of hidden states",
        (
            Spelling("--disable-piecewise-cuda-graph", since=(0, 5, 10), until=(0, 5, 16)),
            Spelling("--disable-prefill-cuda-graph", since=(0, 5, 16)),
        ),
        otherwise="no flag for it here: they are captured only when asked for, and the patch refuses where they are on",
    ),
    Measure(
        "fused all-reduce off",
        "with it the rows of a rank are partial sums",
        (Spelling("--enforce-disable-flashinfer-allreduce-fusion", since=(0, 5, 10)),),
        otherwise="no flag for it here: the patch takes the captured layers out of it",
    ),
    Measure(
        "warm-up skipped",
        "its request would pass the patched layers for nothing; the patch checks its rows in the first prefill, which is "
        "the probe's",
        (Spelling("--skip-server-warmup"),),
    ),
    Measure(
        "metrics on",
        "the console reads running and queued requests and token rates from /metrics",
        (Spelling("--enable-metrics"),),
    ),
)


@dataclasses.dataclass(frozen=True)
class Contradiction:
    """Arguments that would undo what an extraction, or the console, needs."""

    flags: tuple[str, ...]
    why: str
    harmless: tuple[str, ...] = ()
    """Values with which they undo nothing."""
    only_radix_off: bool = False
    """They contradict the recipe only while the radix cache is off."""


_GRAPHS = "a replayed CUDA graph runs no capture of hidden states"
_FUSION = "with the fused all-reduce the rows of a rank are partial sums"
_RADIX = "the radix cache is off, because a cached prefix never passes the layers"
_HTTP = "the console, the probe and the extraction speak plain HTTP to the server"

CONTRADICTIONS: tuple[Contradiction, ...] = (
    Contradiction(
        (
            "--enable-piecewise-cuda-graph",
            "--enforce-piecewise-cuda-graph",
            "--enable-breakable-cuda-graph",
            "--cuda-graph-config",
        ),
        _GRAPHS,
    ),
    Contradiction(("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill"), _GRAPHS, harmless=("disabled",)),
    Contradiction(
        (
            "--enable-flashinfer-allreduce-fusion",
            "--flashinfer-allreduce-fusion-backend",
            "--enable-aiter-allreduce-fusion",
        ),
        _FUSION,
    ),
    Contradiction(
        ("--enable-hierarchical-cache", "--enable-hicache", "--enable-lmcache", "--enable-session-radix-cache"),
        _RADIX,
        only_radix_off=True,
    ),
    Contradiction(
        ("--allow-auto-truncate",),
        "a prompt that is cut without a word no longer fits its loss mask; use --max-seq-len",
    ),
    Contradiction(
        ("--log-level",),
        "the console reads the server's phases and faults from its log",
        harmless=("info", "debug"),
    ),
    Contradiction(
        ("--grpc-mode", "--smg-grpc-mode", "--encoder-only", "--ssl-keyfile", "--ssl-certfile"),
        _HTTP,
    ),
)

CHUNKS_IN_FLIGHT = 4
"""The extraction keeps so many prefill chunks of tokens at the server."""
CHUNK_MULTIPLE = 128
"""A prefill chunk is a multiple of the KV cache's page size, which is at most this (``server_args.py``, 0.5.4 to 0.5.23)."""
MAX_PREFILL_TOKENS = 16384
"""SGLang's default of ``--max-prefill-tokens``, in every version: a larger chunk is cut to it."""

HEALTH_VARIABLE = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
HEALTH_SINCE: Version = (0, 5, 6)
"""`HEALTH_VARIABLE` exists from 0.5.6 (``entrypoints/http_server.py``)."""
