"""Who steers the box, for the screen. Pure: state in, words out."""

from __future__ import annotations

from eagle3_console import units
from eagle3_console.state import ConsoleState
from eagle3_remote.protocol import Steering


def other(state: ConsoleState) -> Steering | None:
    """The other console that steers; `None`: this one may."""
    steering = state.snapshot.steering if state.snapshot is not None else None
    return steering if steering is not None and not steering.mine else None


def words(state: ConsoleState, now: float) -> str:
    """``alice@mbp steers since 14:02``, by this machine's clock; empty where no other console does."""
    steering = other(state)
    if steering is None or state.snapshot is None:
        return ""
    ahead = state.snapshot.clock - state.as_of if state.as_of is not None else 0.0
    return f"{steering.name} steers since {units.clock_short(steering.since - ahead, now)}"


def take_over_losses(state: ConsoleState, now: float) -> tuple[str, ...]:
    """What taking over means, as sentences."""
    said = words(state, now)
    return (f"{said}; from then on that console only watches, and is told so.",) if said else ()
