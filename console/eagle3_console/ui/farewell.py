"""What is said when the screen closes. Pure."""

from __future__ import annotations

from eagle3_console import units
from eagle3_console.alerts import SERVING
from eagle3_console.state import ConsoleState
from eagle3_console.ui.possible import extracting
from eagle3_remote.protocol import STARTING, ExtractState


def farewell(state: ConsoleState, target: str, again: str, ends_with_us: bool, whole_run: bool = False) -> str:
    """What goes on without the console, what of a whole run does not, and how to come back to it."""
    if ends_with_us:
        return "The demo is over: what it started is stopped now."
    running, paused = [], ""
    snapshot = state.snapshot
    if snapshot is not None and snapshot.extract is not None and extracting(snapshot):
        extract = snapshot.extract
        counts = f"{units.number(extract.stored)} of {units.number(extract.total)} samples"
        if extract.state is ExtractState.PAUSED:
            paused = f"The extraction ({counts}) stays paused: {state.keys['extract.pause']} on the screen resumes it. "
        else:
            running.append(f"The extraction ({counts})")
    if snapshot is not None and snapshot.server.phase in (*STARTING, *SERVING):
        running.append("the server" if running else "The server")
    back = f"Come back with: eagle3-console {again}"
    if whole_run:
        back = f"{_waiting(state)} {back}"
    if not running:
        return f"Detached from {target}. {paused}{back}"
    verb = "go on" if len(running) > 1 else "goes on"
    return f"{' and '.join(running)} {verb} on {target}. {paused}{back}"


def _waiting(state: ConsoleState) -> str:
    """What this console would have done itself, one step after the other."""
    keys = state.keys
    if extracting(state.snapshot):
        return (
            f"The check and the report of this run wait for you: {keys['verify']} and {keys['report']} on the screen."
        )
    rest = f"{keys['run.all']} on the screen goes on with them" if "run.all" in keys else "they wait for you"
    return f"The other steps of this run are not begun without the console: {rest}."
