"""How numbers are written: one width for one kind of number, so that nothing on the screen jumps, and every unit named.

GB is 10^9 bytes, GiB is 2^30 bytes; they differ by 7 %, which is what arguments about full disks are about.
"""

from __future__ import annotations

import math
import time

_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN = "-"
"""Stands for a number that is not known; never a zero."""


def _scaled(count: float, step: int, names: tuple[str, ...]) -> str:
    value, index = float(count), 0
    while abs(value) >= step and index < len(names) - 1:
        value /= step
        index += 1
    if index == 0:
        return f"{int(value)} {names[0]}"
    text = three_digits(value)
    if text == "1000" and step == 1000 and index < len(names) - 1:
        text, index = "1.00", index + 1
    return f"{text} {names[index]}"


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: ``0.42 9.87 98.7 987 1024``."""
    size = abs(value)
    if size < 9.995:
        return f"{value:.2f}"
    if size < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def gb(count: float) -> str:
    """Bytes in decimal units: ``971 GB``."""
    return _scaled(count, 1000, _DECIMAL)


def gib(count: float) -> str:
    """Bytes in binary units: ``904 GiB``."""
    return _scaled(count, 1024, _BINARY)


def gb_and_gib(count: float) -> str:
    """Both, as on every size that a disk is judged by: ``971 GB (904 GiB)``."""
    return f"{gb(count)} ({gib(count)})"


def number(count: int) -> str:
    """An integer with thousands marked: ``10,000``."""
    return f"{count:,}"


def n_of(done: int, total: int) -> str:
    """``3,731 / 10,000``, with `done` padded to the width of `total`."""
    goal = number(total)
    return f"{number(done):>{len(goal)}} / {goal}"


def percent(part: float, whole: float) -> str:
    """``37 %`` in three digits' width; rounded down, so that 100 % means all of it. ``  - %`` where nothing is to be done."""
    if whole <= 0:
        return f"{UNKNOWN:>3} %"
    return f"{math.floor(100 * part / whole):>3} %"


def rate(value: float) -> str:
    """A count per second, five cells wide up to 99,999: `` 11.8``, ``20.4k``."""
    text = three_digits(value) if value < 999.5 else f"{three_digits(value / 1000)}k"
    return f"{text:>5}"


def bytes_rate(value: float) -> str:
    """Bytes per second: ``1.13 GB/s``."""
    return f"{gb(value)}/s"


def duration(seconds: float | None) -> str:
    """``9 s``, ``9 m 12 s``, ``1 h 30 m``, ``3 d 4 h``; ``-`` where it is not known."""
    if seconds is None or math.isnan(seconds) or math.isinf(seconds):
        return UNKNOWN
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def clock(at: float | None) -> str:
    """Wall clock time of Unix seconds, here where the person sits: ``02:14:07``."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if at is not None else "--:--:--"


def clock_short(at: float | None, now: float) -> str:
    """``02:14``; with the date in front where it is another day than `now`: ``30 Nov 02:14``."""
    if at is None:
        return "--:--"
    then, today = time.localtime(at), time.localtime(now)
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if same_day else "%d %b %H:%M", then)
