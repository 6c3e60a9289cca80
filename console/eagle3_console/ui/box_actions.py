"""What the keys do on the box; what would lose something asks first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.widget import AwaitMount

from eagle3_console.link import target as link_target
from eagle3_console.ui import steering
from eagle3_console.ui.controller import LossyAction
from eagle3_console.ui.possible import DOWN, why_not
from eagle3_console.ui.setup.actions import SetupActions
from eagle3_console.ui.setup.report import ReportScreen
from eagle3_console.ui.widgets.dialog import AskDialog, Choice
from eagle3_console.ui.widgets.report_dialog import ReportDialog
from eagle3_remote.protocol import ExtractState, VerifyReport

_INTERRUPTS = ("server-restart", "server-stop", "extract-stop")
"""What ends or interrupts an extraction that runs: the host's name is typed then."""


class BoxActions(SetupActions):
    """Acts on server and extraction."""

    def why_not(self, act: str) -> str:
        """Why an act is not possible now; empty: it is."""
        return why_not(act, self.state, self.readonly) or self.setup_why_not(act)

    async def action_box(self, act: str) -> None:
        """One act by its name, or the reason why it is not possible now."""
        reason = self.why_not(act)
        if reason:
            self.notify(reason, title="Not now", severity="warning", markup=False)
        elif (opened := self._acts[act]()) is not None:
            await opened

    @property
    def _acts(self) -> dict[str, Callable[[], AwaitMount | None]]:
        """What an act opens, where it opens something."""
        return {
            "setup": self.open_setup,
            "run_all": self.run_all,
            "deploy": lambda: self.act("deploy", self.controller.deploy),
            "server_start": self._server_start,
            "server_restart": self._server_restart,
            "probe": lambda: self.act("probe", self.controller.probe),
            "extract_start": self._extract_start,
            "pause": self._pause,
            "verify": lambda: self.act("verify", self._verify),
            "report": lambda: self.act("report", self._report),
            "stop": self._stop,
            "take_over": self._take_over,
            "reconnect": lambda: self.act("reconnect", self.controller.reconnect_now),
        }

    def _choice(self, action: LossyAction, key: str, label: str) -> Choice:
        """`key`: the id of the key that asks and confirms."""
        return Choice(action, self.key_of(key), label, tuple(self.controller.losses(action)))

    def _server_start(self) -> AwaitMount:
        """Show the line, then start the server."""
        choice = self._choice("server-start", "server.start", "Start")
        return self._ask("Start the server?", [choice], self.controller.server_line)

    def _server_restart(self) -> AwaitMount:
        """Ask, then restart the server with the radix cache off."""
        choice = self._choice("server-restart", "server.restart", "Restart")
        return self._ask("Restart the server with the radix cache off?", [choice], self.controller.server_line)

    def _stop(self) -> AwaitMount:
        """Ask what to stop, and say what each would lose."""
        snapshot = self.state.snapshot
        choices = []
        if self.extracting:
            choices.append(self._choice("extract-stop", "stop", "Stop extraction"))
        if snapshot is not None and snapshot.server.phase not in DOWN:
            choices.append(self._choice("server-stop", "server.start" if choices else "stop", "Stop server"))
        return self._ask("Stop what?" if len(choices) > 1 else f"{choices[0].label}?", choices)

    def _extract_start(self) -> AwaitMount | None:
        """Start or resume the extraction; where the radix cache is on, ask how."""
        snapshot = self.state.snapshot
        if snapshot is None or snapshot.server.spec is None or not snapshot.server.spec.radix_cache:
            self.act("extraction start", self.controller.extract_start)
            return None
        choices = [self._choice("server-restart", "server.restart", "Restart with it off")]
        if snapshot.server.extra_key:
            choices.insert(0, self._choice("extract-keyed", "extract.start", "Extract without a restart"))
        return self._ask("The radix cache of the server is on.", choices)

    def _take_over(self) -> AwaitMount:
        """Ask, then steer instead of the other console."""
        losses = steering.take_over_losses(self.state, self.wall())
        return self._ask("Take over steering?", [Choice("take-over", self.key_of("take.over"), "Take over", losses)])

    def _pause(self) -> None:
        """Hold the extraction, or let it go on."""
        extract = self.state.snapshot.extract if self.state.snapshot is not None else None
        if extract is not None and extract.state is ExtractState.PAUSED:
            self.act("resume", self.controller.extract_resume)
        else:
            self.act("pause", self.controller.extract_pause)

    async def _verify(self) -> None:
        report: VerifyReport = await self.controller.verify()
        self.push_screen(ReportDialog.of_verify(report, self.glyphs, self.state.keys))

    async def _report(self) -> None:
        self.push_screen(ReportScreen(await self.controller.report(), self.again))

    def _ask(self, title: str, choices: list[Choice], line: Callable[[], Awaitable[str]] | None = None) -> AwaitMount:
        """Ask; what interrupts an extraction that runs is confirmed by the host's name, of several choices in a second step."""
        guarded = [choice for choice in choices if self.extracting and choice.answer in _INTERRUPTS]
        if not guarded:
            return self.push_screen(AskDialog(title, choices, self.glyphs, line), self._answered)
        if len(choices) == 1:
            dialog = AskDialog(title, choices, self.glyphs, line, type_to_confirm=self._host)
            return self.push_screen(dialog, self._answered)
        dialog = AskDialog(title, choices, self.glyphs, line)
        return self.push_screen(dialog, lambda answer: self._again(answer, choices))

    def _again(self, answer: str | None, choices: list[Choice]) -> None:
        for choice in choices:
            if choice.answer == answer:
                self._ask(f"{choice.label}?", [choice])

    @property
    def _host(self) -> str:
        try:
            return link_target.parse(self.target).host
        except ValueError:
            return self.target

    def _answered(self, answer: str | None) -> None:
        if answer == "server-start":
            self.act("server start", self.controller.server_start)
        elif answer == "server-restart":
            self.act("server restart", lambda: self.controller.server_restart(radix_cache=False))
        elif answer == "extract-keyed":
            self.act("extraction start", lambda: self.controller.extract_start(extra_key=True))
        elif answer == "server-stop":
            self.act("server stop", self.controller.server_stop)
        elif answer == "take-over":
            self.act("take over", self.controller.take_over)
        elif answer == "extract-stop":
            self.act("extraction stop", self.controller.extract_stop)
