"""Several boxes at once: ``status``, and the screen on more than one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import Sequence
from pathlib import Path

from eagle3_console import fleet, units
from eagle3_console.commands.context import make_plan, make_session
from eagle3_console.dial import leading
from eagle3_console.errors import ConsoleError, UsageError
from eagle3_console.events import CONNECTED, Connection, ConnectionChanged, Event, SnapshotArrived, ended_by
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import Narrator, has_terminal, print_json, print_text
from eagle3_console.keys import shown
from eagle3_console.link.errors import LinkError
from eagle3_console.link.memory import RememberingPrompter
from eagle3_console.link.prompts import TerminalPrompter
from eagle3_console.profiles.hosts import with_remembered
from eagle3_console.recording.recorder import recording
from eagle3_console.session import Session
from eagle3_console.settings import load
from eagle3_console.state import ConsoleState, initial, reduce
from eagle3_remote.protocol import Snapshot


@dataclasses.dataclass(frozen=True)
class Dialled:
    """A session after its first dial."""

    host: str
    session: Session
    fault: LinkError | None
    """Why there is no link."""


async def dial_all(args: argparse.Namespace, narrate: Narrator) -> list[Dialled]:
    """Dial one host after the other, so that a question is about one; what fails does not stop the others.

    Afterwards nobody is asked any more: a screen may be open.
    """
    dialled = []
    for host in dict.fromkeys((args.host, *args.more)):
        prompter = RememberingPrompter(TerminalPrompter())
        session = make_session(argparse.Namespace(**{**vars(args), "host": host}), prompter)
        narrate.line(f"connecting to {host}")
        fault: LinkError | None = None
        try:
            await session.connect()
        except LinkError as error:
            fault = error
            narrate.line(f"{host}: {error}")
        prompter.leave()
        dialled.append(Dialled(host, session, fault))
    return dialled


async def status(args: argparse.Namespace) -> int:
    """One line a box; the exit code is that of the first box that does not answer."""
    narrate = Narrator(quiet=args.quiet or args.json)
    dialled = await dial_all(args, narrate)
    try:
        looks = await asyncio.gather(*(_look(one, _record_path(args.record, one.host, dialled)) for one in dialled))
    finally:
        for one in dialled:
            await one.session.leave()
    lines = [fleet.line(one.host, state) for one, (state, _) in zip(dialled, looks, strict=True)]
    if args.json:
        print_json(lines)
    else:
        print_text("\n".join(_text(line) for line in lines))
    return next((code for _, code in looks if code), ExitCode.GOOD)


async def _look(one: Dialled, record: str) -> tuple[ConsoleState, int]:
    """What one box says now, or why it says nothing, with the exit code of that."""
    now: Snapshot | None = None
    fault: ConsoleError | None = one.fault
    if fault is None:
        try:
            now = await one.session.call("snapshot", {"paths": {}}, Snapshot)
        except ConsoleError as error:
            fault = error
    link = Connection(CONNECTED, CONNECTED, time.time())
    if fault is not None:
        away = fault.exit_code == ExitCode.NO_CONNECTION
        link = Connection("lost", str(fault), time.time()) if away else ended_by(fault, time.time())
    events: list[Event] = [ConnectionChanged(link)]
    if now is not None:
        events.append(SnapshotArrived(now, time.time()))
    state = initial(time.time(), one.host)
    with recording(argparse.Namespace(record=record), one.host) as recorder:
        for event in events:
            state = reduce(state, event)
            if recorder is not None:
                recorder.take(event)
    return state, int(fault.exit_code) if fault is not None else ExitCode.GOOD


def _text(line: fleet.BoxLine) -> str:
    if line.phase is None:
        return f"{line.host}: {line.link}: {line.sentence}"
    parts = [f"server {line.phase}"]
    if line.extract is not None and line.stored is not None and line.total is not None:
        parts.append(f"extraction {line.extract}, {units.number(line.stored)} of {units.number(line.total)} stored")
        parts.append(f"{line.samples_per_s or 0:.1f} samples/s")
        parts.append(units.gb(line.bytes_stored or 0))
        parts.append(f"ETA {units.duration(line.eta)}")
    if line.disk is not None:
        parts.append(f"disk {line.disk}")
    if line.alert is not None:
        parts.append(f"{line.alert.level}: {line.alert.text}")
    return f"{line.host}: {', '.join(parts)}"


async def open_boxes(args: argparse.Namespace) -> int:
    """The screen on several boxes.

    Raises:
        UsageError: there is no terminal for it, or the settings have mistakes.
    """
    from eagle3_console.controller import SessionController
    from eagle3_console.screen import open_fleet

    if not has_terminal():
        hosts = " ".join((args.host, *args.more))
        raise UsageError(f"The list of boxes needs a terminal. Without one: eagle3-console status {hosts}")
    settings = load()
    dialled = await dial_all(args, Narrator())
    for one in dialled:
        one.session.readonly = args.readonly or settings.readonly
    with contextlib.ExitStack() as stack:
        boxes = []
        for one in dialled:
            wish = argparse.Namespace(record=_record_path(args.record, one.host, dialled))
            recorder = stack.enter_context(recording(wish, one.host))
            boxes.append(
                (
                    one.host,
                    SessionController(
                        one.session, make_plan(_of_host(args, one.host)), first=one.fault, keys=shown(settings.keys)
                    ),
                    recorder,
                )
            )
        try:
            return await open_fleet(boxes, settings, readonly=args.readonly, leading=leading(args))
        finally:
            for one in dialled:
                await one.session.leave()


def _of_host(args: argparse.Namespace, host: str) -> argparse.Namespace:
    return with_remembered(argparse.Namespace(**{**vars(args), "host": host}))


def _record_path(path: str, host: str, dialled: Sequence[Dialled]) -> str:
    """A file a box: of several, ``night.ndjson`` becomes ``night-HOST.ndjson``."""
    if not path or len(dialled) == 1:
        return path
    given = Path(path)
    return str(given.with_name(f"{given.stem}-{re.sub(r'[^A-Za-z0-9._-]+', '_', host)}{given.suffix}"))


COMMANDS = {"status": status}
