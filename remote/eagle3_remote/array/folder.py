"""The folder of one array, beside its output; login host and compute nodes both see it.

::

    <out>.array/array.json       what was asked for, and Slurm's numbers of the submissions
                submit.sh        what was submitted; `sbatch submit.sh` by hand does the same
                release/         the code that the tasks run, whatever the console deploys later
                shards/0-of-8/   a dataset each
                tasks/0/         the box folder of a task: runs/<server or extraction>, task.json
                slurm-0.out      what the task said
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.protocol import ArraySpec, decode, encode

SUFFIX = ".array"


@dataclasses.dataclass(frozen=True)
class ArrayFolder:
    """The paths of one array."""

    root: Path

    @classmethod
    def of(cls, out: str) -> ArrayFolder:
        """The one whose merged dataset will be `out`."""
        return cls(Path(os.path.abspath(out) + SUFFIX))

    @property
    def record(self) -> Path:
        return self.root / "array.json"

    @property
    def script(self) -> Path:
        return self.root / "submit.sh"

    @property
    def release(self) -> Path:
        return self.root / "release"

    @property
    def shards(self) -> Path:
        return self.root / "shards"

    def shard(self, index: int, count: int) -> Path:
        """The dataset of one task."""
        return self.shards / f"{index}-of-{count}"

    def home(self, index: int) -> Path:
        """The box folder of one task."""
        return self.root / "tasks" / str(index)

    def said(self, index: int) -> Path:
        """The last word of one task."""
        return self.home(index) / "task.json"

    def log(self, index: int) -> Path:
        """What one task said."""
        return self.root / f"slurm-{index}.out"

    def spec(self) -> ArraySpec:
        """What was asked for.

        Raises:
            ValueError: there is no usable record.
        """
        return decode(ArraySpec, (read_json(self.record) or {}).get("message"))

    def jobs(self) -> list[str]:
        """Slurm's numbers of all submissions, the newest last."""
        listed = (read_json(self.record) or {}).get("jobs", [])
        return [str(one) for one in listed] if isinstance(listed, list) else []

    def write(self, spec: ArraySpec, jobs: list[str]) -> None:
        """Keep what was asked for.

        Raises:
            OSError: it cannot be written.
        """
        record: dict[str, Any] = {"message": encode(spec), "jobs": jobs}
        write_atomic(self.record, json.dumps(record, indent=1).encode())
