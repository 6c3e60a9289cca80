"""A measurement of a server beside earlier ones and beside what others report. Pure."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from eagle3_console.units import UNKNOWN, three_digits
from eagle3_remote.protocol import BenchReport, BenchRun

NOT_HERE = "not measured here"
_QUIET_FLAGS = ("--model-path", "--host", "--port", "--tp-size")
"""What every line of the table has, or what has a column of its own."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A figure that somebody reports for a model: no measurement of this project."""

    name: str
    decode_tps: float | None = None
    prefill_tps: float | None = None
    note: str = ""


def table(report: BenchReport, references: Sequence[Reference]) -> str:
    """Newest first; below them the references; then flags and NCCL environment of each run by number."""
    runs = [*report.earlier, *([report.run] if report.run is not None else [])][::-1]
    if not runs:
        return f"Nothing was measured yet: {report.path} does not exist or is empty."
    head = ("", "when", "decode tok/s", "prefill tok/s", "tokens", "model", "SGLang", "GPUs", "")
    rows = [_row(number, run, runs[0], new=run is report.run) for number, run in enumerate(runs, start=1)]
    rows += [
        ("", NOT_HERE, _tps(one.decode_tps), _tps(one.prefill_tps), "", one.name, "", "", one.note)
        for one in references
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    return "\n".join([*lines, "", *(_details(number, run) for number, run in enumerate(runs, start=1))])


def _row(number: int, run: BenchRun, newest: BenchRun, *, new: bool) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.at))
    gpus = f"{run.tp} x {run.gpus[0]}" if run.gpus else "no GPU"
    same = (run.model, run.decode_tokens, run.prefill_tokens) == (
        newest.model,
        newest.decode_tokens,
        newest.prefill_tokens,
    )
    note = (
        "this run"
        if new
        else ""
        if run is newest or not same
        else f"decode {_change(newest.decode_tps, run.decode_tps)} since"
    )
    model = run.model.rstrip("/").rpartition("/")[2]
    tokens = f"{run.decode_tokens}/{run.prefill_tokens}"
    return (
        f"#{number}",
        when,
        _tps(run.decode_tps),
        _tps(run.prefill_tps),
        tokens,
        model,
        run.sglang_version,
        gpus,
        note,
    )


def _details(number: int, run: BenchRun) -> str:
    nccl = " ".join(f"{name}={value}" for name, value in run.nccl.items()) or "no NCCL_* set"
    return f"#{number} {' '.join(flags(run.argv)) or 'no flags'}; {nccl}"


def flags(argv: Sequence[str]) -> list[str]:
    """The flags of a launch line without what has a column of its own."""
    kept, skip = [], False
    start = next((place for place, word in enumerate(argv) if word.startswith("--")), len(argv))
    for word in argv[start:]:
        if word.startswith("--"):
            skip = word.partition("=")[0] in _QUIET_FLAGS
        if not skip:
            kept.append(word)
    return kept


def _tps(value: float | None) -> str:
    return UNKNOWN if value is None else three_digits(value)


def _change(now: float, before: float) -> str:
    return f"{100 * (now / before - 1):+.1f} %" if before else UNKNOWN
