"""The steps of the main job. Screen and headless call the same ones; each tells what it does through events."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from eagle3_console import judge
from eagle3_console.errors import BoxNotFit, BoxRefused, ServerFailed, ServerStopped, Stopped
from eagle3_console.events import AlertRaised, Narration, Planned, StepChanged
from eagle3_console.exit_codes import ExitCode
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_console.told import SERVING, failure_sentence, plan_lines, verified_alert, was_stopped
from eagle3_console.watch import Emit, Log, Watcher
from eagle3_remote.protocol import (
    ExtractReport,
    ExtractState,
    ExtractStatus,
    Facts,
    JobState,
    JobStatus,
    LaunchPlan,
    Looked,
    LookQuery,
    Phase,
    ProbeReport,
    ServerStatus,
    StopReport,
    VerifyQuery,
    VerifyReport,
)

T = TypeVar("T")

PROBE_TOKENS = 19
"""As many as the hand-made run sent: 19 sent must be 19 dumped, 0 cached."""
STOP_SECONDS = 180.0
PLAN_SECONDS = 300.0
"""SGLang is imported on the box to hear its argument parser: seconds, from a cold network disk minutes."""
_VERIFY_SECONDS = 6 * 3600.0
_OVER = (Phase.EXITED, Phase.FAILED, Phase.NOT_RUNNING)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a whole run came to."""

    facts: Facts
    server: ServerStatus
    probe: ProbeReport
    extract: ExtractStatus
    verify: VerifyReport
    report: ExtractReport

    @property
    def exit_code(self) -> ExitCode:
        """0 when every sample is stored and the dataset verifies, 7 otherwise."""
        bad = self.extract.rejected + self.extract.failed > 0 or not self.verify.ok
        return ExitCode.FINISHED_WITH_BAD if bad else ExitCode.GOOD


class Flow:
    """The steps, on one session and one plan.

    Args:
        session: connected or not.
        plan: what is wanted.
        emit: takes every event.
        log: how much of the server's log to emit, see `Watcher`.
    """

    def __init__(self, session: Session, plan: Plan, emit: Emit, log: Log = "none") -> None:
        self.session = session
        self.plan = plan
        self.emit = emit
        self.watcher = Watcher(session, emit, {"output": plan.out} if plan.out else {}, log)

    async def change(self, method: str, params: Any, kind: type[T], wait: float = 60.0) -> T:
        """A call that changes the box. It is done once: when its answer is lost with the link, it is asked for again.

        Raises:
            BoxRefused: among others, because another console steers.
        """
        return await self.watcher.call(method, params, kind, wait, key=secrets.token_hex(8))

    async def run(self) -> RunResult:
        """Everything from the doctor to the report.

        Raises:
            ConsoleError: the sentence and exit code of what went wrong.
        """
        facts = await self.doctor()
        await self.deploy()
        await self.check_output()
        server = await self.ensure_server(facts)
        probe = await self.probe()
        job = await self.extract_start()
        extract = await self.extract_wait(job)
        verify = await self.verify(self.plan.out)
        report = await self.watcher.call("report", {"job": job.id}, ExtractReport)
        return RunResult(facts, server, probe, extract, verify, report)

    async def doctor(self) -> Facts:
        """Look at the box and judge it. Leaves nothing there.

        Raises:
            BoxNotFit: with every failure and its cure.
        """
        self._narrate(f"looking at {self.session.where}")
        facts = await self.session.doctor(self.plan.query())
        findings = judge.judge(facts, self.plan)
        for finding in findings:
            self._narrate(f"{finding.what}: {finding.sentence} {finding.cure}".strip())
        judge.refuse_unfit(findings, self.session.where)
        self.emit(Planned(plan_lines(facts, self.plan)))
        return facts

    async def deploy(self) -> None:
        """Put the box side on the box and greet its agent."""
        with self._under_way("deploy"):
            deployed = await self.session.deploy()
            await self.watcher.greet()
        sent = f"{deployed.uploaded / 1000:.0f} kB uploaded" if deployed.uploaded else "there already, nothing uploaded"
        self._step("deploy", "done", f"release {deployed.sha256[:12]}, {sent}")

    async def check_output(self) -> None:
        """Refuse an output where no dataset may lie before a server is loaded for it; the extraction itself would do so after.

        Raises:
            BoxNotFit: it lies in another dataset, in model or data, or holds what is not ours.
        """
        query = LookQuery(out=self.plan.out, model=self.plan.model, input=self.plan.data)
        out = (await self.watcher.call("path.look", query, Looked)).out
        if out is None or not (out.error or out.foreign):
            return
        why = out.error or f"it holds {out.foreign}, which no extraction of ours wrote: choose another folder"
        raise BoxNotFit(f"The output {out.path} on {self.session.where} will not do: {why}.")

    async def ensure_server(self, facts: Facts) -> ServerStatus:
        """A patched server that serves this plan's model: the running one where it fits, else a new one, ready.

        Raises:
            BoxRefused: another server of ours is running.
            ServerFailed: it did not come up.
        """
        snapshot = await self.watcher.pull()
        job = snapshot.server.job
        if job is not None and job.state is JobState.RUNNING:
            spec = snapshot.server.spec
            asked = (
                facts.model.path if facts.model is not None else self.plan.model
            )  # as the box writes it: no ~, no / at the end
            if spec is None or spec.model != asked:
                model = spec.model if spec is not None else "another model"
                raise BoxRefused(
                    f"A server of ours already runs on {self.session.where} with {model} ({job.id}): "
                    "stop it first with 'eagle3-console server stop'."
                )
            self._narrate(f"the server {job.id} already runs with this model")
        else:
            job = await self.server_start(judge.choose_python(facts, self.plan))
        return await self.server_wait(job.id)

    async def server_plan(self, python: str, *, radix_cache: bool = False) -> LaunchPlan:
        """The exact line that would run; the installed SGLang's own parser takes it.

        Raises:
            BoxRefused: it could not be started; the sentence says why.
        """
        spec = dataclasses.replace(self.plan.server(python), radix_cache=radix_cache)
        return await self.session.call("server.plan", spec, LaunchPlan, wait=PLAN_SECONDS)

    async def server_start(self, python: str, *, radix_cache: bool = False) -> JobStatus:
        """Start the server; returns as soon as its job runs.

        Raises:
            BoxRefused: the box says why not.
        """
        spec = dataclasses.replace(self.plan.server(python), radix_cache=radix_cache)
        with self._under_way("server", "starting"):
            job = await self.change("server.start", spec, JobStatus, wait=PLAN_SECONDS)
        await self._watch_server()
        return job

    async def server_wait(self, job_id: str) -> ServerStatus:
        """Watch a server until it is ready and every rank has shown the patch's marker.

        Raises:
            ServerStopped: somebody stopped it.
            ServerFailed: it ended, the patch refused, a rank is unpatched, or nothing moved for `Plan.ready_within`.
        """
        self._step("server", "running", "coming up")
        moved_at, last = time.monotonic(), None
        while True:
            snapshot = await self.watcher.pull()
            server = snapshot.server
            if server.job is None or server.job.id != job_id:
                raise self._server_failed(f"The server {job_id} is gone from {self.session.where}.")
            if was_stopped(server):
                self._step("server", "todo", "stopped")
                raise ServerStopped("The server was stopped before it was ready; 'server start' begins anew.")
            if server.phase in _OVER or server.log.refused:
                raise self._server_failed(failure_sentence(server))
            if server.phase is Phase.STUCK:
                raise self._server_failed(f"{server.sentence} It is left as it is: `server stop` ends it.")
            if server.phase in SERVING:
                self._require_markers(server)
                self._step("server", "done", server.sentence)
                return server
            sign = (server.phase, server.log.shards_done, server.log.last_line)
            if sign != last:
                moved_at, last = time.monotonic(), sign
            elif time.monotonic() - moved_at > self.plan.ready_within:
                minutes = self.plan.ready_within / 60
                raise self._server_failed(
                    f"The server has shown no progress for {minutes:.0f} minutes; it is {server.sentence}. "
                    f"Last line: {server.log.last_line}"
                )
            await asyncio.sleep(0.5)

    async def server_restart(self, *, radix_cache: bool = False) -> JobStatus:
        """Judge the box first, so that nothing is stopped for a start that cannot be; then stop what runs, or what a server
        that died left running, and start.

        Raises:
            BoxNotFit, BoxRefused: it cannot be started; the sentence says why.
            ServerFailed: the last one could not be ended, or not all that it held came back; nothing was started.
        """
        python = judge.choose_python(await self.doctor(), self.plan)
        await self.deploy()
        await self.server_plan(python, radix_cache=radix_cache)  # arguments that SGLang does not take are refused here
        server = (await self.watcher.pull()).server
        if server.job is not None:
            await self._make_way(server.job)
        return await self.server_start(python, radix_cache=radix_cache)

    async def server_stop(self) -> StopReport:
        """Stop the running server and prove that nothing of it is left."""
        self._narrate("stopping the server")
        stopped = await self.change("server.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        self._step("server", "todo", stopped.sentence)
        self._narrate("the server is stopped" if stopped.stopped else stopped.sentence)
        return stopped

    async def _make_way(self, job: JobStatus) -> None:
        if job.state in (JobState.RUNNING, JobState.STARTING):
            self._narrate("stopping the server")
        try:
            stopped = await self.change("server.stop", {"job": None}, StopReport, wait=STOP_SECONDS)
        except BoxRefused:
            return  # nothing of it lives
        if stopped.leftovers and not stopped.stopped:
            raise self._server_failed(f"{stopped.sentence} It was not started again.")
        self._narrate(stopped.sentence)

    async def probe(self) -> ProbeReport:
        """One request through the patched server: tokens sent = rows dumped, none cached.

        Raises:
            ServerFailed: not so; the sentence says what came back.
        """
        with self._under_way("probe"):
            probe = await self.change("server.probe", {"tokens": PROBE_TOKENS}, ProbeReport, wait=300)
        if not probe.ok:
            self._step("probe", "failed", probe.sentence)
            raise ServerFailed(f"The probe of the server on {self.session.where} failed: {probe.sentence}")
        self._step("probe", "done", probe.sentence)
        return probe

    async def extract_start(self) -> JobStatus:
        """Start or resume the extraction as a job of its own.

        Raises:
            BoxRefused: the box says why not.
        """
        with self._under_way("extract", "starting"):
            job = await self.change("extract.start", self.plan.extract(), JobStatus, wait=120)
        await self._watch_server()
        return job

    async def _watch_server(self) -> None:
        """Ask the box to start our server again when it crashes, where the plan says so; it is asked again for a server
        that runs already, which changes nothing and is not told again."""
        if self.plan.watch and not self.plan.server_url:
            told = (await self.watcher.pull()).server.watched
            await self.change("server.watch", {"job": None, "on": True}, str)
            if not told:
                text = "watched: the box starts this server again if it crashes while extracting"
                self.emit(Narration(text, time.time(), aside=True))

    async def extract_wait(self, job: JobStatus) -> ExtractStatus:
        """Watch an extraction until its job has ended.

        Raises:
            BoxRefused, ServerFailed: it ended without being finished; the sentence says why and what is kept.
            Stopped: because somebody asked for it.
        """
        while True:
            snapshot = await self.watcher.pull()
            extract = snapshot.extract
            if extract is None or extract.job is None or extract.job.id != job.id:
                raise BoxRefused(f"The extraction {job.id} is gone from {self.session.where}.")
            if extract.job.state not in (JobState.RUNNING, JobState.STARTING):
                return self._extract_ended(extract)
            await asyncio.sleep(0.5)

    def _extract_ended(self, extract: ExtractStatus) -> ExtractStatus:
        if extract.state is ExtractState.FINISHED:
            self._step("extract", "done", extract.sentence)
            return extract
        self._step("extract", "failed", extract.sentence)
        rc = extract.job.rc if extract.job is not None else None
        if rc == ExitCode.SERVER_FAILED:
            raise ServerFailed(extract.sentence)
        error = Stopped(extract.sentence) if extract.state is ExtractState.STOPPED else BoxRefused(extract.sentence)
        if rc == ExitCode.FINISHED_WITH_BAD:
            error.exit_code = ExitCode.FINISHED_WITH_BAD
        raise error

    async def verify(self, dataset: str, server: str = "", dump_dir: str = "") -> VerifyReport:
        """Check the dataset on disk against its manifest, and some rows against a live server (``running``, or a URL).

        Faults are in the report, not raised.
        """
        query = VerifyQuery(dataset, server, dump_dir)
        ask = self.change if server else self.watcher.call  # rows are made anew by the server: work for it
        with self._under_way("verify"):
            verify = await ask("verify", query, VerifyReport, wait=_VERIFY_SECONDS)
        text = f"{verify.samples} samples, {verify.problem_count} faults"
        self._step("verify", "done" if verify.ok else "failed", text)
        self.emit(AlertRaised(verified_alert(verify)))
        return verify

    def _require_markers(self, server: ServerStatus) -> None:
        """No marker, no extraction: a server that serves unpatched would give nothing, or somebody else's rows."""
        ranks = {marker.tp_rank for marker in server.log.markers}
        wanted = server.spec.tp if server.spec is not None else self.plan.tp
        if len(ranks) < wanted:
            raise self._server_failed(
                f"The server answers, but only {len(ranks)} of {wanted} ranks show the patch's marker line in "
                f"{server.job.log_path if server.job else 'the log'}: the patch is not in, and nothing would be dumped."
            )
        if not any(marker.writes for marker in server.log.markers):
            raise self._server_failed("The server is patched, but none of its ranks writes dumps.")

    def _server_failed(self, sentence: str) -> ServerFailed:
        self._step("server", "failed", sentence)
        return ServerFailed(sentence)

    @contextlib.contextmanager
    def _under_way(self, name: str, detail: str = "") -> Iterator[None]:
        """A step begins. One that does not come to its end has failed, whatever ended it: nothing else would say so later."""
        self._step(name, "running", detail)
        try:
            yield
        except Exception as error:
            self._step(name, "failed", str(error))
            raise

    def _step(self, name: str, status: str, detail: str = "") -> None:
        self.emit(StepChanged(name, status, detail))  # type: ignore[arg-type]

    def _narrate(self, text: str) -> None:
        self.emit(Narration(text, time.time()))
