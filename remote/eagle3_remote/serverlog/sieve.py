"""Takes the lines out of a block that change nothing, many at a time.

Most lines of a long log say nothing that matters, but one regular expression of all the words that do reads 20 MB/s.
Such lines are alike: without its digits a line has a shape, a program has few of them, and the bytes of a block become
its set of shapes at hundreds of MB/s. So each shape is searched for those words once, and a block whose shapes are all
known is passed over without a look at its lines.

A shape is never passed over wrongly: words that have digits in them are searched for without these. What is left is
read as if nothing had been taken out.
"""

from __future__ import annotations

import enum
import functools
import re

from eagle3_remote.serverlog.lines import clean
from eagle3_remote.serverlog.words import BENIGN, COUNTS, STAGES, TROUBLES, any_of, has_any

_DIGITS = b"0123456789"
_WORDS = re.compile(any_of((*STAGES, *TROUBLES, *COUNTS)).encode().translate(None, _DIGITS))
_REMEMBERED = 400
"""Bytes of a shape whose verdict is kept, so that what is kept stays small."""
_PLAIN = re.compile(rb"[\t\x20-\x7e]*")
_MAY_NAME = re.compile(r"::\.?(?: [A-Z_]+)+\]|gpu(?:_id)?=\]|\d")
"""What is left of a record's prefix with a rank in it, see `lines.STAMP`; its digits may be others than ASCII's."""
_WRAPPED = re.compile(rb"::|\||gpu|\[")
"""What a stamp or a launcher's prefix has."""
_SAYS_SOMETHING = re.compile(rb"(?i:graph)|obj=|request\.|^INFO: |^[\w.]*\.\w*(?::|$)")
"""What may be the capture of graphs, a logged request, an answer to one, or an exception of an odd name."""
FRAMES = (b"  File ", b"    ")
_RANKS = re.compile(rb"\d\d:\d\d:\d\d(?:\.\d{3})?((?: [A-Z_]+\d+)+)\]|\[(gpu(?:_id)?=\d+)\]")


class Kind(enum.Enum):
    """What is known of a line from its shape."""

    LOOK = "it must be read"
    RANK = "it changes nothing if its rank is known and no traceback is open"
    NOTHING = "it changes nothing if no traceback is open"
    ALIKE = "and if one is: what it changes, the next of these does not change again"
    FRAME = "it changes nothing if it begins like a traceback's frame"


def idle(line: bytes, ranks: frozenset[str]) -> bool:
    """Whether a line changes nothing as long as no traceback is open; `False`: it may.

    Args:
        ranks: those known.
    """
    one = kind(line.translate(None, _DIGITS))
    return one is not Kind.LOOK and (one is not Kind.RANK or _named(line) <= ranks)


def sift(data: bytes, ranks: frozenset[str]) -> bytes:
    """The lines of `data` that must be read.

    As long as no traceback is open and `ranks` stay known, folding what is returned is folding `data`.

    Args:
        data: complete lines, each behind a newline; so is what is returned.
        ranks: those known.
    """
    shapes = data.translate(None, _DIGITS).split(b"\n")
    told = {shape: one for shape in set(shapes) if (one := kind(shape)) in (Kind.LOOK, Kind.RANK)}
    if not told:
        return b""
    return b"".join(
        [
            b"\n" + line
            for line, shape in zip(data.split(b"\n"), shapes)  # noqa: B905
            if shape in told and (told[shape] is Kind.LOOK or not _named(line) <= ranks)
        ]
    )


def condense(data: bytes) -> bytes:
    """The lines of `data` that must be read whatever is open; folding them is folding `data`."""
    shapes = data.translate(None, _DIGITS).split(b"\n")
    kinds = {shape: kind(shape) for shape in set(shapes)}
    kept, before = [], Kind.LOOK
    for line, shape in zip(data.split(b"\n"), shapes):  # noqa: B905
        now = kinds[shape]
        if not line or (now is Kind.FRAME and line.startswith(FRAMES)):
            continue
        if now is not Kind.ALIKE or before is not Kind.ALIKE:
            kept.append(b"\n" + line)
        before = now
    return b"".join(kept)


def kind(shape: bytes) -> Kind:
    """Of a line without its digits."""
    return _kept(shape) if len(shape) <= _REMEMBERED else _judged(shape)


def _judged(shape: bytes) -> Kind:
    if shape.startswith(b'{"log":') or _WORDS.search(shape) is not None:
        return Kind.LOOK
    if b"[" not in shape or _MAY_NAME.search(clean(shape)) is None:
        return _plain(shape)
    return Kind.RANK if _PLAIN.fullmatch(shape) is not None else Kind.LOOK


def _plain(shape: bytes) -> Kind:
    """Of one that has no word that matters and no rank: whether it matters to an open traceback."""
    if _PLAIN.fullmatch(shape) is None or _WRAPPED.search(shape) is not None:
        return Kind.NOTHING
    if shape.startswith(FRAMES):
        return Kind.FRAME
    alike = shape[:1].isalpha() and _SAYS_SOMETHING.search(shape) is None and not has_any(shape.decode(), BENIGN)
    return Kind.ALIKE if alike else Kind.NOTHING


_kept = functools.lru_cache(maxsize=1 << 13)(_judged)


def _named(line: bytes) -> set[str]:
    """The ranks that a line of `Kind.RANK` names, and perhaps what only looks like one."""
    return {(found[1] or found[2]).strip().decode() for found in _RANKS.finditer(line)}
