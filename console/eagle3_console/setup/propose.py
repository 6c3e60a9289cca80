"""What is proposed for every setting, each with its reason. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex

from eagle3_console import judge, units
from eagle3_console.profiles import store
from eagle3_console.setup import arithmetic
from eagle3_console.setup.draft import ALL, AUTO, NEVER, Draft, Seen
from eagle3_console.setup.stored import continued
from eagle3_remote.protocol import Gpu, ModelLook, PythonFact

WEIGHTS_SHARE = 0.75
"""Of a GPU's memory, at most so much for weights: the rest is for the KV cache and for computing."""
SHM_SHARE = 0.5
"""Of what is free in /dev/shm, at most so much for states on their way: it is everybody's."""
LARGEST_CHUNK = 16384
"""SGLang's own prefill chunk is at most this (0.5.4 to 0.5.23, by the GPU's memory)."""
CHUNKS = 4
_STEP = 512
CONTEXT_RESERVE = 6
"""Tokens of the context that SGLang keeps of a prompt's length."""


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A value as it would be typed, and why it is a good one."""

    text: str
    reason: str


def propose(seen: Seen, draft: Draft) -> dict[str, Proposal]:
    """A proposal for every setting about which something is known."""
    found = {
        "python": _python(seen),
        "boundaries": _boundaries(seen),
        "final": _final(seen),
        "max_seq_len": _max_seq_len(seen),
        "samples": Proposal(ALL, "every sample of the data"),
        "tp": _tp(seen),
        "port": _port(seen),
        "server_args": _server_args(seen),
    }
    found["dump_dir"], found["tokens_in_flight"] = _budget(seen, draft)
    return {name: proposal for name, proposal in found.items() if proposal is not None}


def _python(seen: Seen) -> Proposal | None:
    if seen.facts is None:
        return None
    able = judge.meant(seen.facts)
    if not able:
        return None
    best = max(able, key=lambda one: (not one.missing, _version(one.sglang)))
    reason = f"Python {best.version} with SGLang {best.sglang}, {_found_by(best)}"
    others = [f"{one.path} (SGLang {one.sglang})" for one in able if one is not best]
    return Proposal(best.path, reason + (f"; also there: {', '.join(others)}" if others else ""))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _found_by(python: PythonFact) -> str:
    words = {"running server": "the one a running server uses", "VIRTUAL_ENV": "the active environment"}
    return words.get(python.found_by, "found on the box" if python.found_by != "--python" else "as you named it")


def _boundaries(seen: Seen) -> Proposal | None:
    model = seen.model
    if model is None or not model.boundaries:
        return None
    if (begun := continued(seen)) and begun.boundaries:
        return Proposal(",".join(map(str, begun.boundaries)), "as the dataset at the output was begun")
    layers = model.fact.num_layers
    return Proposal(
        ",".join(map(str, model.boundaries)), f"2, N//2 and N-3 of N = {layers} layers: what SGLang and trainers expect"
    )


def _final(seen: Seen) -> Proposal:
    if (begun := continued(seen)) and begun.final:
        return Proposal(begun.final, "as the dataset at the output was begun")
    return Proposal("pre", "before the final norm: speculators reads it so, and 'export' makes post of it for others")


def _max_seq_len(seen: Seen) -> Proposal | None:
    if seen.data is None or seen.model is None or not seen.data.samples:
        return None
    begun = continued(seen)
    if begun is not None:
        text = str(begun.max_seq_len) if begun.max_seq_len else NEVER
        return Proposal(text, "as the dataset at the output was begun")
    longest, context = seen.data.longest, seen.model.fact.context_len
    if context and longest > context - CONTEXT_RESERVE:
        return Proposal(
            str(context - CONTEXT_RESERVE),
            f"the longest seen has {units.number(longest)} tokens, the model takes {units.number(context)}: "
            "longer ones are cut instead of refused",
        )
    takes = f", the model takes {units.number(context)}" if context else ""
    return Proposal(NEVER, f"the longest seen has {units.number(longest)} tokens{takes}: nothing needs a cut")


def sizes(model: ModelLook, most: int) -> list[int]:
    """Tensor parallel sizes that this model can be cut into, up to `most`."""
    heads, groups = model.heads, model.kv_heads or model.heads
    return [
        size
        for size in range(1, most + 1)
        if not heads or (heads % size == 0 and (groups % size == 0 or size % groups == 0))
    ]


def fitting(model: ModelLook, gpus: tuple[Gpu, ...]) -> list[int]:
    """Those of `sizes` with which the weights fit, and leave room beside them."""
    memory = min(gpu.memory_total for gpu in gpus)
    return [size for size in sizes(model, len(gpus)) if model.fact.weight_bytes <= size * memory * WEIGHTS_SHARE]


def _tp(seen: Seen) -> Proposal | None:
    gpus = seen.facts.gauges.gpus if seen.facts is not None and seen.facts.gauges is not None else ()
    if seen.facts is None or seen.model is None or seen.model.fact.error:
        return None
    if not gpus:
        return Proposal("1", "no GPU is seen: the server runs on the CPU")
    weights = units.gb_and_gib(seen.model.fact.weight_bytes)
    memory = units.gib(min(gpu.memory_total for gpu in gpus))
    heads = f"; its {seen.model.heads} heads can be shared so" if seen.model.heads else ""
    able = fitting(seen.model, gpus)
    if able:
        more = " (more GPUs answer faster, not in proportion)" if able[0] < len(gpus) and len(able) > 1 else ""
        return Proposal(
            str(able[0]), f"{weights} of weights need {able[0]} of {len(gpus)} GPUs of {memory}{heads}{more}"
        )
    possible = sizes(seen.model, len(gpus))
    return Proposal(str(possible[-1]), f"{weights} of weights hardly fit into {len(gpus)} GPUs of {memory}")


def _budget(seen: Seen, draft: Draft) -> tuple[Proposal | None, Proposal | None]:
    """(where dumps lie, tokens in flight), both from what /dev/shm holds."""
    token = arithmetic.token_bytes(seen, draft)
    if seen.facts is None or not token:
        return None, None
    free = seen.facts.shm_free
    longest = seen.data.longest if seen.data is not None else 0
    room = int(free * SHM_SHARE) // token
    have = f"/dev/shm has {units.gb_and_gib(free)} free"
    typed = draft.texts.get("dump_dir", AUTO).strip()
    if room < max(longest, _STEP) and seen.out is not None and seen.out.parent:
        place = seen.out.parent.rstrip("/") + "/eagle3-dumps"
        dump = Proposal(
            place, f"{have}, too little for one sample of {units.number(longest)} tokens: on a disk instead"
        )
        return dump, Proposal(AUTO, "four of the server's prefill chunks")
    where = Proposal(AUTO, f"{have}: room for {units.number(room)} tokens of {units.number(token)} bytes in half of it")
    if typed not in ("", AUTO, "/dev/shm") or room >= CHUNKS * LARGEST_CHUNK:
        return where, Proposal(
            AUTO, f"four of the server's prefill chunks, at most {CHUNKS * LARGEST_CHUNK:,} tokens: they fit"
        )
    tokens = max(room // _STEP * _STEP, _STEP)
    return where, Proposal(str(tokens), f"as many as half of /dev/shm holds ({units.gb(tokens * token)})")


def _port(seen: Seen) -> Proposal | None:
    port = seen.box.port if seen.box is not None else None
    if port is None:
        return None
    asked = seen.box.asked if seen.box is not None else None
    if asked is not None and asked.job:
        return Proposal(str(asked.port), "the running server's, which is ours: a start replaces it")
    if not port.free:
        return Proposal(str(port.port), f"taken by {port.holder}: choose another one")
    before = f"; {asked.port} is taken by {asked.holder}" if asked is not None and not asked.free else ""
    return Proposal(str(port.port), f"it is free{before}")


def _server_args(seen: Seen) -> Proposal | None:
    if seen.facts is None:
        return None
    if not (seen.facts.gauges is not None and seen.facts.gauges.gpus):
        return Proposal("--device cpu", "no GPU is seen")
    if seen.model is None or seen.model.fact.error:
        return None
    profile = store.nearest(seen.model.fact.path)
    if profile is None or not profile.flags:
        return Proposal("", "none is needed")
    words = [word for name, values in profile.flags.items() for word in (name, *values)]
    return Proposal(shlex.join(words), f"from the built-in profile {profile.name}")


def effective(name: str, draft: Draft, proposals: dict[str, Proposal]) -> str:
    """What counts in a field: what was typed, else what is proposed."""
    typed = draft.texts.get(name, "").strip()
    return typed or (proposals[name].text if name in proposals else "")
