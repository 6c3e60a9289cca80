"""Everything the fold of a log remembers."""

from __future__ import annotations

import dataclasses

from eagle3_remote.protocol import PatchMarker
from eagle3_remote.serverlog.trouble import Trouble
from eagle3_remote.serverlog.words import Step


@dataclasses.dataclass(frozen=True)
class LogState:
    """Everything the fold remembers. Frozen: `feed` gives a new one."""

    tail: bytes = b""
    step: Step = Step.UNKNOWN
    spans: tuple[tuple[Step, float | None], ...] = ((Step.UNKNOWN, None),)
    first_stamp: float | None = None
    last_stamp: float | None = None
    """Seconds of the box's wall clock as printed, time zone unknown."""
    ranks: frozenset[str] = frozenset()
    """Every rank that the log names, as it names it."""
    sources: frozenset[str] = frozenset()
    """Where a ``server_args=`` line came from: a second one from there is another server's."""
    loading: frozenset[str] = frozenset()
    """Ranks that began to load weights and have not ended."""
    loaded: frozenset[str] = frozenset()
    begins: bool = False
    """The log has the beginning of a load, so that `loading` can be relied on."""
    slowest: tuple[str, float] | None = None
    """Of the ranks that have loaded: the one that took longest, and its seconds."""
    capturing: frozenset[str] = frozenset()
    shards: tuple[int, int, str | None, str | None, str] | None = None
    """Done, total, rate, time left, and what the bar counts."""
    captured: tuple[int, int] | None = None
    model_class: str | None = None
    sizes: tuple[int, int | None, int] | None = None
    markers: tuple[PatchMarker, ...] = ()
    checked: bool = False
    refused: str | None = None
    prefill_tps: float | None = None
    running: int | None = None
    queued: int | None = None
    cached: int = 0
    active: bool = False
    """A batch is the last that it was heard to do."""
    trouble: Trouble = dataclasses.field(default_factory=Trouble)
    last_line: str = ""
