"""Asking the box what the set-up shows, and keeping what comes of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os

from eagle3_console.errors import BoxRefused
from eagle3_console.plan import Plan
from eagle3_console.profiles import hosts, write
from eagle3_console.session import Session
from eagle3_console.setup.draft import Draft, Seen
from eagle3_console.setup.propose import effective, propose
from eagle3_remote.protocol import (
    BenchReport,
    DataLook,
    DoctorQuery,
    Facts,
    LaunchPlan,
    Looked,
    LookQuery,
    ModelLook,
    OutLook,
    PathList,
    PathQuery,
    SmokeRate,
)

PLAN_SECONDS = 300.0
_LOOK_SECONDS = 40.0


class SetupWork:
    """The set-up's questions to one box; none of them changes anything there.

    Args:
        session: connected or not.
        host: what the person typed, by which the profile is remembered.
    """

    def __init__(self, session: Session, host: str) -> None:
        self._session = session
        self.host = host

    async def complete(self, typed: str, folders_only: bool) -> PathList:
        """Names that go on with a path."""
        return await self._session.call("path.complete", PathQuery(typed, folders_only), PathList, wait=10)

    async def facts(self, python: str) -> Facts:
        """What the doctor sees of the box itself; `python` is looked at first."""
        return await self._session.doctor(DoctorQuery(python=python))

    async def box(self, port: int) -> Looked:
        """Disks, driver, `port`, and the first free one from it on."""
        return await self._look(LookQuery(port=port, disks=True))

    async def model(self, path: str) -> ModelLook | None:
        """The model's folder."""
        return (await self._look(LookQuery(model=path))).model

    async def data(self, path: str, python: str) -> DataLook | None:
        """The input."""
        return (await self._look(LookQuery(data=path, python=python))).data

    async def out(self, path: str, model: str, data: str) -> OutLook | None:
        """The output, compared with the model and the place of the data."""
        return (await self._look(LookQuery(out=path, model=model, input=data))).out

    async def measured(self, model: str) -> float:
        """Prompt tokens a second that ``server bench`` measured last with this model; 0: never."""
        with contextlib.suppress(BoxRefused):
            kept = await self._session.call("server.bench_kept", {}, BenchReport)
            runs = [run for run in kept.earlier if run.model.rstrip("/") == model.rstrip("/")]
            return runs[-1].prefill_tps if runs else 0.0
        return 0.0

    async def smoke(self, model: str) -> SmokeRate:
        """The rate that ``extract plan`` measured last with this model."""
        with contextlib.suppress(BoxRefused):
            return await self._session.call("extract.plan_kept", {"model": model}, SmokeRate)
        return SmokeRate()

    async def launch(self, plan: Plan) -> LaunchPlan:
        """The exact line, checked by the installed SGLang's own parser.

        Raises:
            BoxRefused: it could not be started; the sentence says why.
        """
        return await self._session.call("server.plan", plan.server(plan.python), LaunchPlan, wait=PLAN_SECONDS)

    def save(self, name: str, plan: Plan, *, replace: bool) -> str:
        """Keep the plan as a profile, and the profile as this host's; where it lies.

        Raises:
            UsageError: it cannot be kept.
        """
        path = write.save(
            name, write.text_of(plan, f"{os.path.basename(plan.model.rstrip('/'))} on {self.host}"), replace=replace
        )
        with contextlib.suppress(OSError):  # without it the profile has to be named, and that is all
            hosts.remember(self.host, name)
        return str(path)

    async def everything(self, draft: Draft, port: int) -> Seen:
        """All that can be seen for a draft, one thing after the other; what cannot be asked is the `trouble`."""
        typed = draft.texts.get
        model, data, out = typed("model", ""), typed("data", ""), typed("out", "")
        seen = Seen()
        try:
            seen = dataclasses.replace(seen, facts=await self.facts(typed("python", "")), box=await self.box(port))
            if model:
                look = await self.model(model)
                path = look.fact.path if look is not None else model
                seen = dataclasses.replace(
                    seen, model=look, prefill_tps=await self.measured(path), smoke=await self.smoke(path)
                )
            if data:
                python = effective("python", draft, propose(seen, draft))
                seen = dataclasses.replace(seen, data=await self.data(data, python))
            if out:
                seen = dataclasses.replace(seen, out=await self.out(out, model, data))
        except BoxRefused as error:
            return dataclasses.replace(seen, trouble=str(error))
        return seen

    async def _look(self, query: LookQuery) -> Looked:
        return await self._session.call("path.look", query, Looked, wait=_LOOK_SECONDS)
