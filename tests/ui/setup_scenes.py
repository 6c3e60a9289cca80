"""A box that answers the set-up's questions from memory, and a controller that can be set up. Stand-ins, for what is drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from eagle3_console.errors import BoxRefused, ConsoleError
from eagle3_console.events import Event
from eagle3_console.plan import Plan
from eagle3_console.setup.draft import Seen
from eagle3_console.ui.app import ConsoleApp
from eagle3_remote.protocol import (
    DataLook,
    Facts,
    LaunchPlan,
    Looked,
    ModelLook,
    OutLook,
    PathEntry,
    PathList,
    Phase,
    ServerStatus,
    SmokeRate,
)
from tests.console.test_setup import SEEN
from tests.ui.scenes import LIVE, NOW, TARGET, ScriptedController, arrived

NOTHING_RAN: list[Event] = [LIVE, arrived(ServerStatus(Phase.NOT_RUNNING, "no server"))]
NAMES = (
    PathEntry("Kimi-K2.5", True),
    PathEntry("Qwen3-235B [new]", True, 0, "/mnt/nfs/qwen"),
    PathEntry("old", False, 0, "/gone", True),
    PathEntry("notes.txt", False, 4096),
)


class ScriptedBox:
    """Answers from `seen`; raises `fault` while there is one."""

    def __init__(self, seen: Seen = SEEN, host: str = TARGET) -> None:
        self.seen = seen
        self.host = host
        self.names = NAMES
        self.fault: ConsoleError | None = None
        self.refusal = ""
        """Why the box would not start such a server."""
        self.saved: list[tuple[str, Plan, bool]] = []

    def _answer(self, value: object) -> object:
        if self.fault is not None:
            raise self.fault
        return value

    async def complete(self, typed: str, folders_only: bool) -> PathList:
        folder, word = typed[: typed.rfind("/") + 1], typed[typed.rfind("/") + 1 :]
        fits = tuple(one for one in self.names if one.name.startswith(word) and (one.is_dir or not folders_only))
        return PathList(folder, word, fits, 3 if not word else 0)

    async def facts(self, python: str) -> Facts:
        return self._answer(self.seen.facts)  # type: ignore[return-value]

    async def box(self, port: int) -> Looked:
        return self._answer(self.seen.box)  # type: ignore[return-value]

    async def model(self, path: str) -> ModelLook | None:
        return self._answer(self.seen.model)  # type: ignore[return-value]

    async def data(self, path: str, python: str) -> DataLook | None:
        return self._answer(self.seen.data)  # type: ignore[return-value]

    async def out(self, path: str, model: str, data: str) -> OutLook | None:
        return self._answer(self.seen.out)  # type: ignore[return-value]

    async def measured(self, model: str) -> float:
        return self.seen.prefill_tps

    async def smoke(self, model: str) -> SmokeRate:
        return self.seen.smoke

    async def launch(self, plan: Plan) -> LaunchPlan:
        if self.refusal:
            raise BoxRefused(self.refusal)
        argv = (plan.python, "-m", "sglang.launch_server", "--model-path", plan.model, "--disable-radix-cache")
        return LaunchPlan(argv, {"EAGLE3_BOUNDARIES": "2,30,58"}, "0.5.9", ("--disable-radix-cache: [it] must be",))

    def save(self, name: str, plan: Plan, *, replace: bool) -> str:
        self.saved.append((name, plan, replace))
        return f"/home/me/.config/eagle3-console/profiles/{name}.toml"


class SetupScripted(ScriptedController):
    """A scripted controller that can be set up."""

    def __init__(self, events: Iterable[Event], box: ScriptedBox, plan: Plan) -> None:
        super().__init__(events)
        self.setup_box = box
        self.plan = plan

    def adopt(self, plan: Plan) -> None:
        self.plan = plan

    async def run_all(self) -> str:
        await self._note("run_all")
        return "# Hidden states in /data/hidden\n\nEverything is stored [all of it]."


def setup(
    events: Iterable[Event] = NOTHING_RAN, plan: Plan | None = None, seen: Seen = SEEN, **options: object
) -> tuple[ConsoleApp, SetupScripted]:
    """An app on a box where nothing ran yet."""
    controller = SetupScripted(events, ScriptedBox(seen), plan or Plan())
    return ConsoleApp(controller, TARGET, wall=lambda: NOW, **options), controller  # type: ignore[arg-type]


CHOSEN = dataclasses.replace(Plan(), model="/m/Kimi-K2.5", data="/data/t.jsonl", out="/data/hidden")
