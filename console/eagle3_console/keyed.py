"""What a person is told of an extraction through a server whose radix cache is on. Pure."""

from __future__ import annotations

from eagle3_console import units
from eagle3_remote.protocol import Phase, ServerStatus


def avoided(server: ServerStatus | None) -> str:
    """That no restart is needed, and how long one would have taken, by the last start."""
    took = None
    if server is not None:
        took = next((span.at for span in server.log.spans if span.phase is Phase.READY), None)
    restart = "A restart" if took is None else f"A restart of {units.duration(took)}"
    return (
        f"{restart} is avoided: every request goes under a cache key of its own, so every row is computed "
        "(proven by the same prompt sent twice)."
    )


def offer(server: ServerStatus | None) -> list[str]:
    """What a person weighs before taking it."""
    return [
        avoided(server),
        "What others have in the server's cache may be pushed out of it.",
    ]
