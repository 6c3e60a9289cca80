"""The words of the header, the checklist and the events, and what all panels share. Pure: state in, lines out."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Sequence

from textual.content import Content

from eagle3_console import units
from eagle3_console.alerts import ranks
from eagle3_console.events import Alert, Level, Status
from eagle3_console.printable import safe
from eagle3_console.state import ConsoleState
from eagle3_console.ui import steering
from eagle3_console.ui.glyphs import Glyphs
from eagle3_remote.protocol import STARTING

MUTED = "$foreground-muted"
LEVEL_STYLE: dict[Level, str] = {"info": "", "warning": "$text-warning", "error": "$text-error"}
STEP_STYLE: dict[Status, str] = {
    "todo": MUTED,
    "running": "bold $text-accent",
    "done": "$text-success",
    "failed": "bold $text-error",
}


@dataclasses.dataclass(frozen=True)
class View:
    """What a panel draws from: the state, the time, the signs, and its room in cells."""

    state: ConsoleState
    now: float
    """Unix seconds, this machine's clock."""
    glyphs: Glyphs
    width: int
    height: int


def words(*parts: str | tuple[str, str]) -> Content:
    """One line from plain strings and (text, style) pairs. Nothing in them is read as markup or obeyed by the terminal."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Content.assemble(*((safe(text), style) for text, style in pairs))


def clip(line: Content, width: int, glyphs: Glyphs) -> Content:
    """A line in at most `width` cells, with a mark where it was cut."""
    if line.cell_length <= width:
        return line
    return line.truncate(max(0, width - len(glyphs.cut))) + glyphs.cut[: max(0, width)]


def flow(items: Iterable[Content], width: int, gap: str = "   ") -> list[Content]:
    """Set items in lines of at most `width` cells; an item is never broken."""
    lines: list[Content] = []
    for item in items:
        if lines and lines[-1].cell_length + len(gap) + item.cell_length <= width:
            lines[-1] = lines[-1] + gap + item
        else:
            lines.append(item)
    return lines


def wrap(text: str, width: int, style: str = "", indent: str = "") -> list[Content]:
    """A sentence in lines; long words are broken, so that a path is never cut off."""
    lines = textwrap.wrap(safe(text), max(10, width), subsequent_indent=indent, break_on_hyphens=False)
    return [words((line, style)) for line in lines]


def first_that_fits(options: Sequence[Content], width: int) -> Content:
    """The first of ever shorter versions that fits, or the last."""
    return next((option for option in options if option.cell_length <= width), options[-1])


def spread(left: Content, right: Content, width: int, glyphs: Glyphs) -> Content:
    """One line with `right` at the right edge; `left` gives way."""
    room = width - right.cell_length - 1
    if room <= 0:
        return clip(right, width, glyphs)
    left = clip(left, room, glyphs)
    return left + " " * (width - left.cell_length - right.cell_length) + right


_ROOMY = 70


def draw_header(view: View, target: str, readonly: bool, unseen: int, alerts_key: str) -> Content:
    """Who, whether the link lives, what runs there, errors that nobody looked at, and the time."""
    state, glyphs = view.state, view.glyphs
    connection = state.connection
    errors = ""
    if unseen:
        roomy = view.width >= _ROOMY
        errors = f"{glyphs.failed} {unseen}" + (
            f" new error{'s' if unseen > 1 else ''} ({alerts_key})  " if roomy else " "
        )
    right = words((errors, "bold $text-error"), f"{units.clock(view.now)} ")
    name = words((f" {target}", "bold"), "  ")
    if readonly:
        name = name + words(("read-only", "reverse"), "  ")
    if steerer := steering.words(state, view.now):
        name = name + words((steerer, "reverse"), "  ")
    if not connection.live:
        as_of = f"  shown as of {units.clock(state.as_of)}" if state.as_of is not None else ""
        lost = words((f"{glyphs.lost} {connection.word}{_next_try(view)}", "bold $text-warning"), as_of)
        return spread(name + lost, right, view.width, glyphs)
    latency = f" {connection.latency_ms:.0f} ms" if connection.latency_ms is not None else ""
    left = name + words((f"{glyphs.live} {connection.word}{latency}", "$text-success"))
    room = view.width - left.cell_length - right.cell_length - 4
    facts = first_that_fits(_facts(view), room) if room > 0 else Content("")
    return spread(left + "    " + facts, right, view.width, glyphs)


def _next_try(view: View) -> str:
    at = view.state.connection.next_try
    return f" {math.ceil(at - view.now)} s" if at is not None and at > view.now else ""


def _facts(view: View) -> list[Content]:
    if view.state.snapshot is None:
        return [Content("")]
    server, glyphs = view.state.snapshot.server, view.glyphs
    parts: list[Content] = []
    if server.spec is not None:
        parts.append(words(server.spec.model.rstrip("/").rpartition("/")[2]))
    if server.sglang_version:
        parts.append(words(f"sglang {server.sglang_version}"))
    if server.job is not None:
        parts.append(patch_words(view))
    gap = Content(f" {glyphs.dot} ")
    return [gap.join(parts), gap.join([*parts[:1], *parts[2:]]), gap.join(parts[-1:]), Content("")]


def patch_words(view: View) -> Content:
    """``patch ✓ 8/8 ranks``."""
    assert view.state.snapshot is not None
    server = view.state.snapshot.server
    if server.log.refused is not None:
        return words((f"patch {view.glyphs.failed} refused", "bold $text-error"))
    seen, wanted = ranks(server)
    sign, style = view.glyphs.todo, MUTED if server.phase in STARTING else "$text-warning"
    if seen >= wanted:
        sign, style = view.glyphs.done, "$text-success"
    return words((f"patch {sign} {seen}/{wanted} ranks", style))


NOTE_SECONDS = 20.0
"""How long the last thing said stands beside the checklist; what is older is in the events."""


def draw_checklist(view: View) -> Content:
    """What is done, what runs, what comes, and the last thing said about it; without a link, what is done about that."""
    glyphs = view.glyphs
    connection = view.state.connection
    if not connection.live:
        return words((f" {glyphs.warning} {connection.sentence}", "bold $text-warning"))
    whole, brief = _steps(view, details=True), _steps(view, details=False)
    line = first_that_fits([whole, brief], view.width)
    note = next((note for note in reversed(view.state.notes) if not note.aside), None)
    if note is not None and view.now - (note.at or 0.0) < NOTE_SECONDS:
        room = view.width - line.cell_length - 4
        if room >= 12:
            line = line + "   " + clip(words((note.text, MUTED)), room, glyphs)
    return line


def _steps(view: View, details: bool) -> Content:
    """The steps in one line; without `details`, what is done is only ticked."""
    glyphs = view.glyphs
    signs = {"todo": glyphs.todo, "running": glyphs.running, "done": glyphs.done, "failed": glyphs.failed}
    parts = []
    for step in view.state.steps:
        detail = f" {step.detail}" if step.detail and (details or step.status != "done") else ""
        failed = " failed" if step.status == "failed" and "failed" not in detail else ""
        parts.append(words((f"{signs[step.status]} {step.name}{failed}{detail}", STEP_STYLE[step.status])))
    for work in view.state.work:
        done = f" {units.percent(work.done, work.total).strip()}" if work.total else ""
        parts.append(words((f"{glyphs.running} {work.job.kind if work.job else 'work'}{done}", STEP_STYLE["running"])))
    return Content(" ") + Content("  ").join(parts)


def alert_line(alert: Alert, view: View, clock: bool = True) -> Content:
    """``01:52 ▲ warning  text (cure)``."""
    sign = {"info": view.glyphs.info, "warning": view.glyphs.warning, "error": view.glyphs.failed}[alert.level]
    when = f"{units.clock_short(alert.at, view.now)} " if clock else ""
    cure = (f"  {view.glyphs.arrow} {alert.cure}", MUTED) if alert.cure else ("", "")
    return words(when, (f"{sign} {alert.level}", f"bold {LEVEL_STYLE[alert.level]}".strip()), f"  {alert.text}", cure)


def _entries(state: ConsoleState) -> list[Alert]:
    """Alerts and notes, newest first."""
    entries = list(state.alerts) + [Alert(note.at or 0.0, "info", "note", note.text) for note in state.notes]
    return sorted(entries, key=lambda entry: entry.at)[::-1]


def draw_events(view: View) -> list[Content]:
    """Newest first, every word of each. With one line's room only the last alert."""
    state = view.state
    if view.height <= 1:
        if state.alerts:
            return [alert_line(state.alerts[-1], view)]
        return [words(("no alerts", MUTED))]
    newest_first = (alert_line(entry, view) for entry in _entries(state))
    lines = [part for line in newest_first for part in line.wrap(max(20, view.width))]
    return lines or [words(("nothing yet", MUTED))]


def draw_history(view: View) -> list[Content]:
    """All of them in full, newest first: when, how grave, what, and below it the cure."""
    lines: list[Content] = []
    signs = {"info": view.glyphs.info, "warning": view.glyphs.warning, "error": view.glyphs.failed}
    entries = _entries(view.state)
    times = [units.clock_short(entry.at, view.now) for entry in entries]
    stamp = max(map(len, times), default=0)
    for entry, when in zip(entries, times, strict=True):
        grave = "note" if entry.cause == "note" else entry.level
        head = f"{when:>{stamp}} {signs[entry.level]} {grave:<7}  "
        room = max(20, view.width - len(head))
        text = wrap(entry.text, room)
        style = f"bold {LEVEL_STYLE[entry.level]}".strip() if entry.cause != "note" else MUTED
        lines += [words((head if at == 0 else " " * len(head), style)) + part for at, part in enumerate(text)]
        if entry.cure:
            cure = wrap(f"{view.glyphs.arrow} {entry.cure}", room, MUTED, indent="  ")
            lines += [Content(" " * len(head)) + part for part in cure]
    return lines or [words(("nothing yet", MUTED))]


def unseen_errors(alerts: Sequence[Alert], seen: Alert | None) -> int:
    """How many errors came after the last alert that somebody looked at."""
    after = alerts[alerts.index(seen) + 1 :] if seen in alerts else alerts
    return sum(alert.level == "error" for alert in after)
