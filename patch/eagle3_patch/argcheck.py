"""Ask the SGLang that is installed here what its own parser says of a launch line. Starts nothing, loads no model.

Run as a program in the Python that will run the server: a JSON list of SGLang's arguments on standard input, one line
`SENTINEL` + JSON on standard output:

* ``unloadable``: why the parser cannot be had; nothing else is there then.
* ``options``: ``[[strings, takes a value, may be repeated, choices], ...]``, everything this parser knows.
* ``argv``: the arguments as the parser was given them, a ``--config`` file already merged in.
* ``error``: what the parser said against them; empty: it took them.
* ``unfit``: why the patch would refuse a server with them (see `config.unsupported_mode`); empty: it would not.

``ServerArgs.__post_init__`` is not reached: it looks at GPUs and model files. ``prepare_server_args`` is the same one
function from 0.5.4 to 0.5.23 (``srt/server_args.py``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any, NoReturn

from eagle3_patch import config

SENTINEL = "EAGLE3-ARGUMENTS "

_ONE_NAME = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "attention_context_parallel_size": "attn_cp_size",
    "decode_context_parallel_size": "dcp_size",
}
"""Up to 0.5.13 the parser's attribute -> the one of ServerArgs (``from_cli_args``)."""


class _Parsed(BaseException):
    """The parser took the line. No `Exception`, so that nothing in between holds it up."""


class _NotTaken(BaseException):
    """The parser did not take the line."""


def ask(argv: list[str]) -> dict[str, Any]:
    """The answer as the module's text describes it."""
    try:
        module = importlib.import_module("sglang.srt.server_args")
        server_args, prepare = module.ServerArgs, module.prepare_server_args
    except BaseException as error:  # a broken environment may even exit
        return {"unloadable": _said(error)}
    seen: dict[str, Any] = {"argv": argv}
    parse, add = argparse.ArgumentParser.parse_args, server_args.add_cli_args

    def parse_args(parser: Any, args: Any = None, namespace: Any = None) -> Any:
        seen["argv"] = list(args)
        return parse(parser, args, namespace)

    def add_cli_args(parser: Any) -> None:
        seen["parser"] = parser
        add(parser)

    def not_taken(parser: Any, message: str) -> NoReturn:
        raise _NotTaken(message)

    def stop(parser: Any, status: int = 0, message: str | None = None) -> NoReturn:
        raise _NotTaken(message or "it asks for help instead of a server")

    def parsed(cls: Any, args: Any) -> NoReturn:
        seen["namespace"] = args
        raise _Parsed

    patched: Any = argparse.ArgumentParser
    patched.parse_args, patched.error, patched.exit = parse_args, not_taken, stop
    server_args.add_cli_args = staticmethod(add_cli_args)
    server_args.from_cli_args = classmethod(parsed)
    refused = ""
    try:
        prepare(argv)
    except _Parsed:
        pass
    except BaseException as problem:
        refused = _said(problem)
    if "parser" not in seen:
        return {"unloadable": refused or "its prepare_server_args uses no argparse parser"}
    return {
        "options": [_option(action) for action in seen["parser"]._actions if action.option_strings],
        "argv": seen["argv"],
        "error": refused,
        "unfit": _unfit(seen["namespace"]) if "namespace" in seen else "",
    }


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    kind = "" if isinstance(error, _NotTaken) else f"{type(error).__name__}: "
    return kind + (text[0] if text else "no message")


def _option(action: Any) -> list[Any]:
    repeats = any(word in type(action).__name__ for word in ("Append", "Extend", "Count"))
    choices = [] if action.choices is None else sorted(str(choice) for choice in action.choices)
    return [list(action.option_strings), action.nargs != 0, repeats, choices]


def _unfit(namespace: Any) -> str:
    for attribute, name in _ONE_NAME.items():
        if hasattr(namespace, attribute):
            setattr(namespace, name, getattr(namespace, attribute))
    return config.unsupported_mode(namespace) or ""


def main() -> None:
    """Read the arguments, answer, and leave at once: what SGLang's import has started is not waited for."""
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever the import prints is not the answer
    answer = ask(json.load(sys.stdin))
    with os.fdopen(answers, "w") as out:
        out.write(SENTINEL + json.dumps(answer) + "\n")
    os._exit(0)
