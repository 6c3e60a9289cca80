"""Everything the set-up shows, from what was typed and what the box told. One pure function for the screen and for ``init``."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from eagle3_console import units
from eagle3_console.judge import FAIL, OK, WARN, Finding
from eagle3_console.plan import Plan
from eagle3_console.setup import arithmetic, numbers, verdicts
from eagle3_console.setup.draft import ASKED, FIELDS, Draft, Seen, value_of
from eagle3_console.setup.propose import Proposal, effective, propose
from eagle3_console.setup.running import waiting
from eagle3_console.setup.stored import counted, other_data


@dataclasses.dataclass(frozen=True)
class Assessment:
    """The whole set-up as it stands."""

    box: tuple[Finding, ...]
    fields: Mapping[str, tuple[Finding, ...]]
    """What is to be said below a field."""
    proposals: Mapping[str, Proposal]
    texts: Mapping[str, str]
    """What counts in each field."""
    plan: Plan
    forecast: tuple[Finding, ...]
    """Tokens, size, disk and time."""
    failures: tuple[str, ...]
    """Why it cannot be started."""
    missing: tuple[str, ...]
    """What is not known yet, in words."""
    waits: tuple[str, ...] = ()
    """Fields that the running server goes against until its restart: it can be saved, and not be started."""

    @property
    def ready(self) -> bool:
        """Whether it can be started."""
        return not self.failures and not self.missing


def assess(
    draft: Draft, seen: Seen, base: Plan | None = None, host: str = "HOST", running: Plan | None = None
) -> Assessment:
    """The set-up as it stands.

    Args:
        base: what else the command line said, which has no field here.
        host: what the person typed to get to the box, for commands that are named.
        running: what the running server was started with; `None`: none runs.
    """
    base, seen = base or Plan(), counted(seen)
    proposals = propose(seen, draft)
    texts = {name: effective(name, draft, proposals) for name in FIELDS}
    values: dict[str, Any] = {}
    wrong: dict[str, tuple[Finding, ...]] = {}
    for name, text in texts.items():
        try:
            values[name] = value_of(name, text) if text or name in ("server_args", "dump_dir") else None
        except ValueError as error:
            wrong[name] = (Finding(FAIL, FIELDS[name].label, str(error)),)
    known = {name: value for name, value in values.items() if value is not None}
    known |= {
        name: _absolute(name, seen, str(known[name])) for name in ("model", "data", "out", "python") if name in known
    }
    said = base.said | known.keys()
    blank = {name: getattr(Plan, name) for name in FIELDS}
    plan = dataclasses.replace(
        base, **{**blank, **known}, server_env={**base.server_env, **draft.env}, said=frozenset(said)
    )
    box = verdicts.of_box(seen.facts, seen.box, plan) if seen.facts is not None else ()
    fields = {**_fields(seen, plan, texts, box, arithmetic.token_bytes(seen, draft)), **wrong}
    if seen.trouble:
        box = (Finding(FAIL, "box", seen.trouble), *box)
    forecast = _forecast(seen, draft, plan, host)
    all_findings = [*box, *(one for found in fields.values() for one in found), *forecast]
    failed = (f"{one.what}: {one.sentence} {one.cure}".strip() for one in all_findings if one.level == FAIL)
    failures = tuple(dict.fromkeys(failed))  # what is said of the box is said at its field, too
    typed = {name: text for name, text in draft.texts.items() if name not in wrong}
    waits = waiting(plan, typed, running, seen) if running is not None else ()
    missing = _missing(seen, texts, plan, wrong)
    return Assessment(box, fields, proposals, texts, plan, forecast, failures, missing, waits)


def _absolute(name: str, seen: Seen, typed: str) -> str:
    """The path as the box writes it, where it has looked at it: without ``~``, and from ``/`` on."""
    looked = {
        "model": seen.model.fact.path if seen.model is not None else "",
        "data": seen.data.path if seen.data is not None else "",
        "out": seen.out.path if seen.out is not None else "",
        "python": _python_named(seen, typed),
    }[name]
    return looked or typed


def _python_named(seen: Seen, typed: str) -> str:
    """A Python that was typed with ``~``, as the box has it; empty: it is no such one, or was not looked at yet."""
    pythons = seen.facts.pythons if seen.facts is not None and typed.startswith("~") else ()
    rest = "/" + typed.partition("/")[2]
    return next((one.path for one in pythons if one.found_by == "--python" and one.path.endswith(rest)), "")


def _fields(
    seen: Seen, plan: Plan, texts: Mapping[str, str], box: Sequence[Finding], token_bytes: int
) -> dict[str, tuple[Finding, ...]]:
    found: dict[str, tuple[Finding, ...]] = {"python": verdicts.of_python(box, seen.data)}
    layers = None
    if seen.model is not None:
        found["model"] = verdicts.of_model(seen.model, plan)
    if seen.model is not None and not any(one.what == "model" and one.level == FAIL for one in found["model"]):
        layers = seen.model
        found["tp"] = numbers.of_tp(seen.model, seen.facts, plan)
        found["max_seq_len"] = numbers.of_longest(plan, seen.model)
    found["tokens_in_flight"] = numbers.of_in_flight(plan, seen.facts, token_bytes)
    found["boundaries"] = verdicts.of_boundaries(layers, plan, texts["boundaries"])
    if seen.data is not None:
        found["data"] = verdicts.of_data(seen.data, seen.model)
        found["samples"] = numbers.of_samples(plan, seen.data)
    if seen.out is not None:
        found["out"] = verdicts.of_output(seen.out, plan, other_data(seen))
        if not any(one.level == FAIL for one in found["out"]):
            for name, finding in verdicts.differing(seen.out, plan).items():
                if texts[name]:  # else its proposal, what the dataset has, is not known yet
                    found[name] = (*found.get(name, ()), finding)
        if not texts["out"].startswith(("/", "~")):
            found["out"] += (Finding(OK, "place", f"on the box this is {seen.out.path}"),)
    if seen.box is not None:
        found["port"] = verdicts.of_port(plan.port, seen.box)
    return found


def _missing(seen: Seen, texts: Mapping[str, str], plan: Plan, wrong: Collection[str]) -> tuple[str, ...]:
    found = [f"the field {field.label} is empty" for field in ASKED if not texts[field.name]]
    if seen.facts is None and not seen.trouble:
        found.append("the box is still being looked at")
    waits = {"model": seen.model, "data": seen.data, "out": seen.out}
    found += [
        f"{FIELDS[name].label} is still being looked at" for name, look in waits.items() if texts[name] and look is None
    ]
    if seen.trouble:
        return tuple(found)
    if seen.facts is not None and plan.python and all(one.path != plan.python for one in seen.facts.pythons):
        found.append(f"{FIELDS['python'].label} is still being looked at")
    if "port" not in wrong and (seen.box is None or verdicts.port_fact(plan.port, seen.box) is None):
        found.append(f"{FIELDS['port'].label} is still being looked at")
    return tuple(found)


def _forecast(seen: Seen, draft: Draft, plan: Plan, host: str) -> tuple[Finding, ...]:
    made = arithmetic.amount(seen, draft, plan.max_seq_len, plan.samples)
    if made is None or seen.data is None:
        return ()
    about = "" if seen.data.exact else "about "
    files = f"{about if made.files else ''}{units.number(made.files)} files"
    more = "" if made.left_tokens == made.tokens else " are still to be written" if made.files else " more"
    found = [
        Finding(OK, "to make", f"{about}{units.number(made.tokens)} tokens of {units.number(made.samples)} samples"),
        Finding(OK, "states", f"{units.number(made.token_bytes)} bytes a token, {files}{more}"),
        Finding(OK, "size", f"{about}{sizes(made.bytes)}"),
    ]
    if not made.left_tokens:
        found.append(Finding(OK, "time", "none: all of it is stored"))
        return tuple(found)
    if seen.out is not None and seen.out.total:
        found.append(_disk(seen, made))
        if seen.out.inodes is not None and seen.out.inodes < made.files + 16:
            text = (
                f"{units.number(seen.out.inodes)} files more fit on it, {units.number(made.files)} are to be written."
            )
            found.append(Finding(FAIL, "inodes", text, "Choose another file system."))
    found += _dump(seen, made, plan)
    found.append(_time(seen, made, host))
    return tuple(found)


def sizes(count: int) -> str:
    """``992 GB = 924 GiB = 0.99 TB``."""
    if count < 10**9:
        return units.gb_and_gib(count)
    return f"{count / 1e9:,.0f} GB = {count / 2**30:,.0f} GiB = {count / 1e12:.2f} TB"


def _disk(seen: Seen, made: arithmetic.Amount) -> Finding:
    assert seen.out is not None
    times = arithmetic.factor(made.left_bytes, seen.out.free)
    rest = "the rest takes" if made.left_bytes < made.bytes else "it takes"
    text = f"{units.gb_and_gib(seen.out.free)} are free, {rest} {units.gb_and_gib(made.left_bytes)}: "
    if times < arithmetic.REFUSE:
        cure = "Choose another output, cut Longest, or take fewer Samples."
        return Finding(FAIL, "disk", f"{text}it does not fit ({times:.2f} times).", cure)
    shown = f"{times:.2f}" if times < 100 else "more than 100"
    if times < arithmetic.WARN:
        return Finding(WARN, "disk", f"{text}it just fits ({shown} times).", "Whatever else writes there may fill it.")
    return Finding(OK, "disk", f"{text}it fits ({shown} times)")


def _dump(seen: Seen, made: arithmetic.Amount, plan: Plan) -> list[Finding]:
    if seen.facts is None or plan.dump_dir or seen.data is None:
        return []
    longest = min(seen.data.longest, plan.max_seq_len or seen.data.longest) * made.token_bytes
    if longest <= seen.facts.shm_free:
        return []
    text = f"/dev/shm has {units.gb_and_gib(seen.facts.shm_free)} free, the longest sample takes {units.gb_and_gib(longest)}."
    return [Finding(FAIL, FIELDS["dump_dir"].label, text, "Name a folder on a fast disk in the field Dumps.")]


def _time(seen: Seen, made: arithmetic.Amount, host: str) -> Finding:
    if seen.smoke.tokens_per_s:
        took = units.duration(made.left_tokens / seen.smoke.tokens_per_s)
        text = (
            f"about {took} at {seen.smoke.tokens_per_s:,.0f} tokens/s, by the {seen.smoke.samples} samples that "
            "'extract plan' sent with this model here; longer runs are faster"
        )
        return Finding(OK, "time", text)
    if seen.prefill_tps:
        took = units.duration(made.left_tokens / seen.prefill_tps)
        text = f"about {took} at {seen.prefill_tps:,.0f} tokens/s, as 'server bench' measured this model here"
        return Finding(OK, "time", text)
    text = (
        "the rate is not known yet. The extraction itself shows it after a minute; before that, once the server runs, "
        f"'eagle3-console extract plan {shlex.quote(host)}' on this machine measures it with 32 samples"
    )
    return Finding(OK, "time", text)


def at_fault(made: Assessment) -> str:
    """The first field, in the order of the screen, that is empty or stands against a start; empty: none does."""
    named = {one.what for one in (*made.box, *made.forecast) if one.level == FAIL}
    for name, field in FIELDS.items():
        if field in ASKED and not made.texts[name]:
            return name
        if field.label in named or any(one.level == FAIL for one in made.fields.get(name, ())):
            return name
    return ""


def after_restart(made: Assessment) -> str:
    """What the running server goes against, as half a sentence; empty: nothing."""
    if not made.waits:
        return ""
    return f"only its restart changes {', '.join(FIELDS[name].label for name in made.waits)}"


def next_step(made: Assessment, restart: str = "R") -> str:
    """One sentence: what to do now.

    Args:
        restart: the dashboard's key that restarts the server.
    """
    name = at_fault(made)
    field = FIELDS.get(name)
    if field in ASKED:
        if not made.texts[name]:
            return f"Type into {field.label}: {field.hint}. tab completes, down chooses."
        return f"{field.label} will not do yet: see the line below it."
    if field is not None and name in made.fields:
        one = next((one for one in made.fields[name] if one.level == FAIL), None)
        if one is not None:
            return f"{field.label} will not do yet: {one.sentence} {one.cure}".strip()
    if made.missing:
        return f"One moment: {made.missing[0]}."
    if made.failures:
        return f"Not yet: {made.failures[0]}"
    if made.waits:
        return (
            f"All is known, but a server runs and {after_restart(made)}: ctrl+s saves it; "
            f"then {restart} on the dashboard restarts the server with it."
        )
    return "All is known: ctrl+r saves and starts everything, ctrl+s only saves."


def profile_name(plan: Plan, host: str) -> str:
    """A name for the profile: of the model, and of the host."""
    words = [os.path.basename(plan.model.rstrip("/")) or "run", re.sub(r"^.*@|:\d+$", "", host)]
    name = "-".join(re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.") for word in words)
    return name.strip("-.")[:64] or "run"
