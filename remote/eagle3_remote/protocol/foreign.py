"""SGLang servers on the box that are no jobs of ours."""

from __future__ import annotations

import dataclasses
import enum


class Patched(str, enum.Enum):
    """Whether a server that somebody else started carries the patch, as far as its environment shows."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """Its environment may not be read by this user; a probe decides."""


@dataclasses.dataclass(frozen=True)
class ForeignServer:
    """One such server: what the kernel says of its process, and what it says of itself over HTTP."""

    pid: int
    start_time: int
    """Clock ticks since boot; with `pid` and `boot_id` it names the process for ever."""
    boot_id: str
    user: str
    uptime: float
    """Seconds since the process was started."""
    url: str
    """Where it is reached from this box; empty where it listens nowhere yet."""
    argv: tuple[str, ...] = ()
    """Its command line; keys and tokens are masked."""
    answers: bool = False
    """Whether it told its settings over HTTP."""
    model: str = ""
    version: str = ""
    """Of SGLang; empty where it does not answer."""
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    """Those that matter for an extraction, by SGLang's own names."""
    patched: Patched = Patched.UNKNOWN
    dump_dir: str = ""
    boundaries: str = ""
    """As its environment names them; empty: the model's default, or not known."""
    final: str = ""
    log_path: str = ""
    """The file its output goes to; empty where that is no file, or cannot be seen."""
    job: str = ""
    """The job id where another console's box folder owns it."""
    unfit: tuple[str, ...] = ()
    """Why no extraction can go through it, as far as can be seen without a probe; each a sentence."""
    sentence: str = ""
