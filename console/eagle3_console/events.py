"""What happens to a console. The session sends these; `eagle3_console.state.reduce` and the log view take them."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from eagle3_console.errors import ConsoleError
from eagle3_console.exit_codes import ExitCode
from eagle3_remote.protocol import Hello, Snapshot, WorkStatus

Status: TypeAlias = Literal["todo", "running", "done", "failed"]
Level: TypeAlias = Literal["info", "warning", "error"]

CONNECTED = "connected"
"""The one `Connection.word` under which what is shown is live."""
UNDER_WAY = ("connecting", "attaching")
"""The words of a link that is being made: nothing to tell anybody yet."""
ENDED = ("refused", "stopped")
"""The words of a link that is not made again by itself: a person must mend something first."""


@dataclasses.dataclass(frozen=True)
class Connection:
    """The link to the box."""

    word: str
    """Stable machine word: ``connecting``, ``attaching``, ``connected``, ``silent``, ``lost``, ``waiting``, ``refused``
    (the login, or the host key), ``stopped`` (anything else that a person must mend first)."""
    sentence: str
    """For a person, with what happens next: ``link lost; trying again at 14:03:31 (try 3)``."""
    since: float
    """Unix seconds, this machine's clock."""
    latency_ms: float | None = None
    next_try: float | None = None
    """When the box is dialled again by itself, Unix seconds, this machine's clock; `None`: nothing is waited for."""
    exit_code: int = 0
    """Of the error, where nothing is tried by itself any more: what a command without a screen ends with."""

    @property
    def live(self) -> bool:
        """Whether what is on the screen is what is so now."""
        return self.word == CONNECTED


def ended_by(error: ConsoleError, at: float) -> Connection:
    """The link when `error` has ended it and a person must mend something before it is tried again. `at`: Unix seconds."""
    word = "refused" if error.exit_code == ExitCode.LOGIN else "stopped"
    return Connection(word, str(error), at, exit_code=int(error.exit_code))


@dataclasses.dataclass(frozen=True)
class Alert:
    """Something that a person wants to know at three in the morning."""

    at: float
    """Unix seconds, this machine's clock."""
    level: Level
    cause: str
    """Stable machine word; an alert is raised once a cause."""
    text: str
    cure: str = ""
    """What to do about it."""


@dataclasses.dataclass(frozen=True)
class ConnectionChanged:
    """The link is in another state, or its latency was measured anew."""

    connection: Connection


@dataclasses.dataclass(frozen=True)
class Greeted:
    """The agent answered the handshake."""

    hello: Hello


@dataclasses.dataclass(frozen=True)
class SnapshotArrived:
    """The whole truth about the box; `at` is this machine's Unix clock."""

    snapshot: Snapshot
    at: float


@dataclasses.dataclass(frozen=True)
class LogArrived:
    """Raw bytes of a job's log; `offset` is where `data` starts in the file."""

    job: str
    data: bytes
    offset: int


@dataclasses.dataclass(frozen=True)
class LogRestarted:
    """Another job's log follows, or the file was cut or replaced: what was shown no longer continues."""

    job: str


@dataclasses.dataclass(frozen=True)
class StepChanged:
    """A step of the checklist (`eagle3_console.state.STEP_NAMES`) begins, succeeds or fails."""

    name: str
    status: Status
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Planned:
    """What an extraction would do, in sentences, shown until there is one."""

    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class AlertRaised:
    """The session itself has something to say, for example that an action was refused."""

    alert: Alert


@dataclasses.dataclass(frozen=True)
class Narration:
    """One sentence about what is being done: ``uploading release 3f2a (412 kB)``."""

    text: str
    at: float | None = None
    """Unix seconds; `None`: the time of the last snapshot."""
    aside: bool = False
    """For the events alone: it is no part of what is being done now."""


@dataclasses.dataclass(frozen=True)
class WorkSeen:
    """Exports, merges and removals that run on the box, and once those that have just ended; `at` is this machine's clock."""

    work: tuple[WorkStatus, ...]
    at: float


Event: TypeAlias = (
    ConnectionChanged
    | Greeted
    | SnapshotArrived
    | LogArrived
    | LogRestarted
    | StepChanged
    | Planned
    | AlertRaised
    | Narration
    | WorkSeen
)
