"""Starts exports as detached jobs, and makes vocabulary mappings."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from eagle3_remote.job import jobs, shortjobs, work
from eagle3_remote.job.programs import Programs
from eagle3_remote.protocol import ExportSpec, JobStatus, StopReport, VocabMapSpec, decode, encode
from eagle3_remote.rpc import Refused


class ExportControl(Programs):
    """Starts exports."""

    def start(self, asked: ExportSpec) -> JobStatus:
        """Start an export as a detached job; one that runs with the same request is joined, not doubled.

        Raises:
            Refused: a path is wrong, no Python with torch is known, or another export writes the target.
        """
        spec = dataclasses.replace(
            asked, dataset=_absolute(asked.dataset), to=_absolute(asked.to), model=_absolute(asked.model)
        )
        _check_dataset(spec.dataset)
        with jobs.exclusive(self._home):
            spec = dataclasses.replace(spec, python=shortjobs.python_of(self._home, asked=asked.python))
            for job in jobs.living(self._home, "export"):
                running = decode(ExportSpec, job.spec["message"])
                if running == spec:
                    return jobs.status_of(job)
                if os.path.realpath(running.to) == os.path.realpath(spec.to):
                    raise Refused(
                        f"Job {job.id} exports into {running.to} already, as {running.format}: wait for it, or stop it first."
                    )
            # each writer is a thread already
            env = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
            return self._start("export", "export.__main__", [spec.python], encode(spec), env)

    def stop(self, asked: ExportSpec) -> StopReport:
        """Ask the export that writes the named target to end; what is written stays.

        Raises:
            Refused: none runs there.
        """
        to = os.path.realpath(_absolute(asked.to))
        for job in jobs.living(self._home, "export"):
            if os.path.realpath(decode(ExportSpec, job.spec["message"]).to) == to:
                return work.stop(self._home, job.id)
        raise Refused(f"No export into {to} is running on this box: there is nothing to stop.")

    def vocab_map(self, asked: VocabMapSpec) -> Any:
        """An encoded `VocabMapReport`: what was counted, chosen and written.

        Raises:
            Refused: no such dataset, no Python with torch is known, or it cannot be made; the text says why.
        """
        spec = dataclasses.replace(
            asked, dataset=_absolute(asked.dataset), to=_absolute(asked.to), model=_absolute(asked.model)
        )
        _check_dataset(spec.dataset)
        python = shortjobs.python_of(self._home, asked=asked.python)
        made = shortjobs.run(self._release, python, "export.vocab", json.dumps(encode(spec)))
        if "refused" in made:
            raise Refused(str(made["refused"]))
        return made


def _check_dataset(path: str) -> None:
    if not os.path.isdir(path):
        raise Refused(f"There is no dataset directory {path} on this box.")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else ""
