"""Starts and stops extraction jobs, and runs the short checks that need the job's own Python."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eagle3_remote.extract import control, place, rates
from eagle3_remote.job import jobs, shortjobs, stopping
from eagle3_remote.job.programs import Programs
from eagle3_remote.job.secretfile import Secrets
from eagle3_remote.protocol import (
    ControlReport,
    ExtractServer,
    ExtractSpec,
    ExtractWish,
    JobState,
    JobStatus,
    PlanReport,
    ServerStatus,
    StopReport,
    VerifyQuery,
    decode,
    encode,
)
from eagle3_remote.rpc import Refused
from eagle3_remote.server import apikey, attach
from eagle3_remote.server.status import extract_status, with_verified

CHUNK_UNKNOWN = 8192
"""Prefill chunk taken where the server's log names none, or chunking is off."""
STOP_WAIT = 120.0
"""Seconds that a stop waits for what is in flight before it answers that this still goes on."""


class ExtractControl(Programs):
    """Starts and stops extractions."""

    def start(self, asked: ExtractSpec, server: ServerStatus) -> JobStatus:
        """Fill the blanks of `asked` from the running server (ours, or the one that `asked` names) and start the
        extraction as a detached job.

        Raises:
            Refused: no fit server runs, a path is wrong, or an extraction runs already.
            ServerFault: the server does not answer the probe.
        """
        asked, key = dataclasses.replace(asked, api_key=""), asked.api_key
        with apikey.using(asked.server_url, key):
            fit = self._fit(asked, server)
            more = self._further(asked, server)
        with jobs.exclusive(self._home):
            spec = self._filled(asked, fit)
            for one in more:
                self._filled(asked, one)  # the same boundaries, and the same side of the final norm
            spec = with_more(spec, more)
            _check_paths(spec)
            self._check_free(spec)
            facts = {
                "server_job": fit.job,
                "server_argv": list(fit.argv),
                "server_env": _server_env(self._home, fit),
                "sglang_version": fit.version,
            }
            env = {"PYTHONUNBUFFERED": "1"}
            secrets = Secrets({apikey.ENV: key} if key else {})
            return self._start("extract", "extract.__main__", [spec.python], encode(spec), env, facts, secrets)

    def plan(self, asked: ExtractSpec, server: ServerStatus) -> Any:
        """An encoded `PlanReport`: what the extraction would take, measured with real requests; nothing but its rate is kept.

        Raises:
            Refused: no fit server runs, a path is wrong, or the extraction would not start for another reason than space.
            ServerFault: the server does not answer the probe.
        """
        asked, key = dataclasses.replace(asked, api_key=""), asked.api_key
        with apikey.using(asked.server_url, key):
            fit = self._fit(asked, server)
            more = self._further(asked, server)
        spec = with_more(self._filled(asked, fit), more)
        _check_paths(spec)
        made = shortjobs.run(
            self._release,
            spec.python,
            "extract.planning",
            json.dumps(encode(spec)),
            env={apikey.ENV: key} if key else {},
        )
        rates.keep(self._home, fit.model, decode(PlanReport, made))
        return made

    def stop(self, job_id: str | None) -> StopReport:
        """TERM to the extraction's process alone: it sends nothing more, finishes what is in flight, and ends.

        Raises:
            Refused: there is no such job, or none runs.
        """
        with jobs.exclusive(self._home):  # a start in progress is seen to its end first
            job = self._job(job_id, running=True)
        stopping.request_stop(job)
        try:
            signalled = stopping.terminate_leader(job)
        except PermissionError as error:
            raise Refused(f"Job {job.id} belongs to another user and cannot be stopped from here.") from error
        if not signalled and not stopping.members(job):
            return StopReport(job.id, False, f"Job {job.id} had ended already; nothing was signalled.")
        if not stopping.wait_end(job, STOP_WAIT):
            left = tuple(f"pid {stat.pid} ({stat.name})" for stat in stopping.members(job))
            return StopReport(
                job.id, False, f"Job {job.id} is still finishing what is in flight; it ends by itself.", left
            )
        return StopReport(job.id, True, f"Job {job.id} finished what was in flight and ended; it can be resumed.")

    def control(self, wish: ExtractWish) -> ControlReport:
        """Pause, resume, or another budget, noted in the job's run directory; the extraction looks there twice a second.

        Raises:
            Refused: there is no such job, none runs, or the wish means nothing.
        """
        with jobs.exclusive(self._home):  # two consoles do not wish at the same time
            job = self._job(wish.job, running=True)
            if jobs.state_of(job) not in (JobState.RUNNING, JobState.STARTING):
                raise Refused(f"Job {job.id} does not run any more: start the extraction again to go on.")
            place = str(job.run_dir)
            try:
                if wish.action == "pause":
                    control.pause(place)
                    text = "pauses: what is in flight is finished, nothing more is sent"
                elif wish.action == "resume":
                    control.resume(place)
                    text = "goes on"
                elif wish.action == "budget" and wish.tokens >= 0:
                    control.budget(place, wish.tokens)
                    tokens = f"{wish.tokens} tokens" if wish.tokens else "as many tokens as it was started with"
                    text = f"lets {tokens} be in flight at each server from now on"
                else:
                    raise Refused(f"An extraction can pause, resume or get a budget of tokens, not {wish.action!r}.")
            except OSError as error:
                raise Refused(f"{place} cannot be written: {error.strerror}.") from error
        return ControlReport(job.id, f"Job {job.id} {text}.")

    def verify(self, asked: VerifyQuery, server: Callable[[], ServerStatus], *, only_look: bool = False) -> Any:
        """An encoded `VerifyReport`: the dataset re-checked against its own manifest, and some rows against a live server.

        Args:
            only_look: write nothing, not even that it was checked.

        Raises:
            Refused: no such dataset, no Python to check it with is known, the server is not fit, or the check itself failed.
            ServerFault: the server does not answer.
        """
        path = _absolute(asked.dataset)
        if not os.path.isdir(path):
            raise Refused(f"There is no dataset directory {path} on this box.")
        job = next(
            (one for one in jobs.everything(self._home, "extract") if one.spec["message"].get("out") == path), None
        )
        words = ["--only-look"] if only_look else []
        if asked.server:
            url = "" if asked.server == "running" else asked.server
            fit = self._fit(ExtractSpec("", "", server_url=url, dump_dir=asked.dump_dir, extra_key=True), server())
            words += ["--server", fit.url, "--dump-dir", fit.dump_dir, *(["--extra-key"] if fit.extra_key else [])]
        return shortjobs.run(self._release, shortjobs.python_of(self._home, job), "extract.verify", path, *words)

    def report(self, job_id: str | None) -> Any:
        """An encoded `ExtractReport` of one extraction; `None`: the one that runs, else the last one.

        Raises:
            Refused: there is no such job, or the report itself failed.
        """
        job = self._job(job_id, running=False)
        python = shortjobs.python_of(self._home, job)
        made = shortjobs.run(self._release, python, "extract.report", str(job.run_dir))
        # what the job itself wrote last does not say that it was killed since
        return {**made, "status": encode(with_verified(extract_status(job)))}

    def _job(self, job_id: str | None, *, running: bool) -> jobs.Job:
        if job_id is not None:
            found = jobs.find(self._home, job_id)
            if found is None or found.kind != "extract":
                raise Refused(f"There is no extraction job {job_id} on this box.")
            return found
        if running:
            living = jobs.living(self._home, "extract")
            if not living:
                raise Refused("No extraction is running on this box: there is nothing to stop.")
            return living[0]
        newest = jobs.newest(self._home, "extract")
        if newest is None:
            raise Refused("No extraction was ever started on this box.")
        return newest

    def _fit(self, asked: ExtractSpec, server: ServerStatus) -> attach.Fit:
        if attach.is_ours(server, asked.server_url):
            return attach.own(server, asked)
        return attach.others(self._home, asked)

    def _further(self, asked: ExtractSpec, server: ServerStatus) -> list[attach.Fit]:
        return [
            self._fit(dataclasses.replace(asked, server_url=one.url, dump_dir=one.dump_dir), server)
            for one in asked.servers
        ]

    def _filled(self, asked: ExtractSpec, fit: attach.Fit) -> ExtractSpec:
        marker = fit.marker
        if asked.boundaries and tuple(sorted(asked.boundaries)) != marker.boundaries:
            raise Refused(
                f"The running server captures the boundaries {_list(marker.boundaries)}, not {_list(sorted(asked.boundaries))}: "
                "restart it with those you want."
            )
        if asked.final and asked.final != marker.final:
            raise Refused(
                f"The running server dumps the final state {marker.final}-norm, {asked.final}-norm is asked for: "
                "restart it with the one you want."
            )
        chunk = fit.chunk
        return dataclasses.replace(
            asked,
            data=_absolute(asked.data),
            out=_absolute(asked.out),
            server_url=fit.url,
            dump_dir=_absolute(asked.dump_dir) or fit.dump_dir,
            python=os.path.expanduser(asked.python) or fit.python,
            model=_absolute(asked.model) or fit.model,
            extra_key=fit.extra_key,
            boundaries=marker.boundaries,
            final=marker.final,
            tokens_in_flight=asked.tokens_in_flight
            or 4 * (chunk if chunk is not None and chunk > 0 else CHUNK_UNKNOWN),
        )

    def _check_free(self, spec: ExtractSpec) -> None:
        for job in jobs.living(self._home, "extract"):
            out = str(job.spec["message"].get("out", ""))
            if os.path.realpath(out) == os.path.realpath(spec.out):
                raise Refused(f"Job {job.id} already extracts into {spec.out}: watch it, or stop it first.")
            raise Refused(
                f"Job {job.id} extracts into {out}, and one extraction runs at a time: wait for its end, or stop it first."
            )


def with_more(spec: ExtractSpec, more: Sequence[attach.Fit]) -> ExtractSpec:
    """An extraction through further servers; where one of them has the radix cache on, each request gets a key."""
    return dataclasses.replace(
        spec,
        servers=tuple(ExtractServer(one.url, one.dump_dir) for one in more),
        extra_key=spec.extra_key or any(one.extra_key for one in more),
    )


def _server_env(home: Path, fit: attach.Fit) -> dict[str, str]:
    job = jobs.find(home, fit.job) if fit.job else None
    return {str(key): str(value) for key, value in (fit.env if job is None else job.spec.get("env", {})).items()}


def _check_paths(spec: ExtractSpec) -> None:
    if not os.path.exists(spec.data):
        raise Refused(f"The data file {spec.data} does not exist on this box.")
    if not os.access(spec.data, os.R_OK):
        raise Refused(f"The data file {spec.data} may not be read by this user.")
    parent = os.path.dirname(spec.out)
    if os.path.exists(spec.out):
        if not os.path.isdir(spec.out):
            raise Refused(f"The output {spec.out} is a file: name a directory.")
        parent = spec.out
    elif not os.path.isdir(parent):
        raise Refused(f"The parent of the output directory, {parent}, does not exist: make it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise Refused(f"{parent} may not be written by this user: name another output directory.")
    if (why := place.misplaced(spec.out, spec.model, spec.data)) is not None:
        raise Refused(f"The output {spec.out} {why}.")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def _list(values: Any) -> str:
    return ", ".join(str(one) for one in values)
