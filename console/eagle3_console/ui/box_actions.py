"""What the keys do on the box, and which of them are possible now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eagle3_console.alerts import SERVING
from eagle3_console.ui import steering
from eagle3_console.ui.base import ConsoleBase
from eagle3_console.ui.controller import LossyAction
from eagle3_console.ui.keys import ACTS
from eagle3_console.ui.widgets.dialog import AskDialog, Choice
from eagle3_remote.protocol import Phase

_DOWN = (Phase.NOT_RUNNING, Phase.EXITED, Phase.FAILED)


class BoxActions(ConsoleBase):
    """Acts on server and extraction; what would lose something asks first."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which keys work now: `None` dims a key, `False` hides it."""
        live = self.state.connection.live
        if action == "reconnect":
            return not live
        if action == "take_over":
            return live and not self.readonly and steering.other(self.state) is not None
        if action not in ACTS:
            return True
        if not live:
            return False
        if self.readonly or steering.other(self.state) is not None:
            return None
        return True if self._possible(action) else None

    def _possible(self, action: str) -> bool:
        snapshot = self.state.snapshot
        if action == "deploy":
            return True
        if snapshot is None:
            return False
        phase = snapshot.server.phase
        if action == "server_start":
            return phase in _DOWN
        if action == "server_restart":
            return snapshot.server.job is not None and phase not in _DOWN
        if action == "probe":
            return phase in SERVING
        if action == "extract_start":
            return phase in SERVING and not self.extracting
        return phase not in _DOWN or self.extracting

    def _choice(self, action: LossyAction, key: str, label: str) -> Choice:
        return Choice(action, key, label, tuple(self.controller.losses(action)))

    def action_deploy(self) -> None:
        """Put the release on the box."""
        self.act("deploy", self.controller.deploy)

    def action_server_start(self) -> None:
        """Show the line, then start the server."""
        self._ask("Start the server?", [self._choice("server-start", "s", "Start")], self.controller.server_line)

    def action_server_restart(self) -> None:
        """Ask, then restart the server with the radix cache off."""
        choice = self._choice("server-restart", "R", "Restart")
        self._ask("Restart the server with the radix cache off?", [choice], self.controller.server_line)

    def action_stop(self) -> None:
        """Ask what to stop, and say what each would lose."""
        snapshot = self.state.snapshot
        choices = []
        server_up = snapshot is not None and snapshot.server.phase not in _DOWN
        if self.extracting:
            choices.append(self._choice("extract-stop", "x", "Stop extraction"))
        if server_up:
            choices.append(self._choice("server-stop", "s" if choices else "x", "Stop server"))
        self._ask("Stop what?" if len(choices) > 1 else f"{choices[0].label}?", choices)

    def _ask(self, title: str, choices: list[Choice], line: Callable[[], Awaitable[str]] | None = None) -> None:
        self.push_screen(AskDialog(title, choices, self.glyphs, line), self._answered)

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

    def action_take_over(self) -> None:
        """Ask, then steer instead of the other console."""
        losses = steering.take_over_losses(self.state, self.wall())
        self._ask("Take over steering?", [Choice("take-over", "T", "Take over", losses)])

    def action_extract_start(self) -> None:
        """Start or resume the extraction; where the radix cache is on, ask how."""
        snapshot = self.state.snapshot
        if snapshot is None or snapshot.server.spec is None or not snapshot.server.spec.radix_cache:
            self.act("extraction start", self.controller.extract_start)
            return
        choices = [self._choice("server-restart", "R", "Restart with it off")]
        if snapshot.server.extra_key:
            choices.insert(0, self._choice("extract-keyed", "e", "Extract without a restart"))
        self._ask("The radix cache of the server is on.", choices)

    def action_probe(self) -> None:
        """Probe the server."""
        self.act("probe", self.controller.probe)

    def action_reconnect(self) -> None:
        """Try to connect at once."""
        self.act("reconnect", self.controller.reconnect_now)
