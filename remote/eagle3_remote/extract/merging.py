"""Starting the job that joins shards."""

from __future__ import annotations

import os

from eagle3_remote.array.folder import ArrayFolder
from eagle3_remote.job import jobs
from eagle3_remote.job.programs import Programs
from eagle3_remote.protocol import JobStatus, MergeSpec, encode
from eagle3_remote.rpc import Refused


class MergeControl(Programs):
    """Starts joins."""

    def start(self, asked: MergeSpec) -> JobStatus:
        """Start a detached job; it checks the shards itself and says what is wrong with them. One that joins there already is handed
        out again.

        Raises:
            Refused: no shard and no array is there, or no Python is known.
        """
        spec = self._filled(asked)
        with jobs.exclusive(self._home):
            for job in jobs.living(self._home, "merge"):
                if job.spec["message"].get("out") == spec["out"]:
                    return jobs.status_of(job)
            return self._start("merge", "extract.merge", [str(spec["python"])], spec)

    def _filled(self, asked: MergeSpec) -> dict[str, object]:
        out = os.path.abspath(os.path.expanduser(asked.out))
        shards = [os.path.abspath(os.path.expanduser(path)) for path in asked.shards]
        python, folder = os.path.expanduser(asked.python), ArrayFolder.of(out)
        try:
            array = folder.spec()
        except ValueError:
            array = None
        if not shards and array is None:
            raise Refused(f"No shard is named, and no array was submitted for {out}: name the shards.")
        if not shards and array is not None:
            shards = [str(folder.shard(index, array.tasks)) for index in range(array.tasks)]
        known = [python, array.server.python if array is not None else ""]
        known += [
            str(job.spec["message"].get("python", ""))
            for kind in ("extract", "server")
            for job in jobs.everything(self._home, kind)
        ]
        chosen = next((path for path in known if path and os.access(path, os.X_OK)), "")
        if not chosen:
            raise Refused("No Python with pyarrow is known here: name the one that has SGLang with --python.")
        return {**encode(asked), "out": out, "shards": shards, "python": chosen}
