"""The words of the list of boxes. Pure: lines in, lines out; what there is no room for goes by rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from textual.content import Content

from eagle3_console import units
from eagle3_console.events import CONNECTED, ENDED, Alert
from eagle3_console.fleet import BoxLine, Total
from eagle3_console.ui.draw import LEVEL_STYLE, MUTED, clip, words
from eagle3_console.ui.draw_server import PHASE_NAMES
from eagle3_console.ui.glyphs import Glyphs
from eagle3_remote.protocol import Phase

_SHORT_DISK = {"almost full": "full!", "too small": "small!", "filling": "fills"}
"""The last column is narrow; panel 3 of the box has the whole word."""
_SHORT_PHASE = {"not-running": "down", "unresponsive": "no answer", "finishing-weights": "weights"}
_MIN_ALERT = 20
_PROGRESS = 13


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: its head, its width in cells, what goes first when there is no room, and its text."""

    head: str
    width: int
    goes: int
    """0: never goes; the highest goes first."""
    text: Callable[[BoxLine], str]
    right: bool = True


def _known(value: float | None, write: Callable[[float], str]) -> str:
    return write(value).strip() if value is not None else units.UNKNOWN


COLUMNS = (
    Column("server", 10, 0, lambda box: _phase(box.phase), right=False),
    Column("stored", _PROGRESS, 0, lambda box: _progress(box.stored, box.total)),
    Column("/s", 5, 1, lambda box: _known(box.samples_per_s, units.rate)),
    Column("size", 7, 3, lambda box: _known(box.bytes_stored, units.gb)),
    Column("ETA", 8, 2, lambda box: units.duration(box.eta)),
    Column("disk", 6, 0, lambda box: _SHORT_DISK.get(box.disk or "", box.disk or units.UNKNOWN), right=False),
)
_LINK = 10
"""``connected`` and ``connecting``, behind a sign."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Which columns there is room for."""

    host: int
    columns: tuple[Column, ...]
    alert: int
    """Cells for the last alert; 0: none."""


def table(width: int, hosts: Sequence[str]) -> Table:
    """The columns for this width: the last alert goes first, then size, ETA and rate."""
    longest = max([len(host) for host in hosts], default=4)
    columns: tuple[Column, ...] = COLUMNS
    while True:
        fixed = 2 + 2 + _LINK + sum(column.width + 1 for column in columns) + 1
        host = max(4, min(longest, 24, width - fixed))
        if fixed + min(longest, 10) <= width or not any(column.goes for column in columns):
            rest = width - fixed - host - 1
            return Table(host, columns, rest if rest >= _MIN_ALERT else 0)
        most = max(column.goes for column in columns)
        columns = tuple(column for column in columns if column.goes != most)


def draw_head(room: Table, width: int, glyphs: Glyphs) -> Content:
    """The heads of the columns."""
    cells = [_cell(column.head, column) for column in room.columns]
    alert = ["last alert"] if room.alert else []
    text = " ".join([f"  {'box':<{room.host}} {'link':<{_LINK + 2}}"[: room.host + _LINK + 5], *cells, *alert])
    return clip(words((text, MUTED)), width, glyphs)


def draw_box_line(box: BoxLine, room: Table, width: int, glyphs: Glyphs, now: float, selected: bool) -> Content:
    """One box. A box that is not there and of which nothing is known says why over all columns."""
    live = box.link == CONNECTED
    mark = glyphs.running if selected else " "
    style = "$text-success" if live else "bold $text-warning" if box.link not in ENDED else "bold $text-error"
    host = box.host if len(box.host) <= room.host else box.host[: room.host - len(glyphs.cut)] + glyphs.cut
    head = words(
        (f"{mark} {host:<{room.host}} ", "bold reverse" if selected else "bold"),
        (f"{glyphs.live if live else glyphs.lost} {box.link:<{_LINK}}", style),
    )
    if box.link in ENDED or (not live and box.phase is None):
        return clip(head + words(f" {box.sentence}"), width, glyphs)
    parts: list[str | tuple[str, str]] = []
    for column in room.columns:
        look = MUTED if not live else LEVEL_STYLE[box.disk_level] if column.head == "disk" else ""
        parts += [" ", (_cell(column.text(box), column), look)]
    if room.alert and box.alert is not None:
        alert = box.alert
        parts += [" ", (f"{units.clock_short(alert.at, now)} {alert.level} {alert.text}", LEVEL_STYLE[alert.level])]
    return clip(head + words(*parts), width, glyphs)


def draw_total(sums: Total, room: Table, width: int, glyphs: Glyphs) -> Content:
    """The last line, under the same columns."""
    box = BoxLine("", "", "", None, "", None, sums.stored, sums.total, sums.samples_per_s, sums.bytes_stored, sums.eta, "", "info", None)  # fmt: skip
    lead = f"  {sums.boxes} boxes, {sums.connected} connected"
    cells = ["" if column.head in ("server", "disk") else column.text(box) for column in room.columns]
    padded = [_cell(text, column) for text, column in zip(cells, room.columns, strict=True)]
    space = 2 + room.host + 1 + 2 + _LINK + 1 + room.columns[0].width
    return clip(words((" ".join([f"{lead:<{space}}", *padded[1:]]), "bold")), width, glyphs)


def draw_alert(host: str, alert: Alert, now: float, glyphs: Glyphs) -> Content:
    """One alert of one box."""
    sign = {"info": glyphs.info, "warning": glyphs.warning, "error": glyphs.failed}[alert.level]
    cure = (f"  {glyphs.arrow} {alert.cure}", MUTED) if alert.cure else ("", "")
    return words(
        f"{units.clock_short(alert.at, now)} ",
        (host, "bold"),
        (f" {sign} {alert.level}", f"bold {LEVEL_STYLE[alert.level]}".strip()),
        f"  {alert.text}",
        cure,
    )


def _phase(word: str | None) -> str:
    """In ten cells."""
    if word is None:
        return units.UNKNOWN
    return _SHORT_PHASE.get(word) or PHASE_NAMES.get(Phase(word)) or word


def _progress(stored: int | None, of: int | None) -> str:
    """``3,731/10,000``; in thousands where that is too long: a number is never cut."""
    if stored is None or of is None:
        return units.UNKNOWN
    exact = f"{units.number(stored)}/{units.number(of)}"
    return exact if len(exact) <= _PROGRESS else f"{units.rate(stored).strip()}/{units.rate(of).strip()}"


def _cell(text: str, column: Column) -> str:
    text = text if len(text) <= column.width else text[: column.width]
    return f"{text:>{column.width}}" if column.right else f"{text:<{column.width}}"
