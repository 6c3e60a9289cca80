"""Reads saved logs of SGLang servers and says what happened: ``python -m eagle3_remote.explain FILE... [--json]``.

A file is read from its path; ``-`` is standard input. With ``--json`` one JSON object a file, a line each; otherwise a
note for people. Memory is constant whatever the size. Standard library alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from eagle3_remote.protocol.secret import hide_assigned
from eagle3_remote.serverlog import LogState, feed
from eagle3_remote.serverlog.fold import whole
from eagle3_remote.serverlog.reading import in_order, slowest, verdict
from eagle3_remote.serverlog.words import RATE, Step

_CHUNK = 1 << 20
_WORDS = {Step.STOPPING: "exited"}
_REACHED = {
    Step.UNKNOWN: "Nothing in it is known from an SGLang server's start",
    Step.SPAWNING: "The server's processes were being started",
    Step.DIST_INIT: "The ranks were being set up",
    Step.DOWNLOAD: "The model was being downloaded",
    Step.LOAD_WEIGHTS: "Weights were being loaded",
    Step.LOAD_WEIGHTS_DONE: "The weights were read",
    Step.KV_CACHE: "The KV cache was allocated",
    Step.JIT_WARMUP: "Kernels were being compiled or tuned",
    Step.GRAPH_CAPTURE: "CUDA graphs were being captured or compiled",
    Step.GRAPH_CAPTURE_DONE: "CUDA graphs were captured",
    Step.HTTP_UP: "The HTTP side was up, the server not ready yet",
    Step.WARMUP: "The server was answering its warm-up request",
    Step.READY: "The server was ready",
    Step.SERVING: "The server was ready and had served requests",
    Step.STOPPING: "The server was told to stop and was stopping",
    Step.EXITED: "The server ended in good order",
}


def fold(chunks: Iterable[bytes]) -> LogState:
    """The state of a whole log."""
    state = LogState()
    for chunk in chunks:
        state = feed(state, chunk)
    return state


def explained(name: str, state: LogState) -> dict[str, Any]:
    """One file as plain JSON values; see ``explain --help`` for the fields."""
    now = whole(state)
    found = verdict(now, ended=True)
    shards = None
    if now.shards is not None:
        rate = RATE.match(now.shards[2] or "")
        shards = {
            "done": now.shards[0],
            "total": now.shards[1],
            "rate": float(rate[1]) if rate else None,
            "unit": rate[2] if rate else None,
            "eta": now.shards[3],
            "counts": now.shards[4],
            "slowest_rank": slowest(now),
        }
    return {
        "file": name,
        "phase": "failed" if found is not None else _word(now.step),
        "reached": _word(now.step),
        "ready": found is None and now.step in (Step.READY, Step.SERVING),
        "shards": shards,
        "capture": None if now.captured is None else {"done": now.captured[0], "total": now.captured[1]},
        "ranks": in_order(now.ranks),
        "loading_ranks": in_order(now.loading) if now.step is Step.LOAD_WEIGHTS else [],
        "failure": None
        if found is None
        else {
            "kind": found.kind,
            "root_cause": found.line,
            "rank": found.rank,
            "advice": found.advice,
            "certain": found.certain,
        },
        "last_line": now.last_line,
    }


def note(name: str, state: LogState) -> str:
    """One file as a doctor's note: how far it came, what happened, on which rank, the line, what to do, how sure."""
    now, said = whole(state), explained(name, state)
    failure, shards = said["failure"], said["shards"]
    lines = [name, f"  reached   {_REACHED[now.step]}."]
    if shards is not None and now.step <= Step.LOAD_WEIGHTS_DONE:
        lines.append(f"  weights   {_weights(shards, said['loading_ranks'], now)}")
    if said["ranks"]:
        shown = ", ".join(said["ranks"][:16]) + (
            f" and {len(said['ranks']) - 16} more" if len(said["ranks"]) > 16 else ""
        )
        lines.append(f"  ranks     {shown}")
    if failure is None:
        lines.append(f"  verdict   {_healthy(now)}")
        if now.last_line:
            lines.append(f"  last line {now.last_line}")
        return "\n".join(lines)
    where = f" on {failure['rank']}" if failure["rank"] else ""
    lines += [
        f"  verdict   It failed{where}: {failure['kind']}.",
        f"  line      {failure['root_cause']}",
        f"  do        {failure['advice']}",
        f"  how sure  {_sure(failure)}",
    ]
    return "\n".join(lines)


def _weights(shards: dict[str, Any], loading: list[str], now: LogState) -> str:
    text = f"{shards['done']} of {shards['total']} {shards['counts']}"
    if shards["rate"] is not None:
        text += f", {shards['rate']:g} {shards['unit']}"
    if shards["done"] < shards["total"]:
        return text + (f", {shards['eta']} left" if shards["eta"] else "")
    if loading and now.loaded:
        return f"{text}; still loading: {', '.join(loading[:8])}"
    return (
        text
        if now.loaded and not loading
        else f"{text} read, which is not the end of loading: copying may go on for long"
    )


def _healthy(now: LogState) -> str:
    if now.step in (Step.READY, Step.SERVING):
        return "It was ready, and nothing in the log says that it failed."
    if now.step in (Step.STOPPING, Step.EXITED):
        return "It was stopped; nothing in the log says that it failed."
    return "The log ends here and names no failure: the server may still be at it, or was killed without a word."


def _sure(failure: dict[str, Any]) -> str:
    if failure["certain"]:
        return "Certain: the log names the cause."
    if failure["kind"] in ("traceback_cut", "unknown_child_failure", "scheduler_died_sigquit"):
        return "The log does not name the cause."
    return "Likely, not certain: this is the best reading of what the log says."


def _word(step: Step) -> str:
    return _WORDS.get(step, step.name.lower())


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _read(name: str) -> LogState:
    if name == "-":
        return fold(_chunks(sys.stdin.buffer))
    with open(name, "rb", buffering=0) as file:
        return fold(_chunks(file))


def _hidden(value: Any) -> Any:
    """What is told, without the secrets that a log may have."""
    if isinstance(value, dict):
        return {key: _hidden(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hidden(one) for one in value]
    return hide_assigned(value) if isinstance(value, str) else value


def main(argv: list[str] | None = None) -> int:
    """0: every file was read (whatever is in it); 2: one could not be; 130: interrupted."""
    parser = argparse.ArgumentParser(
        prog="eagle3-console explain", description="say what happened in saved logs of SGLang servers"
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a saved log; - reads standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object a file, a line each")
    args = parser.parse_args(argv)
    code = 0
    try:
        for place, name in enumerate(args.files):
            try:
                state = _read(name)
            except OSError as error:
                print(f"{parser.prog}: {name} cannot be read: {error.strerror}.", file=sys.stderr)  # noqa: T201
                code = 2
                continue
            told = json.dumps(_hidden(explained(name, state)))
            text = told if args.json else ("\n" if place else "") + hide_assigned(note(name, state))
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
