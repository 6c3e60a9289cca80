"""The seam between the screen and the work: what the keys call, and where the events come from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias

from eagle3_console.events import Event
from eagle3_remote.protocol import VerifyReport

LossyAction: TypeAlias = Literal["server-start", "server-restart", "server-stop", "extract-stop", "extract-keyed"]
"""What is asked about before it is done; ``extract-keyed``: extract through a server whose radix cache is on."""


class Controller(Protocol):
    """Acts on one box. Each act returns when it is done or under way; its progress comes as events.

    Every act may raise; the text of the exception is shown as an alert, and the screen stays.
    """

    async def deploy(self) -> None:
        """Put the release on the box, unless it is there."""

    async def server_line(self) -> str:
        """The exact line that a start or a restart would run, and why it has the flags it has; starts nothing."""

    async def server_start(self) -> None:
        """Start the patched server."""

    async def server_restart(self, radix_cache: bool) -> None:
        """Stop the server and start it again, with the prefix cache as asked."""

    async def server_stop(self) -> None:
        """Stop the server."""

    async def extract_start(self, extra_key: bool = False) -> None:
        """Start the extraction, or resume it; with `extra_key` each request has a cache key of its own."""

    async def extract_stop(self) -> None:
        """Let the extraction finish what is in flight and stop; it stays resumable."""

    async def extract_pause(self) -> None:
        """Send nothing more until `extract_resume`; what is in flight is finished."""

    async def extract_resume(self) -> None:
        """Let a paused extraction go on."""

    async def verify(self) -> VerifyReport:
        """Check every file of the newest extraction's dataset against its manifest."""

    async def report(self) -> str:
        """What the newest extraction made, how, and what comes next, as Markdown; no server is needed."""

    async def probe(self) -> None:
        """Send one request through the patched server and check what comes back."""

    async def take_over(self) -> None:
        """Steer the box from here, though another console does."""

    async def reconnect_now(self) -> None:
        """Do not wait for the next try."""

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, until the session ends. Consumed once, by the screen."""

    def losses(self, action: LossyAction) -> list[str]:
        """Sentences for a person: what `action` would lose, and for how long."""
