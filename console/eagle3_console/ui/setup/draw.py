"""Findings, names and proposals as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content

from eagle3_console import units
from eagle3_console.judge import FAIL, OK, WARN, Finding
from eagle3_console.setup.propose import Proposal
from eagle3_console.ui.draw import MUTED, words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_remote.protocol import PathEntry, PathList

ROWS = 6
"""Names that are shown at once below a field."""
_STYLE = {OK: "$text-success", WARN: "bold $text-warning", FAIL: "bold $text-error"}
_WORD = {OK: "", WARN: "warning: ", FAIL: "wrong: "}


def finding(one: Finding, glyphs: Glyphs, label: bool = True) -> Content:
    """Sign, what it is about, the sentence, and the cure."""
    sign = {OK: glyphs.done, WARN: glyphs.warning, FAIL: glyphs.failed}[one.level]
    parts: list[str | tuple[str, str]] = [(f"{sign} ", _STYLE[one.level])]
    if label:
        parts.append((f"{one.what}  ", "bold"))
    if _WORD[one.level]:
        parts.append((_WORD[one.level], _STYLE[one.level]))
    parts.append(one.sentence)
    if one.cure:
        parts.append((f" {glyphs.arrow} {one.cure}", MUTED))
    return words(*parts)


def findings(some: Iterable[Finding], glyphs: Glyphs, label: bool = True) -> Content:
    """One below the other."""
    return Content("\n").join(finding(one, glyphs, label) for one in some)


def proposal(one: Proposal | None, own: str | None) -> Content:
    """Why a value is proposed; where the person has another, what would be.

    Args:
        own: what the person has; `None`: what is proposed counts.
    """
    if one is None:
        return words(("known when Model and Data are", MUTED) if own is None else ("yours", "bold"))
    if own is None:
        return words((one.reason, MUTED))
    if own == one.text:
        return words(("yours", "bold"), (f", as proposed: {one.reason}", MUTED))
    return words(("yours", "bold"), (f"; proposed: {one.text or 'nothing'}: {one.reason}", MUTED))


def names(found: PathList, chosen: int | None, completes: bool, width: int, glyphs: Glyphs) -> Content:
    """The names that a path may go on with, the chosen one marked; `completes`: whether tab does."""
    if found.error:
        return words((f"{glyphs.warning} {found.error}", "$text-warning"))
    if not found.entries:
        return words(("nothing of this name is there", MUTED)) if found.word else words(("nothing is in it", MUTED))
    first = max(0, min((chosen or 0) - ROWS // 2, len(found.entries) - ROWS))
    shown = found.entries[first : first + ROWS]
    lines = [_name(one, first + at == chosen, width, glyphs) for at, one in enumerate(shown)]
    rest = len(found.entries) + found.more - len(shown)
    about = f"{units.number(rest)} more. " if rest else ""
    lines.append(words((f"{about}{'tab completes, ' if completes else ''}down chooses", MUTED)))
    return Content("\n").join(lines)


def row_of(found: PathList, chosen: int | None, line: int) -> int | None:
    """The entry that is shown in a line of `names`."""
    first = max(0, min((chosen or 0) - ROWS // 2, len(found.entries) - ROWS))
    at = first + line
    return at if 0 <= line < ROWS and at < len(found.entries) else None


def _name(one: PathEntry, chosen: bool, width: int, glyphs: Glyphs) -> Content:
    if one.broken:
        right = f"link to nothing ({one.link})"
    elif one.link:
        right = f"{glyphs.arrow} {one.link}"
    else:
        right = "" if one.is_dir else units.gb(one.size)
    name = one.name + ("/" if one.is_dir and one.name != "/" else "")
    left = words((f"{glyphs.running if chosen else ' '} {name}", "reverse" if chosen else ""))
    gap = max(2, width - left.cell_length - len(right) - 1)
    return (left + words((" " * gap + right, MUTED))) if right else left


def text_after(found: PathList, entry: PathEntry) -> str:
    """The path with one name taken."""
    name = found.folder + entry.name
    return name + "/" if entry.is_dir and not name.endswith("/") else name


def shared(found: PathList) -> str:
    """What all names begin with: at least the word itself."""
    entries = found.entries
    if not found.begins or not entries or found.more:
        return found.word
    first, last = min(one.name for one in entries), max(one.name for one in entries)
    count = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: max(count, len(found.word))] if first.startswith(found.word) else found.word


def plain(lines: Sequence[str]) -> Content:
    """Lines as they are."""
    return Content("\n").join(words(line) for line in lines)
