"""What the set-up asks the box for while a person types."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eagle3_console.plan import Plan
from eagle3_console.ui.setup import asking
from eagle3_remote.protocol import LaunchPlan


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
