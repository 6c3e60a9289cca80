"""Opens the screen on a session."""

from __future__ import annotations

from collections.abc import Callable

from eagle3_console.controller import SessionController
from eagle3_console.errors import UsageError
from eagle3_console.flow import RunResult
from eagle3_console.headless import has_terminal
from eagle3_console.plan import Plan
from eagle3_console.recording.recorder import Recorder
from eagle3_console.session import Session
from eagle3_console.settings import load


async def open_screen(
    session: Session,
    plan: Plan,
    *,
    readonly: bool = False,
    demo: Callable[[RunResult], None] | None = None,
    recorder: Recorder | None = None,
) -> int:
    """Run the screen until the person detaches.

    Connecting happens before the screen opens, so that a password or a new host key is asked on the plain terminal.

    Args:
        session: not connected yet.
        plan: what the command line named.
        readonly: watch only.
        recorder: is told every event.
        demo: do the main job without being asked and hand its result to this; what was started ends with the screen.

    Raises:
        UsageError: there is no terminal, or the settings have mistakes.
        LinkError: the box cannot be reached.
    """
    if not has_terminal():
        raise UsageError(
            "The screen needs a terminal. Without one use 'eagle3-console run', or 'server status' and 'extract status' with --json."
        )
    settings = load()
    await session.connect()
    from eagle3_console.ui.app import ConsoleApp

    controller = SessionController(session, plan, whole_run=demo)
    app = ConsoleApp(
        controller, session.where, settings, readonly=readonly, ends_with_us=demo is not None, recorder=recorder
    )
    await app.run_async(mouse=settings.mouse)
    return app.return_code or 0
