"""Whether the numbers that were typed can be, on this box and with this model and data. Pure."""

from __future__ import annotations

from eagle3_console import units
from eagle3_console.judge import FAIL, WARN, Finding
from eagle3_console.plan import Plan
from eagle3_console.setup.propose import CHUNKS, CONTEXT_RESERVE, LARGEST_CHUNK, SHM_SHARE, fitting, sizes
from eagle3_remote.protocol import DataLook, Facts, ModelLook

MOST_IN_FLIGHT = 16 * CHUNKS * LARGEST_CHUNK
"""Tokens. Whatever is kept in flight becomes the server's prefill chunk (a quarter of it), and the memory a chunk takes grows
with it; 16 times SGLang's own largest is far beyond what any GPU gains from."""


def of_tp(look: ModelLook, facts: Facts | None, plan: Plan) -> tuple[Finding, ...]:
    """Whether so many GPUs are there and hold the model; nothing to say while they do."""
    gpus = facts.gauges.gpus if facts is not None and facts.gauges is not None else ()
    found = []
    if plan.tp not in sizes(look, plan.tp):
        able = ", ".join(map(str, sizes(look, max(len(gpus), 8))))
        found.append(
            Finding(FAIL, "tp", f"{look.heads} heads cannot be shared by {plan.tp} GPUs.", f"Possible: {able}.")
        )
    if gpus and plan.tp > len(gpus):
        found.append(Finding(FAIL, "tp", f"{plan.tp} GPUs are asked and {len(gpus)} are there.", "Ask for fewer."))
    elif gpus and not plan.on_cpu() and plan.tp not in fitting(look, gpus) and plan.tp in sizes(look, plan.tp):
        have = units.gib(plan.tp * min(gpu.memory_total for gpu in gpus))
        text = f"{units.gib(look.fact.weight_bytes)} of weights leave little of the {have} of {plan.tp} GPUs."
        too_much = look.fact.weight_bytes > plan.tp * min(gpu.memory_total for gpu in gpus)
        found.append(Finding(FAIL if too_much else WARN, "tp", text, "More GPUs are needed."))
    elif facts is not None and not gpus and plan.on_cpu() and plan.tp > 1:
        text = f"no GPU is seen: {plan.tp} processes share the CPU and its memory."
        found.append(Finding(WARN, "tp", text, "1 is enough there."))
    return tuple(found)


def of_in_flight(plan: Plan, facts: Facts | None, token_bytes: int) -> tuple[Finding, ...]:
    """Whether so many tokens can be at the server at once.

    Args:
        token_bytes: of the states of one token; 0: not known.
    """
    count = plan.tokens_in_flight
    if count > MOST_IN_FLIGHT:
        text = (
            f"{units.number(count)} tokens are more than {units.number(MOST_IN_FLIGHT)}: a quarter of them is the server's "
            f"prefill chunk, and SGLang's own is {units.number(LARGEST_CHUNK)} at most."
        )
        return (Finding(FAIL, "in flight", text, "Type fewer, or auto."),)
    if facts is None or not token_bytes or not (plan.dump_dir or "/dev/shm").startswith("/dev/shm"):
        return ()
    need = count * token_bytes
    text = f"the states of {units.number(count)} tokens take {units.gb(need)}, /dev/shm has {units.gb(facts.shm_free)} free"
    if need > facts.shm_free:
        most = units.number(facts.shm_free // token_bytes)
        cure = f"At most {most} fit; or name a folder on a fast disk in the field Dumps."
        return (Finding(FAIL, "in flight", f"{text}.", cure),)
    if need > facts.shm_free * SHM_SHARE:
        return (Finding(WARN, "in flight", f"{text}, and others use it, too: it is more than half."),)
    return ()


def of_longest(plan: Plan, model: ModelLook) -> tuple[Finding, ...]:
    """Whether the cut is one that the model can take."""
    context = model.fact.context_len
    own = any(word.partition("=")[0] == "--context-length" for word in plan.server_args)
    if not context or own or plan.max_seq_len <= context - CONTEXT_RESERVE:
        return ()
    text = (
        f"the model takes {units.number(context)} tokens, {CONTEXT_RESERVE} of which SGLang keeps: nothing is cut to "
        f"{units.number(plan.max_seq_len)}; longer ones than the model takes are refused."
    )
    return (Finding(WARN, "longest", text, f"{context - CONTEXT_RESERVE} cuts them instead."),)


def of_samples(plan: Plan, data: DataLook) -> tuple[Finding, ...]:
    """Whether the data has as many."""
    if not data.samples or plan.samples <= data.samples:
        return ()
    about = "" if data.exact else "about "
    text = f"the data has {about}{units.number(data.samples)}: where it has no more, all of them are taken."
    return (Finding(WARN, "samples", text),)
