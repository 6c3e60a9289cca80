"""The set-up's keys on the dashboard, and when it opens by itself."""

from __future__ import annotations

from typing import Any

from textual.widget import AwaitMount

from eagle3_console.plan import Plan, restart_plan
from eagle3_console.ui.base import ConsoleBase
from eagle3_console.ui.possible import DOWN
from eagle3_console.ui.setup.report import ReportScreen
from eagle3_console.ui.setup.screen import Chosen, SetupScreen, Unsaved
from eagle3_console.ui.setup.seam import ACTS, SetupController


class SetupActions(ConsoleBase):
    """Opens the set-up, and starts everything."""

    opens_setup = True
    """It opens by itself on a box where nothing ran yet."""
    _offered = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unsaved: dict[str, Unsaved] = {}
        """Target -> what was typed there and not saved."""

    def setup_why_not(self, act: str) -> str:
        """Why ``setup`` or ``run_all`` is not possible with this controller and plan; empty: it is."""
        if act not in ACTS:
            return ""
        if not isinstance(self.controller, SetupController):
            return "There is nothing to set up here."
        plan = self.controller.plan
        if act == "run_all" and not (plan.model and plan.data and plan.out):
            return f"Model, data and output are not chosen yet: {self.key_of('setup').shown} opens the set-up."
        return ""

    def offer_setup(self) -> None:
        """Open it where nothing was named and the box has never run anything for us. Once."""
        snapshot = self.state.snapshot
        if self._offered or snapshot is None:
            return
        self._offered = True
        able = self.opens_setup and not self.readonly and self.state.connection.live
        if not able or not isinstance(self.controller, SetupController):
            return
        plan = self.controller.plan
        untouched = snapshot.server.job is None and snapshot.extract is None
        if untouched and not (plan.model or plan.data or plan.out):
            self.open_setup()

    def open_setup(self) -> AwaitMount | None:
        """Choose model, data and output."""
        controller = self.controller
        if not isinstance(controller, SetupController):
            return None
        snapshot = self.state.snapshot
        running = None
        plan = controller.plan
        if snapshot is not None and snapshot.server.spec is not None:
            last = restart_plan(Plan(), snapshot.server.spec)
            running = last if snapshot.server.phase not in DOWN else None
            plan = plan if plan.model else restart_plan(plan, snapshot.server.spec)
        target = self.target
        screen = SetupScreen(
            controller.setup_box,
            plan,
            running,
            target,
            self.glyphs,
            self.key_of("server.restart").shown,
            self._unsaved.get(target),
        )
        return self.push_screen(screen, lambda chosen: self._set_up(chosen, target, screen.unsaved))

    def _set_up(self, chosen: Chosen | None, target: str, unsaved: Unsaved | None) -> None:
        self._unsaved.pop(target, None)
        if chosen is None or not isinstance(self.controller, SetupController):
            kept = ""
            if unsaved is not None:
                self._unsaved[target] = unsaved
                kept = ", what you typed is kept until the console ends"
            self.notify(f"nothing was saved{kept}; {self.key_of('setup').shown} opens the set-up again")
            return
        self.controller.adopt(chosen.plan)
        self.notify(f"saved: {chosen.path}; from now on 'eagle3-console {self.target}' knows it", markup=False)
        if chosen.then == "start":
            self.run_all()

    def run_all(self) -> None:
        """Deploy, server, probe, extraction, verify, report."""
        controller = self.controller
        if isinstance(controller, SetupController):

            async def run() -> None:
                self.push_screen(ReportScreen(await controller.run_all(), self.again))

            self.act("the whole run", run)
