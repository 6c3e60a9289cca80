"""What a person who sets a run up asks of the box: names to complete a path with, and what lies at the paths named."""

from __future__ import annotations

import dataclasses

from eagle3_remote.protocol.box import ModelFact, PortFact


@dataclasses.dataclass(frozen=True)
class PathQuery:
    """A path as far as it is typed; ``~`` and relative ones mean the home of the user."""

    typed: str
    folders_only: bool = False
    limit: int = 200


@dataclasses.dataclass(frozen=True)
class PathEntry:
    """One name that the path may go on with."""

    name: str
    is_dir: bool
    size: int = 0
    """Of a file, in bytes."""
    link: str = ""
    """Where a symbolic link points; empty: it is none."""
    broken: bool = False
    """A link to nothing."""


@dataclasses.dataclass(frozen=True)
class PathList:
    """The names in one folder that fit."""

    folder: str
    """As typed, up to and with the last slash."""
    word: str
    """What is typed of the name."""
    entries: tuple[PathEntry, ...] = ()
    """Folders first. Names that begin with the word; where there are none, names that hold it. Hidden ones only after a dot."""
    more: int = 0
    """So many fit besides."""
    begins: bool = True
    """The entries begin with the word, so that what they share can be typed for the person."""
    error: str = ""


@dataclasses.dataclass(frozen=True)
class LookQuery:
    """What to look at; what is empty is not looked at."""

    model: str = ""
    data: str = ""
    out: str = ""
    python: str = ""
    """The Python that has SGLang: tables (Arrow, Parquet) are read with it."""
    input: str = ""
    """The data that are to go to `out`: where they lie counts, they are not read."""
    port: int = 0
    """Looked at, and the first free port from here on is looked for."""
    disks: bool = False
    seconds: float = 10.0
    """For each of them."""


@dataclasses.dataclass(frozen=True)
class ModelLook:
    """A model's folder."""

    fact: ModelFact
    heads: int = 0
    """Attention heads; 0: not said."""
    kv_heads: int = 0
    quantisation: str = ""
    """As ``quantization_config`` names it."""
    shards: int = 0
    """Weight files that there should be."""
    missing: tuple[str, ...] = ()
    """The first of those that are not there, or are cut off."""
    missing_count: int = 0
    boundaries: tuple[int, ...] = ()
    """SGLang's default for this many layers; empty: they are too few for it."""
    fingerprint: str = ""


MOST_LENGTHS = 512


@dataclasses.dataclass(frozen=True)
class DataLook:
    """An input, from samples read here and there in it."""

    path: str
    kind: str = ""
    """``jsonl``, ``jsonl.gz``, ``arrow`` or ``parquet``."""
    files: int = 0
    bytes: int = 0
    unit: str = "line"
    samples: int = 0
    tokens: int = 0
    exact: bool = False
    """`samples` and `tokens` are counted, not estimated."""
    seen: int = 0
    """Samples that were read for this, good or bad."""
    bad: int = 0
    first_bad: str = ""
    longest: int = 0
    """Tokens; of those that were seen."""
    lowest_id: int = 0
    highest_id: int = 0
    highest_at: str = ""
    """Where the highest one was seen."""
    without_mask: int = 0
    lengths: tuple[int, ...] = ()
    """Tokens of some of those that were seen, at most `MOST_LENGTHS`: what a cut would leave can be told from them."""
    error: str = ""
    python_error: str = ""
    """Why the Python that was named could not read it: what lies there is not known then."""
    identity: str = ""
    """Of its contents, as a dataset made of it keeps it; empty: it has too many files to read for a look."""


@dataclasses.dataclass(frozen=True)
class DatasetLook:
    """A dataset of ours that lies at the output."""

    model: str
    same_model: bool | None
    """Whether it was made with the model that was looked at; `None`: that cannot be told."""
    data: str
    boundaries: tuple[int, ...]
    final: str
    max_seq_len: int
    stored: int
    total: int
    complete: bool
    writing: bool
    """An extraction writes it now."""
    input: str = ""
    """The identity of its input, see `DataLook.identity`."""
    settled: int = 0
    """The first so many lines of its input are stored or refused; 0: none, or it is no whole input in its own order."""
    lines: int = 0
    """Of its input, blank ones included; 0: that was not read to its end."""
    samples: int = 0
    """Of all its input that were not refused; 0: see `lines`."""
    tokens: int = 0
    """Of these samples, uncut."""


@dataclasses.dataclass(frozen=True)
class OutLook:
    """Where a dataset is to go."""

    path: str
    exists: bool = False
    is_dir: bool = False
    parent: str = ""
    """The nearest folder above that exists."""
    parent_exists: bool = False
    writable: bool = False
    filesystem: str = ""
    free: int = 0
    total: int = 0
    inodes: int | None = None
    names: tuple[str, ...] = ()
    """Some of what lies there."""
    foreign: str = ""
    """What no extraction of ours wrote, and which would be in the way."""
    dataset: DatasetLook | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Disk:
    """One file system of the box that could take data."""

    path: str
    filesystem: str
    free: int
    total: int


@dataclasses.dataclass(frozen=True)
class Looked:
    """The answer to a `LookQuery`; `None` where nothing was asked."""

    model: ModelLook | None = None
    data: DataLook | None = None
    out: OutLook | None = None
    port: PortFact | None = None
    """The first free port; the one that was asked for, where there is none."""
    asked: PortFact | None = None
    """The port that was asked for."""
    disks: tuple[Disk, ...] = ()
    driver: str = ""
    """Version of the NVIDIA driver; empty: none is loaded."""
