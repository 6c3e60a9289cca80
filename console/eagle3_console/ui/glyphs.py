"""The signs of the screen, and their stand-ins where the terminal speaks no UTF-8. A word stands beside every one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Glyphs:
    """One set of signs; one cell each but for arrow and degree."""

    done: str
    running: str
    todo: str
    failed: str
    warning: str
    info: str
    live: str
    lost: str
    dot: str
    arrow: str
    cut: str
    """Ends a line that was cut."""
    celsius: str
    bar_full: str
    bar_parts: str
    """Parts of a cell, smallest first; empty where there are none."""
    bar_empty: str
    spark: str
    """Heights of a column, lowest first."""

    def bar(self, fraction: float, width: int) -> tuple[str, str]:
        """The filled and the empty half of a bar; together `width` cells. Only a fraction of 1 fills it."""
        fraction = min(1.0, max(0.0, fraction))
        steps = len(self.bar_parts) + 1
        eighths = min(int(fraction * width * steps), width * steps - (fraction < 1.0))
        whole, part = divmod(eighths, steps)
        filled = self.bar_full * whole + (self.bar_parts[part - 1] if part else "")
        return filled, self.bar_empty * (width - len(filled))


UNICODE = Glyphs("✓", "▶", "·", "✗", "▲", "·", "●", "○", "·", "→", "…", "°C", "█", "▏▎▍▌▋▊▉", "·", "▁▂▃▄▅▆▇█")
ASCII = Glyphs("+", ">", ".", "x", "!", "-", "*", "o", "-", "->", "~", "C", "#", "", ".", "_.-=*#")


def ascii_only(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the locale says that the terminal is not for UTF-8.

    Python itself sets ``LC_CTYPE=C.UTF-8`` when it starts in the C locale (PEP 538), so that this value says nothing when
    ``LANG`` names the C locale. An environment without any of the three is a bare container, whose terminal is elsewhere.
    """
    lang = environ.get("LANG", "")
    ctype = environ.get("LC_CTYPE", "")
    if ctype == "C.UTF-8" and lang in ("C", "POSIX"):
        ctype = ""
    named = environ.get("LC_ALL") or ctype or lang
    return bool(named) and "utf8" not in named.lower().replace("-", "")
