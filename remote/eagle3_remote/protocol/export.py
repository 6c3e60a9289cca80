"""Datasets rewritten for other trainers, and vocabulary mappings."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ExportSpec:
    """What a person asks for when a dataset is exported."""

    dataset: str
    format: str
    """``speculators``, ``speculators-v1``, ``specforge``, ``modelopt`` or ``pt``."""
    to: str
    final: str = ""
    """``pre`` or ``post``; empty: the format's own."""
    dtype: str = ""
    """Empty: as stored."""
    model: str = ""
    """Where the target model lies now; empty: where it lay when the dataset was made."""
    python: str = ""
    """The Python with torch; empty: that of the jobs of this box."""


@dataclasses.dataclass(frozen=True)
class VocabMapSpec:
    """What a person asks for when a vocabulary mapping is made."""

    dataset: str
    to: str
    """A directory, or a file that ends in ``.pt``."""
    draft_vocab: int = 0
    """0: count only."""
    model: str = ""
    python: str = ""


@dataclasses.dataclass(frozen=True)
class VocabMapReport:
    """What was counted and written."""

    dataset: str
    samples: int
    tokens: int
    """Positions that count (loss_mask is 1)."""
    distinct: int
    """Different token ids among them."""
    vocab_size: int
    draft_vocab: int
    covered: float
    """Share of the counted tokens that the draft vocabulary holds; 1.0 where it is not cut."""
    files: tuple[str, ...]
