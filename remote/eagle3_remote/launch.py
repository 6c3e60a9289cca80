"""The exact line that starts a patched SGLang server, as a pure function of what is asked and of the version found.

Flag spellings by version are from SGLang's own argument parsers, 0.5.4.post3 to 0.5.23 (``srt/server_args.py``, from
0.5.16 on also ``srt/arg_groups/``).
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.protocol import LaunchPlan, ModelFact, ServerSpec

Version = tuple[int, int, int]


class PlanError(ValueError):
    """What is asked cannot be started; the text is a full sentence."""


@dataclasses.dataclass(frozen=True)
class VersionFlag:
    """A flag that is given to the versions ``since <= version < until``."""

    flag: str
    why: str
    since: Version = (0, 0, 0)
    until: Version = (99, 0, 0)


FLAGS: tuple[VersionFlag, ...] = (
    VersionFlag(
        "--disable-cuda-graph",
        "CUDA graphs off: a captured graph would not run the capture of hidden states "
        "(from 0.5.16 this one flag covers prefill graphs as well)",
    ),
    VersionFlag(
        "--disable-piecewise-cuda-graph",
        "prefill graphs off: 0.5.10 to 0.5.15 capture them by default and have a flag of their own for it",
        since=(0, 5, 10),
        until=(0, 5, 16),
    ),
    VersionFlag(
        "--enforce-disable-flashinfer-allreduce-fusion",
        "fused all-reduce off: with it a rank's rows are partial sums (before 0.5.10 there is no flag; the patch sees to it)",
        since=(0, 5, 10),
    ),
    VersionFlag("--skip-server-warmup", "no warm-up request: it would go through the patched layers for nothing"),
)

NO_RADIX = "--disable-radix-cache"

_ALIASES = {
    "--model": "--model-path",
    "--tp": "--tp-size",
    "--tensor-parallel-size": "--tp-size",
}
_HEALTH_SINCE: Version = (0, 5, 6)
"""SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION exists from 0.5.6 (``http_server.py``)."""


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
        PlanError: such an argument has no, or no usable, value.
    """
    rest: list[str] = []
    fields: dict[str, str] = {}
    args = iter(spec.extra_args)
    for arg in args:
        name, equals, value = arg.partition("=")
        key = {"--port": "port", "--host": "host", "--tp-size": "tp", "--model-path": "model"}.get(_canonical(name))
        if key is None:
            rest.append(arg)
            continue
        given = value if equals else next(args, None)
        if given is None:
            raise PlanError(f"The extra argument {name} has no value.")
        fields[key] = given
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


def plan(
    spec: ServerSpec,
    sglang_version: str,
    model: ModelFact,
    release: Path,
    dump_dir: str,
    inherited: Mapping[str, str],
) -> LaunchPlan:
    """The argv and the environment additions for one server.

    Args:
        spec: settled (see `settle`), paths absolute.
        model: what the model's ``config.json`` says; its `num_layers` bounds the boundaries.
        release: the folder that holds ``eagle3_patch``.
        dump_dir: where the patch writes, absolute.
        inherited: the environment that the server will inherit.

    Raises:
        PlanError: the version is too old or unreadable, or boundaries, final or numbers are not usable.
    """
    version = parse_version(sglang_version)
    if version < (0, 5, 4):
        raise PlanError(f"SGLang {sglang_version} is too old: 0.5.4 or newer is needed.")
    _check(spec, model)
    given = {_canonical(arg.partition("=")[0]) for arg in spec.extra_args if arg.startswith("--")}
    notes: list[str] = []
    argv = [spec.python, "-u", "-m", "sglang.launch_server", "--model-path", spec.model]
    argv += ["--host", spec.host, "--port", str(spec.port), "--tp-size", str(spec.tp)]
    if not spec.radix_cache:
        _add(
            argv, notes, given, NO_RADIX, "radix cache off: a cached prefix never passes the layers, its rows are lost"
        )
    else:
        notes.append("radix cache ON: prompts with a common prefix would lose rows, so no extraction is started on it")
    for row in FLAGS:
        if row.since <= version < row.until:
            _add(argv, notes, given, row.flag, row.why)
    argv += spec.extra_args
    return LaunchPlan(
        argv=tuple(argv),
        env=_environment(spec, version, release, dump_dir, inherited),
        sglang_version=sglang_version,
        notes=tuple(notes),
    )


def _canonical(name: str) -> str:
    return _ALIASES.get(name, name)


def _add(argv: list[str], notes: list[str], given: Iterable[str], flag: str, why: str) -> None:
    if flag not in given:
        argv.append(flag)
        notes.append(f"{flag}: {why}")


def _check(spec: ServerSpec, model: ModelFact) -> None:
    if not 0 < spec.port < 65536:
        raise PlanError(f"Port {spec.port} is outside 1 to 65535.")
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
    if version >= _HEALTH_SINCE:
        env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] = "false"
    env[layout.ENV_DUMP_DIR] = dump_dir
    env[layout.ENV_FINAL] = spec.final
    if spec.boundaries:
        env[layout.ENV_BOUNDARIES] = ",".join(str(one) for one in sorted(spec.boundaries))
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
