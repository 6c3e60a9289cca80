"""Panel 2: how far the extraction is, how fast, how big, and when it is done. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from textual.content import Content

from eagle3_console import units
from eagle3_console.alerts import EXTRACTING, SERVING
from eagle3_console.state import earlier
from eagle3_console.ui.draw import MUTED, View, first_that_fits, flow, words, wrap
from eagle3_remote.protocol import STARTING, ArrayStatus, ExtractSpec, ExtractState, ExtractStatus, TaskState

_STATE_STYLE = {
    ExtractState.RUNNING: "$text-success",
    ExtractState.FINISHED: "$text-success",
    ExtractState.PAUSED: "$text-warning",
    ExtractState.STOPPED: "$text-warning",
    ExtractState.FAILED: "$text-error",
}
_TASK_STYLE = {
    TaskState.LOST: "$text-error",
    TaskState.FAILED: "$text-error",
    TaskState.STOPPED: "$text-warning",
    TaskState.EXTRACTING: "$text-success",
}


_NAME_ROOM = 12
"""Cells below which an end of a name tells nothing."""


def draw_extraction(view: View) -> list[Content]:
    """Bar, rates, sizes, end; the plot is drawn by its own widget below."""
    snapshot = view.state.snapshot
    if snapshot is None:
        return [words(("waiting for the box", MUTED))]
    extract = snapshot.extract
    if extract is None:
        plan = [line for text in view.state.plan for line in wrap(text, view.width)]
        return [*_work(view), *wrap(_nothing_yet(view), view.width, MUTED), *plan]
    if earlier(view.state):
        return [*_work(view), *_to_come(extract, view)]
    extract = _with_kept(extract, view.state.kept)
    lines = [_bar(extract, view)]
    if view.height == 1:
        return lines
    if extract.state not in EXTRACTING:
        lines += _work(view)
    if extract.state in (ExtractState.FAILED, ExtractState.PAUSED) and extract.sentence:
        goes_on = f" {view.state.keys['extract.pause']} lets it go on." if extract.held else ""
        lines += wrap(extract.sentence + goes_on, view.width, _STATE_STYLE[extract.state])[: max(1, view.height - 4)]
    for group in (_rates(extract), _sizes(extract, view), _counts(extract)):
        lines += flow(group, view.width, gap="  ")
    if extract.state in EXTRACTING:
        lines += _work(view)
    if extract.spec is not None and len(lines) < view.height:
        lines.append(_from_to(extract.spec, view, view.width))
    elif extract.spec is not None and len(lines) == view.height:
        lines[-1] = _with_output(lines[-1], extract.spec, view)
    if snapshot.array is not None:
        lines += _tasks(snapshot.array, view, view.height - len(lines))
    return lines


def _with_kept(extract: ExtractStatus, kept: ExtractStatus | None) -> ExtractStatus:
    """An extraction that plans to go on has counted nothing yet: what is stored already is shown meanwhile."""
    if kept is None:
        return extract
    return dataclasses.replace(
        extract,
        total=kept.total,
        stored=kept.stored,
        tokens_stored=kept.tokens_stored,
        bytes_stored=kept.bytes_stored,
        bytes_total=kept.bytes_total,
    )


def _from_to(spec: ExtractSpec, view: View, width: int) -> Content:
    """Which data became which dataset. The dataset's own name is the last to give way, and its end the last of that."""
    arrow, cut = view.glyphs.arrow, view.glyphs.cut
    data, name = (path.rstrip("/").rpartition("/")[2] for path in (spec.data, spec.out))
    parts = spec.out.rstrip("/").split("/")
    outs = [spec.out, *(f"{cut}/{'/'.join(parts[at:])}" for at in range(2, len(parts)))]
    ends = [name, *(cut + name[at:] for at in range(1, len(name)))]
    texts = [f"{spec.data} {arrow} {spec.out}", *(f"{data} {arrow} {out}" for out in outs)]
    texts += [f"{arrow} {out}" for out in (*outs, *ends)]
    return first_that_fits([words((text, MUTED)) for text in texts], width)


def _with_output(line: Content, spec: ExtractSpec, view: View) -> Content:
    """Where there is no line left for it, the dataset's name stands behind the last one, as far as that has room."""
    room = view.width - line.cell_length - 2
    return line + "  " + _from_to(spec, view, room) if room >= _NAME_ROOM else line


def _work(view: View) -> list[Content]:
    """A line for each export, merge and removal that runs."""
    lines = []
    for one in view.state.work:
        items = [
            words((f"{view.glyphs.running} {one.job.kind if one.job is not None else 'work'}", "bold $text-accent"))
        ]
        if one.total:
            items.append(words(f"{units.n_of(one.done, one.total)} files  {units.percent(one.done, one.total)}"))
            items += [words(f"{units.gb(one.bytes_done)} of {units.gb(one.bytes_total)}")] if one.bytes_total else []
            items += [words(f"ETA {units.duration(one.eta)}")] if one.eta is not None else []
        else:
            items.append(words(one.sentence))
        lines += flow(items, view.width, gap="  ")
    return lines


def _tasks(array: ArrayStatus, view: View, room: int) -> list[Content]:
    """The array in a line, then a line a task for as many as fit; the box sends those that ended early first."""
    lines = [wrap(array.sentence, view.width)[0]] if room > 0 else []
    for task in array.tasks[: max(0, room - 1)]:
        done = f"{task.extract.stored}/{task.extract.total}" if task.extract is not None else "-"
        where = task.node if task.state is not TaskState.QUEUED else ""
        text = f"task {task.index} {task.state.value:<10} {where} {done}  {task.sentence}"
        lines.append(wrap(text, view.width, _TASK_STYLE.get(task.state, MUTED))[0])
    return lines


def _nothing_yet(view: View) -> str:
    assert view.state.snapshot is not None
    phase = view.state.snapshot.server.phase
    if phase in SERVING:
        return f"nothing extracted yet: {view.state.keys['extract.start']} starts the extraction"
    if phase in STARTING:
        return "begins when the server is ready and the probe is good"
    return f"needs a running server: {view.state.keys['server.start']} starts it"


def _to_come(extract: ExtractStatus, view: View) -> list[Content]:
    """What the run under way is going to make, and how the extraction of before ended."""
    starts = any(step.name == "extract" and step.status == "running" for step in view.state.steps)
    text = "the extraction starts" if starts else "begins when the server is ready and the probe is good"
    lines = wrap(text, view.width)
    for line in view.state.plan:
        lines += wrap(line, view.width)
    out = f", {extract.spec.out}" if extract.spec is not None else ""
    stored = units.n_of(extract.stored, extract.total).strip()
    return [*lines, *wrap(f"the one before: {extract.state.value}, {stored}{out}", view.width, MUTED)]


def _bar(extract: ExtractStatus, view: View) -> Content:
    fraction = extract.stored / extract.total if extract.total else 0.0
    state = extract.state.value.upper()
    rest = f"  {units.n_of(extract.stored, extract.total)}  {units.percent(extract.stored, extract.total)}  "
    filled, empty = view.glyphs.bar(fraction, max(4, view.width - len(rest) - len(state)))
    style = _STATE_STYLE.get(extract.state, "$text-accent")
    return words((filled, "$success"), (empty, MUTED), (rest, "bold"), (state, f"bold {style}"))


def _rates(extract: ExtractStatus) -> Iterator[Content]:
    moves = extract.state in EXTRACTING and extract.state is not ExtractState.PAUSED
    if moves:
        yield words((f"{units.rate(extract.samples_per_s)} samples/s now", "bold"))
    unit = "" if moves else "samples/s "
    yield words(f"{units.rate(extract.mean_samples_per_s)} {unit}mean")
    if moves:
        yield words(f"{units.rate(extract.tokens_per_s)} tok/s")
        yield words(f"{units.bytes_rate(extract.bytes_per_s):>9}")
    else:
        yield words(f"{units.number(extract.tokens_stored)} tokens")


def _sizes(extract: ExtractStatus, view: View) -> Iterator[Content]:
    written = units.gb_and_gib(extract.bytes_stored)
    if extract.bytes_total > extract.bytes_stored:
        yield words(f"{written} of {units.gb_and_gib(extract.bytes_total)} written")
    else:
        yield words(f"{written} written")
    if extract.state is ExtractState.PAUSED:
        return  # nobody knows when it goes on, so nobody knows its end
    if extract.state in EXTRACTING:
        yield _end(extract, view)
    else:
        yield words(f"took {units.duration(extract.elapsed)}")


def _end(extract: ExtractStatus, view: View) -> Content:
    if extract.eta is None or view.state.as_of is None:
        return words("ETA - (measuring)")
    at = units.clock_short(view.state.as_of + extract.eta, view.now)
    return words(f"done {at}, in ", (units.duration(extract.eta), "bold"))


def _counts(extract: ExtractStatus) -> Iterator[Content]:
    if extract.state in EXTRACTING:
        yield words(f"in flight {extract.in_flight:>3}, {units.number(extract.tokens_in_flight)} tokens")
    yield words((f"rejected {units.number(extract.rejected)}", "bold $text-warning" if extract.rejected else ""))
    yield words((f"failed {units.number(extract.failed)}", "bold $text-error" if extract.failed else ""))
    if extract.cut:
        yield words(f"cut {units.number(extract.cut)}")
