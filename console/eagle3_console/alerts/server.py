"""The server and the patch in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eagle3_console import units
from eagle3_console.alerts.extraction import EXTRACTING
from eagle3_console.events import Alert
from eagle3_console.told import SERVING, was_stopped
from eagle3_remote.protocol import STARTING, ExtractStatus, Phase, ServerStatus


def server(server: ServerStatus, extract: ExtractStatus | None, keys: Mapping[str, str]) -> Iterator[Alert]:
    """What is wrong with the server, and what its watchdog did about it."""
    job = server.job.id if server.job is not None else "server"
    log = server.log
    start, restart, extract_key = keys["server.start"], keys["server.restart"], keys["extract.start"]
    the_log = f"the log ({keys['focus.4']})"
    if server.restarts:
        last, count = server.restarts[-1], len(server.restarts)
        text = f"the server crashed and the box started it again (restart {count}): {last.reason}"
        cure = f"it goes on by itself; `eagle3-console server log --root-cause` and {the_log} say why it crashed"
        yield Alert(0.0, "warning", f"server-restarted:{job}:{count}", text, cure)
    if server.phase is Phase.FAILED:
        reason = log.root_cause or server.sentence
        text = f"server failed ({log.failure}): {reason}" if log.failure else f"server failed: {reason}"
        yield Alert(
            0.0, "error", f"server-failed:{job}", text, log.advice or f"read {the_log}, then start it again ({start})"
        )
    elif server.phase is Phase.UNRESPONSIVE:
        yield Alert(
            0.0,
            "error",
            f"server-unresponsive:{job}",
            server.sentence,
            f"read {the_log}; {restart} restarts the server",
        )
    elif server.phase is Phase.EXITED and extract is not None and extract.state in EXTRACTING:
        cure = f"start it again ({start}): the extraction goes on by itself, or with {extract_key} where it has ended"
        asked = was_stopped(server)
        text = (
            "the server was stopped: the extraction waits for it"
            if asked
            else "the server is gone while the extraction runs"
        )
        yield Alert(0.0, "info" if asked else "error", f"server-exited:{job}", text, cure)
    elif server.phase is Phase.STUCK:
        cure = f"`eagle3-console server stack` shows where each process is; {restart} restarts the server"
        yield Alert(0.0, "error", f"server-stuck:{job}", server.sentence, cure)


def patch(server: ServerStatus, keys: Mapping[str, str]) -> Iterator[Alert]:
    """What would make the rows of this server wrong or missing."""
    if server.job is None or server.phase not in (*STARTING, *SERVING, Phase.FAILED):
        return
    job, log, restart = server.job.id, server.log, keys["server.restart"]
    if log.refused is not None:
        text = f"the patch refused to work: {log.refused}"
        yield Alert(
            0.0,
            "error",
            f"patch-refused:{job}",
            text,
            f"no rows can be dumped by this server; see the log ({keys['focus.4']})",
        )
    seen, wanted = ranks(server)
    if server.phase in SERVING and log.refused is None and seen < wanted:
        text = f"the patch is active on {seen} of {wanted} ranks"
        yield Alert(
            0.0,
            "error",
            f"patch-missing:{job}",
            text,
            f"do not extract: deploy ({keys['deploy']}) and restart the server ({restart})",
        )
    if server.phase in SERVING and server.spec is not None and server.spec.radix_cache:
        text = "the radix cache is on: shared prefixes would be missing from the rows"
        yield Alert(
            0.0,
            "warning",
            f"radix-on:{job}",
            text,
            (f"{keys['extract.start']} extracts without a restart, " if server.extra_key else "")
            + f"{restart} restarts with the radix cache off",
        )
    if log.cached_tokens > 0 and not (server.spec is not None and server.spec.radix_cache):  # with it on, others may
        text = f"a prefill took {units.number(log.cached_tokens)} tokens from the cache: their rows are missing"
        yield Alert(
            0.0, "error", f"cached-tokens:{job}", text, f"{restart} restarts the server with the radix cache off"
        )


def ranks(server: ServerStatus) -> tuple[int, int]:
    """On how many tensor-parallel ranks the patch said that it is there, and on how many it must."""
    markers = server.log.markers
    wanted = max([marker.tp_size for marker in markers], default=0) or (server.spec.tp if server.spec else 1)
    return len({marker.tp_rank for marker in markers}), wanted
