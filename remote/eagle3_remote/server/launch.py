"""The exact line that starts a patched SGLang server, as pure functions of what is asked and of the version found.

What the line needs, and how each version spells it, is data in `eagle3_remote.server.recipe`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.protocol import LaunchPlan, ModelFact, ServerSpec
from eagle3_remote.server import recipe
from eagle3_remote.server.flags import Given, Parser, PlanError, explain, instead, split, tidy
from eagle3_remote.server.recipe import Contradiction, Measure, Version

__all__ = ["NO_RADIX", "PlanError", "Version", "check", "parse_version", "plan", "settle", "written_out"]

NO_RADIX = recipe.RADIX_OFF.spellings[0].flag

MODULE = ("-u", "-m", "sglang.launch_server")
"""What stands between the Python and SGLang's own arguments."""

_OURS = (layout.ENV_DUMP_DIR, layout.ENV_DUMP_DIR_OLD, layout.ENV_BOUNDARIES, layout.ENV_FINAL, layout.ENV_RID_PREFIX)
"""Variables by which console, extraction and patch agree; a person's own value would part them."""
_READ = (*_OURS, layout.ENV_LAYOUT, layout.ENV_PINNED_BUDGET, layout.ENV_DUMP_BUDGET)
"""All that the patch reads."""


def parse_version(text: str) -> Version:
    """``0.5.10.post1`` as ``(0, 5, 10)``.

    Raises:
        PlanError: it is not a version.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise PlanError(f"SGLang's version {text!r} cannot be read: 0.5.4 or newer is needed.")
    return int(match[1]), int(match[2]), int(match[3])


def settle(spec: ServerSpec) -> ServerSpec:
    """Move what the person gave as an extra argument (``--port``, ``--host``, ``--tp-size``, ``--model-path``) into the
    fields that the console goes by: the person's own argument wins.

    Raises:
        PlanError: such an argument has no, or no usable, value, or one is given twice with different values.
    """
    rest: list[str] = []
    fields: dict[str, str] = {}
    keys = {"--port": "port", "--host": "host", "--tp-size": "tp", "--model-path": "model"}
    for one in split(tidy(spec.extra_args, "")):
        key = keys.get(one.name)
        if key is None:
            rest += one.tokens
        elif len(one.values) != 1:
            raise PlanError(f"The extra argument {one.name} has no value.")
        else:
            fields[key] = one.values[0]
    try:
        return dataclasses.replace(
            spec,
            port=int(fields.get("port", spec.port)),
            tp=int(fields.get("tp", spec.tp)),
            host=fields.get("host", spec.host),
            model=fields.get("model", spec.model),
            extra_args=tuple(rest),
        )
    except ValueError:
        raise PlanError("The extra arguments --port and --tp-size need whole numbers.") from None


def written_out(spec: ServerSpec, sglang_version: str, parser: Parser) -> ServerSpec:
    """`spec` with the abbreviations among its extra arguments written out, settled.

    Raises:
        PlanError: an argument is unknown to this version, ambiguous, or given twice with different values.
    """
    return settle(dataclasses.replace(spec, extra_args=tidy(spec.extra_args, sglang_version, parser)))


def plan(
    spec: ServerSpec,
    sglang_version: str,
    model: ModelFact,
    release: Path,
    dump_dir: str,
    inherited: Mapping[str, str],
    offered: Collection[str] | None = None,
) -> LaunchPlan:
    """The argv and the environment additions for one server.

    Args:
        spec: settled (see `settle`), paths absolute.
        model: what the model's ``config.json`` says; its `num_layers` bounds the boundaries.
        release: the folder that holds ``eagle3_patch``.
        dump_dir: where the patch writes, absolute.
        inherited: the environment that the server will inherit.
        offered: every flag that the installed parser knows, where it was asked: a version that does not know the spelling
            of its own number gets another one that it knows.

    Raises:
        PlanError: the version is too old or unreadable, it has no flag for what the recipe needs, arguments contradict the
            recipe, or boundaries, final or numbers are not usable.
    """
    version = parse_version(sglang_version)
    if version < (0, 5, 4):
        raise PlanError(f"SGLang {sglang_version} is too old: 0.5.4 or newer is needed.")
    _check(spec, model)
    given = split(spec.extra_args)
    _refuse_contradictions(given, spec)
    names = {one.name for one in given}
    argv = [spec.python, *MODULE, "--model-path", spec.model]
    argv += ["--host", spec.host, "--port", str(spec.port), "--tp-size", str(spec.tp)]
    notes: list[str] = []
    measures = recipe.MEASURES
    if spec.radix_cache:
        notes.append("radix cache ON: prompts with a common prefix would lose rows, so no extraction is started on it")
    else:
        measures = (recipe.RADIX_OFF, *measures)
    for measure in measures:
        flag = _spelled(measure, version, sglang_version, offered)
        if flag is None:
            notes.append(f"{measure.what}: {measure.otherwise}")
            continue
        notes.append(f"{flag}: {measure.what}: {measure.why}")
        if flag not in names:
            argv.append(flag)
    argv += _chunk(spec, names, notes)
    env = _environment(spec, version, release, dump_dir, inherited)
    notes.append(_health_note(spec, version))
    notes += [
        f"{name}: {inherited[name]!r} in the box's own environment does not count"
        + ("" if name in _OURS else "; say it with --server-env")
        for name in _READ
        if inherited.get(name) and env.get(name) == ""
    ]
    return LaunchPlan(argv=(*argv, *spec.extra_args), env=env, sglang_version=sglang_version, notes=tuple(notes))


def check(parser: Parser, spec: ServerSpec, sglang_version: str) -> None:
    """Hold the line against what the installed parser said of it.

    Raises:
        PlanError: the parser did not take it, a ``--config`` file contradicts the recipe or the other arguments, or the
            patch would refuse the server.
    """
    if parser.error:
        raise PlanError(f"SGLang {sglang_version} does not take this launch line: {explain(parser.error, parser)}.")
    _refuse_contradictions(split(tidy(parser.argv, sglang_version, parser)), spec)
    if parser.unfit:
        raise PlanError(f"The patch cannot work in a server with these arguments: {parser.unfit}.")


def _spelled(measure: Measure, version: Version, text: str, offered: Collection[str] | None) -> str | None:
    own = next((one.flag for one in measure.spellings if one.since <= version < one.until), None)
    if own is None or offered is None or own in offered:
        return own
    other = next((one.flag for one in measure.spellings if one.flag in offered), None)
    if other is None and not measure.otherwise:
        raise PlanError(
            f"SGLang {text} has no {own} ({measure.what}: {measure.why}){instead(own, offered)}: this console does not know "
            "how to start this version; use one from 0.5.4 to 0.5.23."
        )
    return other


def _chunk(spec: ServerSpec, names: Collection[str], notes: list[str]) -> list[str]:
    """The prefill chunk that fits the extraction's token budget."""
    flag = "--chunked-prefill-size"
    if flag in names:
        notes.append(f"{flag}: chunked prefill: your own")
        return []
    if not spec.tokens_in_flight:
        notes.append(
            "chunked prefill: SGLang's own size for this GPU's memory; the extraction keeps "
            f"{recipe.CHUNKS_IN_FLIGHT} chunks of tokens in flight, whatever it is"
        )
        return []
    multiple = recipe.CHUNK_MULTIPLE
    chunk = max(spec.tokens_in_flight // recipe.CHUNKS_IN_FLIGHT // multiple, 1) * multiple
    notes.append(
        f"{flag} {chunk}: chunked prefill: {recipe.CHUNKS_IN_FLIGHT} chunks are the {spec.tokens_in_flight:,} tokens that the "
        "extraction keeps in flight"
    )
    args = [flag, str(chunk)]
    if chunk > recipe.MAX_PREFILL_TOKENS and "--max-prefill-tokens" not in names:
        args += ["--max-prefill-tokens", str(chunk)]
        notes.append(
            f"--max-prefill-tokens {chunk}: SGLang would cut each chunk to {recipe.MAX_PREFILL_TOKENS:,} tokens"
        )
    return args


def _health_note(spec: ServerSpec, version: Version) -> str:
    name = recipe.HEALTH_VARIABLE
    if version < recipe.HEALTH_SINCE:
        return "health: before 0.5.6 /health always generates a token, so the console asks /get_model_info instead"
    own = spec.env.get(name, "false")
    if own.lower() not in ("false", "0", "no"):
        return f"{name}={own}: health: your own; each look at /health makes the server generate a token"
    return f"{name}=false: health without generation: looking at the server gives it no work and makes no rows"


def _refuse_contradictions(given: Iterable[Given], spec: ServerSpec) -> None:
    wrong = [_contradicts(one, row) for one in given for row in recipe.CONTRADICTIONS if _applies(one, row, spec)]
    if spec.radix_cache and any(one.name == NO_RADIX for one in given):
        wrong.append(f"{NO_RADIX} contradicts --radix-cache on: choose one.")
    wrong += [
        f"{name} is set by the console, which goes by it: use --dump-dir, --boundaries or --final instead."
        for name in _OURS
        if name in spec.env
    ]
    if wrong:
        raise PlanError(" ".join(dict.fromkeys(wrong)))


def _applies(one: Given, row: Contradiction, spec: ServerSpec) -> bool:
    if one.name not in row.flags or (row.only_radix_off and spec.radix_cache):
        return False
    return not one.values or not set(one.values) <= set(row.harmless)


def _contradicts(one: Given, row: Contradiction) -> str:
    words, possible = one.name, ""
    if row.harmless:
        words, possible = " ".join((one.name, *one.values)), f" ({' or '.join(row.harmless)} is possible)"
    return f"{words} contradicts the recipe: {row.why}; leave it out{possible}."


def _check(spec: ServerSpec, model: ModelFact) -> None:
    if not 0 < spec.port < 65536:
        raise PlanError(f"Port {spec.port} is outside 1 to 65535.")
    if spec.tokens_in_flight < 0:
        raise PlanError(f"--tokens-in-flight {spec.tokens_in_flight} is not possible: it is 0 or more.")
    if spec.tp < 1:
        raise PlanError(f"--tp {spec.tp} is not possible: at least one GPU is needed.")
    if spec.final not in ("pre", "post"):
        raise PlanError(f"The final state {spec.final!r} is neither pre nor post (the final norm).")
    layers = model.num_layers or None
    try:
        if spec.boundaries:
            layout.parse_boundaries(",".join(map(str, spec.boundaries)), layers)
        elif layers is not None:
            layout.default_boundaries(layers)
    except ValueError as error:
        raise PlanError(f"The model at {spec.model}: {error}.") from None


def _environment(
    spec: ServerSpec, version: Version, release: Path, dump_dir: str, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Ours first, the person's own last; ``PYTHONPATH`` and ``PATH`` are led by ours and keep what was there."""
    env = {"PYTHONUNBUFFERED": "1"}
    if version >= recipe.HEALTH_SINCE:
        env[recipe.HEALTH_VARIABLE] = "false"
    env[layout.ENV_DUMP_DIR] = dump_dir
    env[layout.ENV_FINAL] = spec.final
    if spec.boundaries:
        env[layout.ENV_BOUNDARIES] = ",".join(str(one) for one in sorted(spec.boundaries))
    # What the box's own environment tells the patch would reach the server unseen; empty counts as unset.
    env.update((name, "") for name in _READ if inherited.get(name) and name not in env)
    env.update(spec.env)
    before = spec.env.get("PYTHONPATH", inherited.get("PYTHONPATH", ""))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(release / "eagle3_patch" / "entry"), before)))
    # Kernels compiled at first use call ninja and nvcc helpers from the Python's own bin folder, as an activated
    # environment would.
    path = spec.env.get("PATH", inherited.get("PATH", ""))
    tools = os.path.dirname(spec.python)
    if tools and tools not in path.split(os.pathsep):
        env["PATH"] = os.pathsep.join(filter(None, (tools, path)))
    return env
