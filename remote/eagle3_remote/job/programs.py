"""The box's own programs as detached jobs: ``main([RUN_DIR])`` of a module, in the Python that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_remote.job import jobs
from eagle3_remote.job.secretfile import Secrets
from eagle3_remote.protocol import JobStatus
from eagle3_remote.rpc import Refused


class Programs:
    """What starts jobs of one kind.

    Args:
        home: the box folder.
        release: the folder that holds ``eagle3_remote``.
    """

    def __init__(self, home: Path, release: Path) -> None:
        self._home, self._release = home, release

    def _start(
        self,
        kind: str,
        module: str,
        python: Sequence[str],
        message: Mapping[str, Any],
        env: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        secrets: Secrets | None = None,
    ) -> JobStatus:
        """Start `module` as a job; `python` is the interpreter with its options.

        Raises:
            Refused: the job could not be started; nothing runs then.
        """
        argv = [*python, "-u", "-c", jobs.code_of(self._release, module)]
        try:
            job = jobs.start(
                self._home,
                self._release,
                jobs.new_id(kind),
                argv,
                env or {},
                message,
                facts=facts,
                run_dir_arg=True,
                secrets=secrets,
            )
        except jobs.JobError as error:
            raise Refused(str(error)) from error
        return jobs.status_of(job)
