"""Starts and stops the SGLang server of this box, and refuses with a reason where it cannot."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.box import doctor, gpus
from eagle3_remote.job import jobs, secretfile, stopping
from eagle3_remote.job.secretfile import Secrets
from eagle3_remote.protocol import (
    JobStatus,
    LaunchPlan,
    ModelFact,
    PortFact,
    PythonFact,
    ServerSpec,
    StackReport,
    StopReport,
    decode,
    encode,
)
from eagle3_remote.protocol.secret import hide_env, hide_text
from eagle3_remote.rpc import Refused
from eagle3_remote.server import dumpdir, handover, launch, ledger, proof, senders, stack, watchdog
from eagle3_remote.server.argcheck import ArgumentChecker, NoParser
from eagle3_remote.server.flags import Parser, split
from eagle3_remote.server.health import url_of

STOP_GRACE = 30.0
"""Seconds for SGLang to drain and end its own children after TERM (1.4 to 5.4 s with tiny models on a CPU)."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A checked request: what would be started."""

    spec: ServerSpec
    plan: LaunchPlan
    model: ModelFact
    job_id: str
    dump_dir: str


class ServerControl:
    """Plans, starts and stops server jobs.

    Args:
        home: the box folder.
        release: the folder that holds ``eagle3_remote`` and ``eagle3_patch``.
    """

    def __init__(self, home: Path, release: Path) -> None:
        self._home = home
        self._release = release
        self._arguments = ArgumentChecker(release)

    def plan(self, spec: ServerSpec) -> LaunchPlan:
        """The line that `start` would run, once a server of ours that holds the port now is stopped.

        Raises:
            Refused: it could not be started; says why.
        """
        return handover.shown(self._prepare(spec, ours_will_end=True).plan)

    def start(self, spec: ServerSpec) -> JobStatus:
        """Start a server as a detached job.

        Raises:
            Refused: see `plan`; also when a server of ours runs already.
        """
        self._prepare(spec, ours_will_end=True)  # the parser is asked before anybody has to wait for us
        with jobs.exclusive(self._home):
            last = jobs.newest(self._home, "server")
            self._no_other()
            dumpdir.sweep(self._home)
            ready = self._prepare(spec)
            try:
                dumpdir.create(Path(ready.dump_dir), ready.job_id)
            except OSError as error:
                raise Refused(
                    f"The dump directory {ready.dump_dir} cannot be made: {error.strerror}. Name another one."
                ) from error
            secrets = Secrets.of(ready.plan.env, ready.plan.argv)
            run_dir = jobs.runs_dir(self._home) / ready.job_id
            argv, files = handover.in_a_file(ready.plan.argv, secrets, run_dir)
            env = hide_env(ready.plan.env)
            if secrets:
                env[layout.ENV_HUSH] = str(run_dir / secretfile.FILE)
            try:
                job = jobs.start(
                    self._home,
                    self._release,
                    ready.job_id,
                    argv,
                    env,
                    encode(handover.hidden(ready.spec)),
                    secrets=secrets,
                    files=files,
                    facts={
                        "sglang_version": ready.plan.sglang_version,
                        "dump_dir": ready.dump_dir,
                        "model": encode(ready.model),
                    },
                )
            except jobs.JobError as error:
                if dumpdir.in_use(self._home, ready.dump_dir) is None:
                    dumpdir.remove(Path(ready.dump_dir), ready.job_id)
                raise Refused(str(error)) from error
            if last is not None and watchdog.watched(last) and dumpdir.in_use(self._home, ready.dump_dir):
                watchdog.set_watch(job, True)  # the extraction that this was asked for still runs
            return jobs.status_of(job)

    def stop(self, job_id: str | None) -> StopReport:
        """Stop a server job (`None`: the one that runs) and prove that nothing of it is left. Extractions that send to it hold
        their requests first, and go on by themselves when a server is ready on its port.

        Raises:
            Refused: there is no such job, or none runs.
        """
        with jobs.exclusive(self._home):  # a start in progress is seen to its end first
            job = self._job(job_id)
        with senders.held(self._home, job):
            ledger.note_segments(job)
            pids = {stat.pid for stat in stopping.members(job)}
            shown = proof.shown_on_gpus(pids)
            report = stopping.stop(job, grace=STOP_GRACE)
        if report.leftovers:
            return report
        return proof.after_stop(self._home, job, report, pids, shown=shown)

    def watch(self, job_id: str | None, on: bool) -> str:
        """Have the running server started again when it crashes while an extraction runs, or no more. A sentence.

        Raises:
            Refused: there is no such job, or none runs.
        """
        job = self._job(job_id, "watch")
        try:
            watchdog.set_watch(job, on)
        except OSError as error:
            raise Refused(f"The run directory {job.run_dir} could not be written: {error.strerror}.") from error
        if not on:
            return f"Server {job.id} is not started again when it crashes."
        left = watchdog.LIMIT - len(watchdog.record(job).restarts)
        return (
            f"Server {job.id} is started again when it crashes while an extraction runs, up to {left} times, and never "
            "for a cause that a restart cannot cure."
        )

    def stack(self, job_id: str | None) -> StackReport:
        """What each process of the running server does right now.

        Raises:
            Refused: there is no such job, or nothing of it lives.
        """
        return stack.report(self._job(job_id, "look at"))

    def _job(self, job_id: str | None, verb: str = "stop") -> jobs.Job:
        if job_id is None:
            running = jobs.living(self._home, "server")
            left = jobs.newest(self._home, "server")
            if not running and left is not None and stopping.members(left):
                return left  # the server died, some of its processes did not
            if not running:
                raise Refused(f"No server that was started from here is running: there is nothing to {verb}.")
            return running[0]
        job = jobs.find(self._home, job_id)
        if job is None or job.kind != "server":
            raise Refused(f"There is no server job {job_id} on this box.")
        return job

    def _no_other(self) -> None:
        for job in jobs.living(self._home, "server"):
            raise Refused(
                f"A server runs already: job {job.id} with {job.spec['message'].get('model')} on port "
                f"{job.spec['message'].get('port')}. Stop it first, or use it as it is."
            )
        last = jobs.newest(self._home, "server")
        left = [] if last is None else stopping.members(last)
        if last is not None and left:
            names = ", ".join(f"pid {stat.pid} ({stat.name})" for stat in left)
            raise Refused(f"Processes of the ended server job {last.id} still live: {names}. Stop that job first.")

    def _prepare(self, asked: ServerSpec, *, ours_will_end: bool = False) -> Prepared:
        asked = handover.restored(self._home, asked)
        try:
            return self._prepared(asked, ours_will_end=ours_will_end)
        except Refused as error:
            raise Refused(hide_text(str(error), handover.of(asked).values())) from None

    def _prepared(self, asked: ServerSpec, *, ours_will_end: bool) -> Prepared:
        try:
            spec = launch.settle(asked)
        except launch.PlanError as error:
            raise Refused(str(error)) from error
        spec = dataclasses.replace(
            spec, model=_absolute(spec.model), python=_interpreter(spec.python), dump_dir=_absolute(spec.dump_dir)
        )
        python = _check_python(spec)
        model = _check_model(spec)
        # Another user, or another box folder, has servers of its own: a stop here does not end them.
        ending = {job.id for job in jobs.everything(self._home, "server")} if ours_will_end else set()
        port = decode(PortFact, doctor.port_fact(spec.port)) if 0 < spec.port < 65536 else None
        if port is not None and not port.free and port.job not in ending:
            raise Refused(f"Port {spec.port} is taken by {port.holder}: choose another port or end that process.")
        job_id = jobs.new_id("server")
        url = url_of(spec.host, spec.port)
        dump_dir = spec.dump_dir or dumpdir.waiting(self._home, url) or str(dumpdir.default(job_id))
        dumpdir.check(Path(dump_dir))
        user = dumpdir.taken(self._home, Path(dump_dir), url, ending)
        if user:
            raise Refused(f"The dump directory {dump_dir} is taken by {user}: name another one.")
        try:
            spec, plan = self._checked(spec, python.sglang, model, dump_dir)
        except launch.PlanError as error:
            raise Refused(str(error)) from error
        if not spec.share_gpus:
            _check_gpus(spec, ending)  # its arguments are written out by now
        return Prepared(spec, plan, model, job_id, dump_dir)

    def _checked(
        self, spec: ServerSpec, version: str, model: ModelFact, dump_dir: str
    ) -> tuple[ServerSpec, LaunchPlan]:
        """A line that the installed parser takes, with abbreviations written out; or one with a note that it was not asked.

        Raises:
            PlanError: see `launch.plan`, `launch.written_out` and `launch.check`.
        """
        plan = launch.plan(spec, version, model, self._release, dump_dir, os.environ)
        try:
            parser = self._ask(plan)
            spec = launch.written_out(spec, version, parser)
            again = launch.plan(spec, version, model, self._release, dump_dir, os.environ, parser.names)
            if again.argv != plan.argv:
                plan, parser = again, self._ask(again)
        except NoParser as error:
            note = f"arguments NOT checked: {error}; a wrong one shows in the server's log"
            return spec, dataclasses.replace(plan, notes=(*plan.notes, note))
        launch.check(parser, spec, version)
        return spec, plan

    def _ask(self, plan: LaunchPlan) -> Parser:
        python, own = plan.argv[0], plan.argv[1 + len(launch.MODULE) :]
        return self._arguments.ask(python, plan.sglang_version, own, plan.env)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def _interpreter(python: str) -> str:
    """The Python as an absolute path; a bare name is looked up in PATH. Links are kept: they are the environment."""
    if python and os.sep not in python:
        return shutil.which(python) or python
    return _absolute(python)


def _check_python(spec: ServerSpec) -> PythonFact:
    if not spec.python:
        raise Refused("No Python is named to start the server with: give the one that has SGLang.")
    fact = decode(PythonFact, doctor.python_fact(spec.python))
    if fact.error:
        raise Refused(f"The Python {spec.python} cannot be used: {fact.error}.")
    if not fact.sglang:
        raise Refused(f"The Python {spec.python} has no SGLang: name the one of the environment that has it.")
    return fact


def _check_gpus(spec: ServerSpec, ending: Collection[str]) -> None:
    given = {one.name: one.values for one in split(spec.extra_args)}
    if given.get("--device") == ("cpu",):
        return
    cards = gpus.cards()
    if cards is None:
        return  # no nvidia-smi: nothing is known of the GPUs, and nothing claimed
    needed = _gpus_of(spec, given, gpus.visible(cards, {**os.environ, **spec.env}))
    held = gpus.taken(needed, ending)
    if held:
        raise Refused(
            f"The GPUs are taken: {'; '.join(held)}. End what holds them, choose others with CUDA_VISIBLE_DEVICES, or "
            "start all the same with --share-gpus."
        )


def _gpus_of(spec: ServerSpec, given: Mapping[str, Sequence[str]], seen: Sequence[gpus.Card]) -> Sequence[gpus.Card]:
    """Those of the GPUs that the server sees which its schedulers will be on (0.5.9: ``entrypoints/engine.py``,
    ``_launch_scheduler_processes``; ``managers/data_parallel_controller.py``; the patch refuses pipeline parallel)."""

    def number(default: int, *names: str) -> int:
        values = next((given[name] for name in names if name in given), ())
        return int(values[0]) if len(values) == 1 and values[0].isdigit() else default

    groups = 1 if "--enable-dp-attention" in given else number(1, "--dp-size", "--data-parallel-size")
    count = spec.tp * groups // max(number(1, "--nnodes"), 1)
    return seen[number(0, "--base-gpu-id") :: max(number(1, "--gpu-id-step"), 1)][:count]


def _check_model(spec: ServerSpec) -> ModelFact:
    if not spec.model:
        raise Refused("No model is named: give the directory that holds config.json and the weights.")
    model = decode(ModelFact, doctor.model_fact(spec.model))
    if model.error:
        raise Refused(f"The model at {spec.model} cannot be used: {model.error}.")
    return model
