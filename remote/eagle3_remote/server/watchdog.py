"""Starts a crashed server again while an extraction runs: when, how often, and for which causes never. It runs in the
job's supervisor, so that it works with every console gone.

Files in the run directory: ``watch.json`` (somebody asked for it), ``restarts.json`` (what it did and why).
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from eagle3_remote.box import shm
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import Phase, Restart, ServerLog
from eagle3_remote.server import dumpdir, ledger, stuck
from eagle3_remote.serverlog import view
from eagle3_remote.serverlog.logtail import LogTail

WATCH_FILE, RESTARTS_FILE = "watch.json", "restarts.json"
BACK_OFF = (5.0, 20.0, 60.0)
"""Seconds before each restart; there are as many as these."""
LIMIT = len(BACK_OFF)
DEAD_AFTER = 30.0
"""Seconds that SGLang has to end itself once a scheduler is dead. 0.5.10 and newer do so; 0.5.9 serves on without it."""

INCURABLE = frozenset(
    {
        "bad_args",
        "corrupt_safetensors",
        "cuda_driver_mismatch",
        "disk_full",
        "download_failed",
        "gpu_occupied",
        "host_memory_too_small",
        "import_error",
        "invalid_device",
        "kv_pool_too_small",
        "missing_weights",
        "patch_refused",
        "permission_denied",
        "port_in_use_dist",
        "port_in_use_http",
        "shm_too_small",
        "unsupported_model",
    }
)
"""Causes that meet the next start as they met this one."""
INCURABLE_AT_START = frozenset(
    {"cuda_oom", "gloo_mesh", "host_oom_kill", "nccl_init", "nccl_timeout", "native_crash", "sigbus"}
)
"""Causes that a restart cures only where the server had been ready before."""


_ASKED = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit codes of a server that somebody ended."""


def incurable(failure: str | None, was_ready: bool) -> bool:
    """Whether a restart would only fail again, by the cause's machine word. An unknown cause may be cured."""
    return failure in INCURABLE or (not was_ready and failure in INCURABLE_AT_START)


def set_watch(job: jobs.Job, on: bool) -> None:
    """Ask for restarts of this server job, or for none."""
    if on:
        write_atomic(job.run_dir / WATCH_FILE, json.dumps({"at": time.time()}).encode())
    else:
        (job.run_dir / WATCH_FILE).unlink(missing_ok=True)


def watched(job: jobs.Job) -> bool:
    """Whether somebody asked for restarts."""
    return (job.run_dir / WATCH_FILE).exists()


@dataclasses.dataclass(frozen=True)
class Record:
    """What was done for one job so far."""

    restarts: tuple[Restart, ...] = ()
    starts_at: float | None = None
    """Unix time of the restart that is being waited for."""
    given_up: str = ""
    """Why there is no (further) restart."""


def record(job: jobs.Job) -> Record:
    """As ``restarts.json`` has it."""
    saved = read_json(job.run_dir / RESTARTS_FILE) or {}
    try:
        restarts = tuple(
            Restart(float(one["at"]), str(one["kind"]), str(one["reason"])) for one in saved.get("restarts", ())
        )
        starts_at = saved.get("starts_at")
        return Record(restarts, None if starts_at is None else float(starts_at), str(saved.get("given_up", "")))
    except (KeyError, TypeError, ValueError):
        return Record()


class Watchdog:
    """Decides for one server job; the supervisor does.

    Args:
        job: the job it supervises.
    """

    def __init__(self, job: jobs.Job) -> None:
        self._job = job
        self._ledger = ledger.Ledger(job)
        self._dead_since: float | None = None
        self._death = ""

    def begin(self) -> None:
        """Before the first process of an incarnation is started."""
        self._dead_since, self._death = None, ""
        self._ledger.begin()

    def tick(self) -> bool:
        """Look at the processes, every few seconds; True: end them, a scheduler is dead and the rest only pretends."""
        now = self._ledger.tick()
        if not now.dead:
            self._dead_since = None
            return False
        self._dead_since = self._dead_since or time.monotonic()
        self._death = stuck.died(now.dead)
        late = time.monotonic() - self._dead_since > DEAD_AFTER
        return late and self._wanted() == "" and len(record(self._job).restarts) < LIMIT

    def verdict(self, code: int) -> float | None:
        """After the end of an incarnation: seconds until the next one, or `None` for no restart."""
        done = record(self._job).restarts
        why_not = self._wanted()
        if why_not:
            return None
        log = self._log()
        reason, kind = self._reason(code, log), log.failure or ("scheduler_died" if self._death else "")
        was_ready = any(span.phase is Phase.READY for span in log.spans)
        if log.phase in (Phase.STOPPING, Phase.EXITED) or (code in _ASKED and not self._death):
            why_not = "it was asked to end, or ended by itself without an error"
        elif incurable(kind, was_ready):
            why_not = f"a restart cannot cure this: {reason}"
        elif len(done) >= LIMIT:
            why_not = f"it was restarted {LIMIT} times already; this time: {reason}"
        if why_not:
            self._save(Record(done, given_up=why_not))
            return None
        wait = BACK_OFF[len(done)]
        self._save(Record((*done, Restart(time.time(), kind, reason)), starts_at=time.time() + wait))
        return wait

    def clear(self) -> bool:
        """End what is left of the last incarnation, and put its log aside; False: something could not be ended, or the
        restart is not wanted any more: ending takes a while."""
        if not stopping.end_at_once(stopping.Roster(self._job), 20.0):
            self.give_up("processes of the last one could not be ended")
            return False
        shm.reclaim(ledger.segments(self._job))
        number = len(record(self._job).restarts)
        if not self.still_wanted():
            return False
        os.replace(self._job.log_path, self._job.run_dir / f"out.{number}.log")
        return True

    def still_wanted(self) -> bool:
        """Whether the restart that is waited for is still to be made; notes it where it is not."""
        why_not = self._wanted()
        if why_not:
            self.give_up(why_not)
        return not why_not

    def give_up(self, why: str) -> None:
        """There is no restart, for this reason; one that was announced is not counted."""
        kept = record(self._job)
        self._save(Record(kept.restarts if kept.starts_at is None else kept.restarts[:-1], given_up=why))

    def started(self) -> None:
        """The next incarnation runs."""
        self._save(dataclasses.replace(record(self._job), starts_at=None))

    def _wanted(self) -> str:
        """Empty: a restart would be right now; else why not."""
        if self._job.stop_requested:
            return "it was stopped"
        if not watched(self._job):
            return "nobody asked for it"
        home = self._job.run_dir.parent.parent
        if dumpdir.in_use(home, str(self._job.spec.get("dump_dir"))) is None:
            return "no extraction uses it"
        return ""

    def _log(self) -> ServerLog:
        return view(LogTail(self._job.log_path, keep=self._job.run_dir).update(), ended=True)

    def _reason(self, code: int, log: ServerLog) -> str:
        if log.root_cause:
            return log.root_cause.rstrip(".")
        return self._death.rstrip(".") or (
            f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        )

    def _save(self, what: Record) -> None:
        value: dict[str, Any] = {
            "restarts": [dataclasses.asdict(one) for one in what.restarts],
            "starts_at": what.starts_at,
            "given_up": what.given_up,
        }
        try:
            write_atomic(self._job.run_dir / RESTARTS_FILE, json.dumps(value).encode())
        except OSError as error:
            os.write(2, f"eagle3: {RESTARTS_FILE} could not be written: {error.strerror}\n".encode())


def of_run_dir(run_dir: Path, spec: dict[str, Any]) -> Watchdog | None:
    """The watchdog of a server job; `None` for a job of another kind."""
    job = jobs.Job(str(spec["id"]), run_dir, spec)
    return Watchdog(job) if job.kind == "server" else None
