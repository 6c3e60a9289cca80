"""The seam between the set-up screen and the work: what it asks of a box, and what a controller does with the result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from eagle3_console.keys import Key
from eagle3_console.plan import Plan
from eagle3_remote.protocol import DataLook, Facts, LaunchPlan, Looked, ModelLook, OutLook, PathList, SmokeRate


class SetupBox(Protocol):
    """Answers the set-up's questions; see `eagle3_console.setup.work.SetupWork`, the one for a real box."""

    host: str

    async def complete(self, typed: str, folders_only: bool) -> PathList:
        """Names that go on with a path."""

    async def facts(self, python: str) -> Facts:
        """What the doctor sees of the box itself."""

    async def box(self, port: int) -> Looked:
        """Disks, driver, `port`, and the first free one from it on."""

    async def model(self, path: str) -> ModelLook | None:
        """The model's folder."""

    async def data(self, path: str, python: str) -> DataLook | None:
        """The input."""

    async def out(self, path: str, model: str, data: str) -> OutLook | None:
        """The output, compared with the model and the place of the data."""

    async def measured(self, model: str) -> float:
        """Prompt tokens a second that were measured with this model; 0: never."""

    async def smoke(self, model: str) -> SmokeRate:
        """The rate that a forecast measured last with this model."""

    async def launch(self, plan: Plan) -> LaunchPlan:
        """The exact line."""

    def save(self, name: str, plan: Plan, *, replace: bool) -> str:
        """Keep the plan as a profile; where it lies."""


@runtime_checkable
class SetupController(Protocol):
    """A controller that can be set up. Others, a replay for example, have no set-up."""

    @property
    def setup_box(self) -> SetupBox:
        """Who answers the questions."""

    @property
    def plan(self) -> Plan:
        """What the keys go by now."""

    def adopt(self, plan: Plan) -> None:
        """Let the keys go by another plan from now on."""

    async def run_all(self) -> str:
        """Everything from the doctor to the report, which is returned as text.

        Raises:
            ConsoleError: the sentence of what went wrong; what was made stays, and the same call goes on with it.
        """


ACTS = ("setup", "run_all")


def offered(keys: Iterable[Key], controller: object) -> tuple[Key, ...]:
    """The keys that are shown with this controller: one that cannot be set up has none for it."""
    able = isinstance(controller, SetupController)
    return tuple(key for key in keys if able or key.act not in ACTS)
