"""What is told of the steps of the main job: what will be made, what a check came to, why a server is not there. Pure but for the clock."""

from __future__ import annotations

import time

from eagle3_console import units
from eagle3_console.events import Alert
from eagle3_console.plan import Plan
from eagle3_remote.protocol import Facts, JobState, Phase, ServerStatus, VerifyReport

SERVING = (Phase.READY, Phase.BUSY)


def verified_alert(verify: VerifyReport) -> Alert:
    """A check that came to its end."""
    now = time.time()
    faults = "1 fault" if verify.problem_count == 1 else f"{units.number(verify.problem_count)} faults"
    text = f"verified {verify.dataset}: {units.number(verify.samples)} samples, {faults}"
    if verify.ok:
        return Alert(now, "info", f"verified-{now:.0f}", text)
    cure = "`eagle3-console verify` lists them; 'extract start' makes again what is missing or damaged"
    return Alert(now, "error", f"verified-{now:.0f}", text, cure)


def plan_lines(facts: Facts, plan: Plan) -> tuple[str, ...]:
    """What is going to be made, from what the doctor saw."""
    lines = []
    if facts.model is not None and facts.model.hidden_size:
        model = facts.model
        count = len(plan.boundaries) or 3
        lines.append(f"{model.architecture}: {model.num_layers} layers, hidden {model.hidden_size}")
        asked = ", ".join(map(str, plan.boundaries)) or "2, N//2, N-3"
        size = (count + 1) * model.hidden_size * (4 if model.dtype == "float32" else 2)
        lines.append(f"boundaries {asked} and the final state: {size:,} bytes a token")
    if facts.data is not None:
        lines.append(f"from {facts.data.path}, {units.gb(facts.data.size)}")
    if facts.out is not None:
        lines.append(f"to {facts.out.path}, {units.gb_and_gib(facts.out.free)} free")
    return tuple(lines)


def was_stopped(server: ServerStatus) -> bool:
    """Whether it ended because somebody asked for it: what ends so by itself has failed, or an exit status of 0."""
    job = server.job
    ended = job is not None and job.state is not JobState.REBOOTED and job.rc != 0
    return server.phase is Phase.EXITED and ended and not server.log.refused


def failure_sentence(server: ServerStatus) -> str:
    """Why a server is not there, from the log: cause, advice, and where to read on."""
    log = server.log
    if log.refused:
        return f"The patch refused to run in this server: {log.refused}"
    parts = [f"The server did not come up: {server.sentence}"]
    if log.root_cause and log.root_cause.rstrip(".") not in server.sentence:
        parts.append(f"Cause: {log.root_cause}")
    elif not log.root_cause and log.last_line:
        parts.append(f"Last line: {log.last_line}")
    if log.advice and log.advice not in server.sentence:
        parts.append(log.advice)
    if server.job is not None:
        parts.append(f"Its log: {server.job.log_path}")
    return " ".join(part if part.endswith((".", "!", "?")) else part + "." for part in parts)
