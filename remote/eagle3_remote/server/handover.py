"""How a server gets its secrets: variables in its environment, arguments in a file that only its owner can read.

Every user of a box sees every command line, in ``/proc`` and with ``ps``. SGLang (0.5.4 to 0.5.23) merges a ``--config`` file into
its arguments before it parses them, so that a secret need not stand there.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from eagle3_remote.job import jobs
from eagle3_remote.job.secretfile import Secrets, read
from eagle3_remote.protocol import LaunchPlan, ServerSpec
from eagle3_remote.protocol.secret import HIDDEN, hide_argv, hide_env
from eagle3_remote.rpc import Refused

CONFIG = "arguments.yaml"
"""In the run directory. SGLang wants the ending."""
_FLAG = "--config"


def restored(home: Path, spec: ServerSpec) -> ServerSpec:
    """What a console was not shown and sends back hidden, as the last server had it.

    Raises:
        Refused: that is not known here any more.
    """
    if not any(HIDDEN in word for word in (*spec.env.values(), *spec.extra_args)):
        return spec
    last = jobs.newest(home, "server")
    try:
        env, words = read(last.run_dir if last is not None else home).restored(spec.env, spec.extra_args)
    except KeyError as error:
        raise Refused(
            f"The value of {error.args[0]} is a secret that is not kept here any more: say it again."
        ) from None
    return dataclasses.replace(spec, env=env, extra_args=words)


def of(spec: ServerSpec) -> Secrets:
    """The secrets of a server."""
    return Secrets.of(spec.env, spec.extra_args)


def hidden(spec: ServerSpec) -> ServerSpec:
    """What of a server may be shown and kept."""
    return dataclasses.replace(spec, env=hide_env(spec.env), extra_args=hide_argv(spec.extra_args))


def shown(plan: LaunchPlan) -> LaunchPlan:
    """The line as people see it, with a note on how its secrets get to the server."""
    secrets = Secrets.of(plan.env, plan.argv)
    if not secrets:
        return plan
    notes = list(plan.notes)
    if secrets.args:
        names = ", ".join(dict.fromkeys(name.partition(" ")[0] for name in secrets.args))
        notes.append(
            f"{names}: VISIBLE to every user of the box in its command line, because your own {_FLAG} leaves no other way: "
            "write it into that file instead"
            if any(word.partition("=")[0] == _FLAG for word in plan.argv)
            else f"{names}: handed over in a file that only you can read: command lines are seen by every user of the box"
        )
    return dataclasses.replace(plan, argv=hide_argv(plan.argv), env=hide_env(plan.env), notes=tuple(notes))


def in_a_file(argv: tuple[str, ...], secrets: Secrets, run_dir: Path) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The line without its secret arguments, and the files of the run directory that have them instead. Pure."""
    if not secrets.args or any(word.partition("=")[0] == _FLAG for word in argv):
        return argv, {}
    groups: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    kept: list[str] = []
    moved: dict[str, str | list[str]] = {}
    for group in groups:
        flag, equals, value = group[0].partition("=") if group else ("", "", "")
        if not flag.startswith("--") or hide_argv(group) == tuple(group):
            kept += group
        else:  # all values of one argument go together: SGLang puts a list behind its flag as it is
            values = [value, *group[1:]] if equals else group[1:]
            moved[flag.removeprefix("--")] = values[0] if len(values) == 1 else values
    # JSON is YAML, and its strings stay strings: a key of digits is no number
    text = json.dumps(moved)
    return (*kept, _FLAG, str(run_dir / CONFIG)), {CONFIG: text.encode()}
