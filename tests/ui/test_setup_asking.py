"""What the set-up asks the box for while a person types."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eagle3_console.errors import AgentSilent, ConsoleError
from eagle3_console.link.errors import LinkLost
from eagle3_console.plan import Plan
from eagle3_console.setup.draft import Draft, Seen
from eagle3_console.ui.setup import asking
from eagle3_remote.protocol import LaunchPlan, ModelFact, ModelLook, SmokeRate
from tests.ui.setup_scenes import ScriptedBox


class SlowBox:
    """A stand-in whose SGLang takes a while to load; it goes on when nobody waits for the answer any more."""

    def __init__(self) -> None:
        self.loading = self.most = 0
        self.asked: list[Plan] = []
        self.loaded = asyncio.Event()

    async def launch(self, plan: Plan) -> LaunchPlan:
        self.asked.append(plan)
        self.loading += 1
        self.most = max(self.most, self.loading)
        await self.loaded.wait()
        self.loading -= 1
        return LaunchPlan((f"--port={plan.port}",), {}, "0.5.23")


async def test_one_launch_line_at_a_time_and_of_what_was_typed_meanwhile_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "PAUSE", 0.0)
    box = SlowBox()
    asks = asking.Asking(cast(Any, box), lambda: None)
    plans = [dataclasses.replace(Plan(model="/m"), port=port) for port in range(30000, 30005)]
    for plan in plans:
        asks.follow_line(cast(Any, SimpleNamespace(plan=plan, ready=True)))
        for _ in range(5):
            await asyncio.sleep(0)
    assert box.asked == plans[:1]
    box.loaded.set()
    for _ in range(50):
        await asyncio.sleep(0)
    assert (box.asked, box.most) == ([plans[0], plans[-1]], 1)
    assert asks.launch is not None
    assert asks.launch.argv == ("--port=30004",)
    asks.close()


class ManyModels(ScriptedBox):
    """A stand-in whose every model has rates of its own, as far as they can be had."""

    def __init__(self, faults: dict[str, ConsoleError]) -> None:
        super().__init__()
        self.faults = faults
        self.free = asyncio.Event()
        self.free.set()

    async def model(self, path: str) -> ModelLook | None:
        return ModelLook(ModelFact(path, True, "Llama"))

    async def measured(self, model: str) -> float:
        await self.free.wait()
        if model == "/m/b" and "measured" in self.faults:
            raise self.faults["measured"]
        return PREFILL[model]

    async def smoke(self, model: str) -> SmokeRate:
        await self.free.wait()
        if model == "/m/b" and "smoke" in self.faults:
            raise self.faults["smoke"]
        return SMOKE[model]


PREFILL = {"/m/a": 20_000.0, "/m/b": 30_000.0}
SMOKE = {"/m/a": SmokeRate(32, 10_000.0), "/m/b": SmokeRate(16, 15_000.0)}


async def rest() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("error", [LinkLost("the link is gone"), AgentSilent("no answer")])
@pytest.mark.parametrize("failing", [(), ("measured",), ("smoke",), ("measured", "smoke")])
async def test_each_rate_is_of_the_model_that_is_typed_or_of_none(
    monkeypatch: pytest.MonkeyPatch, error: ConsoleError, failing: tuple[str, ...]
) -> None:
    monkeypatch.setattr(asking, "PAUSE", 0.0)
    shown: list[Seen] = []
    box = ManyModels(dict.fromkeys(failing, error))
    asks = asking.Asking(box, lambda: shown.append(asks.seen))
    asks.follow(Draft({"model": "/m/a"}))
    await rest()
    assert (shown[-1].prefill_tps, shown[-1].smoke) == (PREFILL["/m/a"], SMOKE["/m/a"])
    shown.clear()
    box.free.clear()
    asks.follow(Draft({"model": "/m/b"}))
    assert (asks.seen.prefill_tps, asks.seen.smoke) == (0.0, SmokeRate()), "of the model before"
    await rest()
    assert shown, "what the model is waits for how fast it was"
    assert shown[-1].model is not None
    assert (shown[-1].model.fact.path, shown[-1].prefill_tps, shown[-1].smoke) == ("/m/b", 0.0, SmokeRate())
    box.free.set()
    await rest()
    assert shown[-1].prefill_tps == (0.0 if "measured" in failing else PREFILL["/m/b"])
    assert shown[-1].smoke == (SmokeRate() if "smoke" in failing else SMOKE["/m/b"])
    assert shown[-1].trouble == ""
    asks.close()
