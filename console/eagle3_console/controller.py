"""What the keys of the screen do, on a real session. The screen sees only events."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from eagle3_console import judge, keyed, losses, report
from eagle3_console.errors import ConsoleError, ServerStopped, Stopped, UsageError
from eagle3_console.events import (
    Alert,
    AlertRaised,
    ConnectionChanged,
    Event,
    Narration,
    SnapshotArrived,
    StepChanged,
    ended_by,
)
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS, Flow, RunResult
from eagle3_console.keys import SHOWN
from eagle3_console.link.errors import LinkError
from eagle3_console.plan import Plan, restart_plan
from eagle3_console.session import Session
from eagle3_console.setup.work import SetupWork
from eagle3_console.state import STEP_NAMES, Step, checklist, extract_id, stopped_step
from eagle3_console.ui.controller import LossyAction
from eagle3_console.work_watch import WorkWatch
from eagle3_remote.protocol import ControlReport, ExtractReport, ExtractWish, Snapshot, StopReport, VerifyReport

_INTERVAL = 0.5
_OF_A_RUN = {"probe": "server", "extract": "extract", "verify": "extract"}
"""Steps that each run does anew, and the kind of job that each is about."""


class SessionController:
    """One box behind the screen.

    Args:
        session: not connected yet; `events` connects it.
        plan: what the command line named; what it left out is taken from what last ran on the box.
        first: what went wrong when the session was dialled before: a refused login waits for the person, anything else is
            tried again.
        keys: id -> key as the person has it; sentences name some.
        whole_run: do everything by itself, from deploy to verify, as ``run`` does, and hand the result to this.
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        *,
        first: LinkError | None = None,
        keys: Mapping[str, str] = SHOWN,
        whole_run: Callable[[RunResult], None] | None = None,
    ) -> None:
        self._first = first
        self._again = asyncio.Event()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._flow = Flow(session, plan, self._take, log="tail")
        self._flow.watcher.pace = self._queue.join
        self._plan = plan
        self._whole_run_done = whole_run
        self._keys = keys
        self._snapshot: Snapshot | None = None
        self._steps = tuple(Step(name) for name in STEP_NAMES)
        self._greeted = asyncio.Event()
        self._stopped_here: str | None = None
        """The extraction that was stopped from this screen."""

    async def events(self) -> AsyncIterator[Event]:
        """Connect, then everything that happens, until the screen closes."""
        tasks = [asyncio.create_task(self._watch(), name="watch")]
        tasks.append(asyncio.create_task(self._watch_work(), name="work"))
        if self._whole_run_done is not None:
            tasks.append(asyncio.create_task(self._whole_run(self._whole_run_done), name="whole run"))
        try:
            while True:
                yield await self._queue.get()
                self._queue.task_done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._flow.session.leave()

    @property
    def setup_box(self) -> SetupWork:
        """Who answers the set-up's questions."""
        return SetupWork(self._flow.session, self._flow.session.where)

    @property
    def plan(self) -> Plan:
        """What the keys go by."""
        return self._plan

    def adopt(self, plan: Plan) -> None:
        """Let the keys go by another plan from now on."""
        self._plan = self._flow.plan = plan
        self._flow.watcher.paths = {"output": plan.out} if plan.out else {}

    async def run_all(self) -> str:
        """Everything from the doctor to the report, as ``run`` does it."""
        self._flow.plan = dataclasses.replace(self._plan, watch=True)
        self._need("model", "data", "out")
        with self._earlier_steps_aside(), self._stop_is_no_failure():
            made = await self._flow.run()
        return report.run_markdown(made, self._flow.session.again)

    async def deploy(self) -> None:
        """Put the release on the box."""
        if self._flow.session.readonly:
            raise UsageError("This console was opened with --readonly: it watches and changes nothing on the box.")
        await self._flow.deploy()

    async def server_line(self) -> str:
        """The exact line that a start or a restart would run."""
        self._fill_plan()
        self._need("model")
        facts = await self._flow.session.doctor(self._flow.plan.query())
        launch = await self._flow.server_plan(judge.choose_python(facts, self._flow.plan))
        return report.launch_text(launch)

    async def server_start(self) -> None:
        """Judge the box, start the server, and follow it until it is ready."""
        self._fill_plan()
        self._need("model")
        facts = await self._flow.doctor()
        job = await self._flow.server_start(judge.choose_python(facts, self._flow.plan))
        await self._flow.server_wait(job.id)

    async def server_restart(self, radix_cache: bool) -> None:
        """Stop and start again, as it was but for the radix cache."""
        self._fill_plan()
        self._need("model")
        with self._server_step("restart: checking the launch line"):
            job = await self._flow.server_restart(radix_cache=radix_cache)
        await self._flow.server_wait(job.id)

    async def server_stop(self) -> None:
        """Stop the server and prove that nothing of it is left."""
        with self._server_step("stopping"):
            await self._flow.server_stop()

    async def extract_start(self, extra_key: bool = False) -> None:
        """Start the extraction, or resume the last one."""
        self._fill_plan()
        self._flow.plan = dataclasses.replace(self._flow.plan, extra_key=extra_key or self._plan.extra_key)
        self._need("data", "out")
        await self._flow.extract_start()

    async def extract_stop(self) -> None:
        """Finish what is in flight, then stop."""
        if self._snapshot is not None and self._snapshot.array is not None:
            await self._flow.change("array.stop", {"out": None}, StopReport, wait=STOP_SECONDS)
            return
        job = extract_id(self._snapshot) if self._snapshot is not None else None
        before, self._stopped_here = self._stopped_here, job
        goes_on = f"{self._keys['extract.start']} goes on with it"
        text = "you stop the extraction: what is in flight is finished first"
        # Told now under the cause that the end will have: that it has stopped is no news to whoever asked for it.
        self._take(AlertRaised(Alert(time.time(), "info", f"extract-stopped:{job}", text, goes_on)))
        try:
            await self._flow.change("extract.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        except ConsoleError:
            self._stopped_here = before
            raise
        self._take(Narration(self._stop_sentence(), time.time()))

    async def extract_pause(self) -> None:
        """Nothing more is sent until it is let go on; the box notes the wish."""
        await self._steer("pause")

    async def extract_resume(self) -> None:
        """Let it go on."""
        await self._steer("resume")

    async def _steer(self, action: str) -> None:
        told = await self._flow.change("extract.control", ExtractWish(action), ControlReport)
        self._take(Narration(told.sentence, time.time()))

    async def verify(self) -> VerifyReport:
        """Check the newest extraction's dataset."""
        extract = self._snapshot.extract if self._snapshot is not None else None
        if extract is None or extract.spec is None:
            raise UsageError("No extraction of ours is known on the box.")
        return await self._flow.verify(extract.spec.out)

    async def report(self) -> str:
        """What the newest extraction made. Needs no server."""
        made = await self._flow.watcher.call("report", {"job": None}, ExtractReport)
        return report.markdown(made, self._flow.session.again)

    async def probe(self) -> None:
        """One request through the patched server."""
        await self._flow.probe()

    async def take_over(self) -> None:
        """Steer, though another console does."""
        await self._flow.change("steer.take", {}, str)

    async def reconnect_now(self) -> None:
        """Do not wait for the next try."""
        self._again.set()
        self._flow.watcher.reconnect_now()

    def losses(self, action: LossyAction) -> list[str]:
        """What `action` would lose, and for how long."""
        snapshot = self._snapshot
        if action == "server-start":
            return losses.of_start(snapshot)
        if action == "extract-keyed":
            return keyed.offer(snapshot.server if snapshot is not None else None)
        if action == "extract-stop":
            return losses.of_extraction_stop(snapshot, self._keys)
        return losses.of_server(snapshot, comes_back=action == "server-restart")

    @contextlib.contextmanager
    def _earlier_steps_aside(self) -> Iterator[None]:
        """What the checklist says is of an earlier run. Where this one goes wrong before its own, that is so again."""
        before, ids = self._steps, self._ids()
        for name in _OF_A_RUN:
            self._take(StepChanged(name, "todo"))
        try:
            yield
        except Exception:
            now = self._ids()
            for step in before:
                untouched = step.name in _OF_A_RUN and Step(step.name) in self._steps
                if untouched and now[_OF_A_RUN[step.name]] == ids[_OF_A_RUN[step.name]]:
                    self._take(StepChanged(step.name, step.status, step.detail))
            raise

    @contextlib.contextmanager
    def _server_step(self, detail: str) -> Iterator[None]:
        """Something is done about the server that does not show on it yet. Where it comes to nothing, the step is as it was."""
        said = Step("server", "running", detail)
        before = next(step for step in self._steps if step.name == said.name)
        self._take(StepChanged(said.name, said.status, said.detail))
        try:
            yield
        except Exception:
            if said in self._steps:
                self._take(StepChanged(before.name, before.status, before.detail))
            raise

    @contextlib.contextmanager
    def _stop_is_no_failure(self) -> Iterator[None]:
        """A run that ends because its extraction was stopped: the checklist and the sentence say so."""
        try:
            yield
        except Stopped:
            extract = self._snapshot.extract if self._snapshot is not None else None
            if extract is not None:
                step = stopped_step(extract)
                self._take(StepChanged(step.name, step.status, step.detail))
            raise Stopped(self._stop_sentence()) from None

    def _stop_sentence(self) -> str:
        now = self._snapshot
        job = extract_id(now) if now is not None else None
        who = "by you" if job is not None and job == self._stopped_here else "on request"
        return f"stopped {who}, {self._keys['extract.start']} goes on"

    def _ids(self) -> dict[str, str | None]:
        """The newest job of each kind."""
        now = self._snapshot
        server = now.server.job if now is not None else None
        return {
            "server": server.id if server is not None else None,
            "extract": extract_id(now) if now is not None else None,
        }

    def _take(self, event: Event) -> None:
        self._steps = checklist(self._steps, self._snapshot, event, self._keys)
        if isinstance(event, SnapshotArrived):
            self._snapshot = event.snapshot
            self._greeted.set()
        self._queue.put_nowait(event)

    async def _watch(self) -> None:
        """Follow the box; after a refusal only when the person asks for it: a lockout would be our doing."""
        refusal: ConsoleError | None = None
        if self._first is not None and self._first.exit_code == ExitCode.LOGIN:
            refusal = self._first
        while True:
            if refusal is None:
                try:
                    await self._follow()
                except ConsoleError as error:
                    refusal = error
            self._again.clear()
            if refusal is not None:
                self._take(ConnectionChanged(ended_by(refusal, time.time())))
            await self._again.wait()
            self._first = refusal = None

    async def _follow(self) -> None:
        watcher = self._flow.watcher
        if self._first is None:
            await watcher.connect()
        while True:
            snapshot = await watcher.pull()
            if snapshot.extract is not None and snapshot.extract.spec is not None:
                watcher.paths = {"output": self._plan.out or snapshot.extract.spec.out}
            await asyncio.sleep(_INTERVAL)

    async def _watch_work(self) -> None:
        work = WorkWatch(self._flow.watcher)
        while True:
            await self._greeted.wait()
            with contextlib.suppress(ConsoleError):  # what ends the session is told by the watch itself
                await work.run()
            self._greeted.clear()  # the next snapshot shows that the box answers again

    async def _whole_run(self, done: Callable[[RunResult], None]) -> None:
        try:
            await self._greeted.wait()
            with self._stop_is_no_failure():
                done(await self._flow.run())
        except (Stopped, ServerStopped) as stop:
            self._take(AlertRaised(Alert(time.time(), "info", "run-stopped", f"the whole run: {stop}")))
        except ConsoleError as error:
            self._take(AlertRaised(Alert(time.time(), "error", "run-failed", str(error))))

    def _fill_plan(self) -> None:
        """What the command line left out comes from what last ran on the box."""
        if self._snapshot is None:
            raise UsageError("The box has not answered yet.")
        server = self._snapshot.server
        plan = self._plan if server.spec is None else restart_plan(self._plan, server.spec, watched=server.watched)
        extract = self._snapshot.extract
        if extract is not None and extract.spec is not None and not (plan.data or plan.out):
            spec = extract.spec
            plan = dataclasses.replace(
                plan, data=spec.data, out=spec.out, max_seq_len=spec.max_seq_len, samples=spec.limit
            )
        self._flow.plan = plan

    def _need(self, *names: str) -> None:
        missing = [f"--{name}" for name in names if not getattr(self._flow.plan, name)]
        if missing:
            raise UsageError(
                f"Not known yet: {', '.join(missing)}. Leave with q and open the console with it: eagle3-console HOST {missing[0]} PATH."
            )
