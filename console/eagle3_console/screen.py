"""Opens the screen on a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eagle3_console.controller import SessionController
from eagle3_console.errors import UsageError
from eagle3_console.flow import RunResult
from eagle3_console.follow import follow
from eagle3_console.headless import has_terminal
from eagle3_console.keys import shown
from eagle3_console.plan import Plan
from eagle3_console.recording.recorder import Recorder
from eagle3_console.session import Session
from eagle3_console.settings import Settings, load


async def open_fleet(
    boxes: Sequence[tuple[str, SessionController, Recorder | None]],
    settings: Settings,
    *,
    readonly: bool = False,
    leading: Sequence[str] = (),
) -> int:
    """Run the screen on several boxes until the person detaches.

    Args:
        boxes: host, controller and recorder of each; dialled once already.
        settings: the person's own.
        readonly: watch only.
        leading: the options without which the hosts' names would lead elsewhere.
    """
    from eagle3_console.ui.fleet import FleetApp

    app = FleetApp(boxes, settings, readonly=readonly, leading=leading)
    return await app.stay(settings.mouse)


async def open_screen(
    session: Session,
    plan: Plan,
    *,
    readonly: bool = False,
    demo: Callable[[RunResult], None] | None = None,
    recorder: Recorder | None = None,
) -> int:
    """Run the screen until the person detaches; without a terminal for one, follow in plain lines (`follow`).

    Connecting happens before the screen opens, so that a password or a new host key is asked on the plain terminal.

    Args:
        session: not connected yet.
        plan: what the command line named.
        readonly: watch only.
        recorder: is told every event.
        demo: do the main job without being asked and hand its result to this; what was started ends with the screen.

    Raises:
        UsageError: the settings have mistakes, or a demo has no terminal.
        LinkError: the box cannot be reached.
    """
    settings = load()
    if not has_terminal() and demo is not None:
        raise UsageError("The demo's screen needs a terminal. Without one: eagle3-console demo --headless.")
    session.readonly = readonly or settings.readonly
    await session.connect()
    controller = SessionController(session, plan, keys=shown(settings.keys), whole_run=demo)
    if not has_terminal():
        return await follow(controller, session.where, recorder, alerts=settings.alerts)
    from eagle3_console.ui.app import ConsoleApp

    app = ConsoleApp(
        controller, session.where, settings, readonly=readonly, ends_with_us=demo is not None, recorder=recorder
    )
    app.again = session.again
    return await app.stay(settings.mouse)
