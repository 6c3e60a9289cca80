"""What the console knows, and the one pure function by which an event changes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from eagle3_console import units
from eagle3_console.alerts import EXTRACTING, SERVING, Sample, conditions, fresh, of_link, of_work, sample_of
from eagle3_console.alerts.link import LOST_AFTER
from eagle3_console.events import (
    Alert,
    AlertRaised,
    Connection,
    ConnectionChanged,
    Event,
    Greeted,
    LogArrived,
    LogRestarted,
    Narration,
    Planned,
    SnapshotArrived,
    Status,
    StepChanged,
    WorkSeen,
)
from eagle3_console.keys import SHOWN
from eagle3_remote.protocol import (
    STARTING,
    ExtractState,
    ExtractStatus,
    Hello,
    Phase,
    Snapshot,
    Verified,
    WorkState,
    WorkStatus,
)

STEP_NAMES = ("deploy", "server", "probe", "extract", "verify")
HISTORY = 1800
"""Samples kept for the plots; with `HISTORY_EVERY` this is one hour."""
HISTORY_EVERY = 2.0
"""Seconds of the box between two samples."""
MAX_ALERTS = 200
MAX_NOTES = 200


@dataclasses.dataclass(frozen=True)
class Step:
    """One line of the checklist."""

    name: str
    status: Status = "todo"
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class ConsoleState:
    """Everything that is drawn. Bounded: hours of it take no more memory than minutes."""

    connection: Connection
    hello: Hello | None = None
    snapshot: Snapshot | None = None
    kept: ExtractStatus | None = None
    """What was last counted of the output that an extraction now plans to go on with, until that has counted itself."""
    as_of: float | None = None
    """This machine's Unix clock when `snapshot` came."""
    lost_since: float | None = None
    """This machine's Unix clock since there is no link; `None`: there is one."""
    steps: tuple[Step, ...] = tuple(Step(name) for name in STEP_NAMES)
    alerts: tuple[Alert, ...] = ()
    """Oldest first, each cause once."""
    notes: tuple[Narration, ...] = ()
    """What was being done, oldest first."""
    work: tuple[WorkStatus, ...] = ()
    """Exports, merges and removals that run on the box."""
    plan: tuple[str, ...] = ()
    """What an extraction would do, in sentences."""
    history: tuple[Sample, ...] = ()
    keys: Mapping[str, str] = dataclasses.field(default_factory=lambda: SHOWN, compare=False)
    """Id -> key as this person has it, for sentences that name one."""
    told: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Cause of every alert told -> when it was last seen."""


def initial(now: float, target: str, keys: Mapping[str, str] = SHOWN) -> ConsoleState:
    """The state before the first event."""
    return ConsoleState(Connection("connecting", f"connecting to {target}", now), lost_since=now, keys=keys)


def reduce(state: ConsoleState, event: Event) -> ConsoleState:
    """The state after one event. Log bytes are not part of it: the log view keeps its own ring."""
    match event:
        case ConnectionChanged(connection):
            return _with_connection(state, connection)
        case Greeted(hello):
            return dataclasses.replace(state, hello=hello)
        case SnapshotArrived(snapshot, at):
            return _with_snapshot(state, snapshot, at)
        case StepChanged():
            return dataclasses.replace(state, steps=checklist(state.steps, state.snapshot, event, state.keys))
        case Planned(lines):
            return dataclasses.replace(state, plan=lines)
        case AlertRaised(alert):
            return _with_alerts(state, (alert,), alert.at)
        case Narration(_, at):
            note = event if at is not None else dataclasses.replace(event, at=state.as_of)
            return dataclasses.replace(state, notes=(*state.notes, note)[-MAX_NOTES:])
        case WorkSeen(work, at):
            running = tuple(one for one in work if one.state is WorkState.RUNNING)
            return _with_alerts(dataclasses.replace(state, work=running), of_work(work, at), at)
        case LogArrived() | LogRestarted():
            return state


def checklist(
    steps: tuple[Step, ...], old: Snapshot | None, event: Event, keys: Mapping[str, str] = SHOWN
) -> tuple[Step, ...]:
    """The checklist after one event; `old`: the last snapshot before it."""
    match event:
        case SnapshotArrived(snapshot):
            return _steps_after(steps, old, snapshot, keys)
        case StepChanged(name, status, detail):
            return _set_step(steps, Step(name, status, detail))
        case _:
            return steps


def _with_connection(state: ConsoleState, new: Connection) -> ConsoleState:
    since = None if new.live else state.lost_since if state.lost_since is not None else new.since
    state = dataclasses.replace(state, connection=new, lost_since=since)
    found = tuple(of_link(new, since, state.keys))
    news = tuple(alert for alert in found if alert.cause not in state.told)
    told = {**state.told, **{alert.cause: new.since for alert in found}}
    return dataclasses.replace(state, alerts=(*state.alerts, *news)[-MAX_ALERTS:], told=told)


def _with_snapshot(state: ConsoleState, new: Snapshot, at: float) -> ConsoleState:
    old = state.snapshot
    history = _with_sample(() if old is not None and not _goes_on(old, new) else state.history, new)
    state = dataclasses.replace(
        state,
        snapshot=new,
        kept=_kept(state, new),
        told=_unseen(state.told, at - state.as_of) if state.as_of is not None else state.told,
        as_of=at,
        steps=_steps_after(state.steps, old, new, state.keys),
        history=history,
    )
    return _with_alerts(state, conditions(new, at, history, state.keys), at)


def _unseen(told: Mapping[str, float], gap: float) -> Mapping[str, float]:
    """What was told before nobody could look for so many seconds: it did not go away in them."""
    if gap < LOST_AFTER:
        return told
    return {cause: seen if cause.startswith("link-") else seen + gap for cause, seen in told.items()}


def _with_alerts(state: ConsoleState, found: tuple[Alert, ...], at: float) -> ConsoleState:
    news, told = fresh(state.told, found, at)
    return dataclasses.replace(state, alerts=(*state.alerts, *news)[-MAX_ALERTS:], told=told)


def earlier(state: ConsoleState) -> bool:
    """Whether the box's newest extraction is one of before: the run or the start under way now has not made its own yet."""
    extract = state.snapshot.extract if state.snapshot is not None else None
    if extract is None or extract.state in EXTRACTING:
        return False
    status = next(step.status for step in state.steps if step.name == "extract")
    over = extract.state in (ExtractState.FINISHED, ExtractState.FAILED)
    return status == "running" or (over and status == "todo")


def extract_id(snapshot: Snapshot) -> str | None:
    """The job of the box's newest extraction."""
    return snapshot.extract.job.id if snapshot.extract is not None and snapshot.extract.job is not None else None


def _kept(state: ConsoleState, new: Snapshot) -> ExtractStatus | None:
    extract, old = new.extract, state.snapshot.extract if state.snapshot is not None else None
    if extract is None or extract.state is not ExtractState.PLANNING or extract.total:
        return None
    known = old if old is not None and old.total else state.kept
    same = (
        known is not None and known.spec is not None and extract.spec is not None and known.spec.out == extract.spec.out
    )
    return known if same else None


def _goes_on(old: Snapshot, new: Snapshot) -> bool:
    """Whether the plots go on: the same extraction, or one that was started again on the same output."""
    if extract_id(old) == extract_id(new):
        return True
    outs = [one.extract.spec.out if one.extract is not None and one.extract.spec else "" for one in (old, new)]
    return outs[0] == outs[1] != ""


def _with_sample(history: tuple[Sample, ...], snapshot: Snapshot) -> tuple[Sample, ...]:
    if history and snapshot.clock - history[-1].t < HISTORY_EVERY:
        # A box clock that was set back starts the plot afresh rather than silencing it until it has caught up.
        return history if snapshot.clock >= history[-1].t - HISTORY_EVERY else _with_sample((), snapshot)
    return (*history, sample_of(snapshot))[-HISTORY:]


def _set_step(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    return tuple(step if known.name == step.name else known for known in steps)


def _seen_steps(snapshot: Snapshot, keys: Mapping[str, str]) -> dict[str, Step]:
    """What a snapshot alone says about the checklist: a console that attaches late shows the same ticks."""
    seen: dict[str, Step] = {}
    server, extract = snapshot.server, snapshot.extract
    if server.job is not None:
        seen["deploy"] = Step("deploy", "done")
    if server.phase in STARTING:
        seen["server"] = Step("server", "running", server.phase.value)
    elif server.phase in SERVING:
        seen["server"] = Step("server", "done")
    elif server.phase in (Phase.FAILED, Phase.UNRESPONSIVE, Phase.STUCK):
        seen["server"] = Step("server", "failed", server.phase.value)
    elif server.phase in (Phase.EXITED, Phase.STOPPING):
        seen["server"] = Step("server", "todo", server.phase.value)
    if extract is not None:
        done = units.percent(extract.stored, extract.total).strip()
        if extract.state in EXTRACTING:
            done = done if extract.total else extract.state.value
            detail = done if extract.state is not ExtractState.PAUSED else f"{done} paused"
            seen["extract"] = Step("extract", "running", detail)
        elif extract.state is ExtractState.FINISHED:
            seen["extract"] = Step("extract", "done", f"{extract.failed} failed" if extract.failed else "")
            if snapshot.array is None:
                seen["verify"] = _verify_step(extract.verified, keys)
        elif extract.state is ExtractState.STOPPED:
            seen["extract"] = stopped_step(extract)
        else:
            seen["extract"] = Step("extract", "failed", f"at {done}")
    return seen


def stopped_step(extract: ExtractStatus) -> Step:
    """An extraction that was stopped: it is to be done, not failed."""
    return Step("extract", "todo", f"stopped at {units.percent(extract.stored, extract.total).strip()}")


def _verify_step(verified: Verified | None, keys: Mapping[str, str]) -> Step:
    """What the box knows of the check of a finished dataset, or that it comes next."""
    if verified is None:
        return Step("verify", "todo", f"next: {keys['verify']}")
    return Step("verify", "done" if verified.ok else "failed", f"{verified.samples} samples, {verified.faults} faults")


def _steps_after(
    steps: tuple[Step, ...], old: Snapshot | None, new: Snapshot, keys: Mapping[str, str]
) -> tuple[Step, ...]:
    """A change on the box moves the checklist; a step the session set by itself stays until the box changes."""
    before, after = _seen_steps(old, keys) if old is not None else {}, _seen_steps(new, keys)
    another = old is not None and extract_id(old) != extract_id(new)
    if another:
        steps = _set_step(steps, Step("verify"))
        before = {name: step for name, step in before.items() if name not in ("extract", "verify")}
    for name, step in after.items():
        was = before.get(name)
        known = next(item for item in steps if item.name == name)
        if was is None or was.status != step.status or known.status == step.status:
            steps = _set_step(steps, step)
    old_job = old.server.job.id if old is not None and old.server.job is not None else None
    if old_job is not None and new.server.job is not None and new.server.job.id != old_job:
        steps = _set_step(steps, Step("probe"))
    return steps
