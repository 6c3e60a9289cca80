"""Which acts on the box make sense now, and for the others the reason why not. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from eagle3_console.alerts import EXTRACTING, SERVING
from eagle3_console.keys import Key
from eagle3_console.state import ConsoleState
from eagle3_console.ui import steering
from eagle3_remote.protocol import ExtractState, Phase, Snapshot

_SILENT = "The box has not answered yet."
_READS = ("report",)
"""What changes nothing: possible for a console that only watches, and beside one that steers."""
DOWN = (Phase.NOT_RUNNING, Phase.EXITED, Phase.FAILED)


def extracting(snapshot: Snapshot | None) -> bool:
    """Whether an extraction runs or waits on the box."""
    return snapshot is not None and snapshot.extract is not None and snapshot.extract.state in EXTRACTING


def why_not(act: str, state: ConsoleState, readonly: bool) -> str:
    """A sentence that says why an act is not possible now; empty: it is."""
    live = state.connection.live
    if act == "reconnect":
        return "The link is up." if live else ""
    if not live:
        return "There is no link to the box now."
    if act in _READS:
        return _OF[act](state.snapshot, state.keys) if state.snapshot is not None else _SILENT
    if readonly:
        return "This console only watches (--readonly, or readonly in the settings)."
    steerer = steering.other(state)
    if act == "take_over":
        return "" if steerer is not None else "No other console steers this box."
    if steerer is not None and act not in ("verify", "setup"):
        return f"Another console steers this box: {steerer.name}. Taking over is a key of its own ({state.keys['take.over']})."
    if act == "deploy":
        return ""
    if state.snapshot is None:
        return _SILENT
    return _OF[act](state.snapshot, state.keys)


def _server_start(now: Snapshot, keys: Mapping[str, str]) -> str:
    return (
        ""
        if now.server.phase in DOWN
        else f"A server is there already: {_phase(now)}. {keys['server.restart']} restarts it."
    )


def _server_restart(now: Snapshot, keys: Mapping[str, str]) -> str:
    return (
        ""
        if now.server.job is not None and now.server.phase not in DOWN
        else f"No server of ours runs: {keys['server.start']} starts one."
    )


def _probe(now: Snapshot, keys: Mapping[str, str]) -> str:
    return "" if now.server.phase in SERVING else f"The server does not serve yet: {_phase(now)}."


def _extract_start(now: Snapshot, keys: Mapping[str, str]) -> str:
    if extracting(now):
        return _under_way(keys)
    return "" if now.server.phase in SERVING else f"It needs a server that serves; this one is {_phase(now)}."


def _under_way(keys: Mapping[str, str]) -> str:
    return f"An extraction is under way already: {keys['stop']} stops it."


def _pause(now: Snapshot, keys: Mapping[str, str]) -> str:
    if not extracting(now):
        return "No extraction is under way."
    if now.array is not None:
        return "The tasks of a Slurm array cannot be paused from here."
    assert now.extract is not None
    return "It is about to finish." if now.extract.state is ExtractState.FINISHING else ""


def _verify(now: Snapshot, keys: Mapping[str, str]) -> str:
    return "" if now.extract is not None and now.extract.spec is not None else "Nothing was extracted on this box yet."


def _report(now: Snapshot, keys: Mapping[str, str]) -> str:
    if now.array is not None:
        return "The shards of a Slurm array have no report of their own: merge them first."
    return _verify(now, keys)


def _stop(now: Snapshot, keys: Mapping[str, str]) -> str:
    return "" if now.server.phase not in DOWN or extracting(now) else "Nothing of ours runs on the box."


def _phase(now: Snapshot) -> str:
    return now.server.phase.value.replace("-", " ")


def _setup(now: Snapshot, keys: Mapping[str, str]) -> str:
    return ""


def _run_all(now: Snapshot, keys: Mapping[str, str]) -> str:
    return _under_way(keys) if extracting(now) else ""


_OF = {
    "setup": _setup,
    "run_all": _run_all,
    "server_start": _server_start,
    "server_restart": _server_restart,
    "probe": _probe,
    "extract_start": _extract_start,
    "pause": _pause,
    "verify": _verify,
    "report": _report,
    "stop": _stop,
}


def footer(key: Key, state: ConsoleState) -> int:
    """How much a key is needed in the footer now, as `Key.footer`: the report, once there is a dataset to read of."""
    extract = state.snapshot.extract if state.snapshot is not None else None
    done = extract is not None and extract.state is ExtractState.FINISHED
    return 1 if key.id == "report" and done else key.footer


def label(key: Key, state: ConsoleState) -> str:
    """What a key is called now: one that pauses lets go on what is paused."""
    extract = state.snapshot.extract if state.snapshot is not None else None
    if key.act == "pause" and extract is not None and extract.state is ExtractState.PAUSED:
        return "resume"
    return key.label
