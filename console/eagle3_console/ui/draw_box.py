"""Panel 3: disks first, since they end runs; then memory, load and GPUs. Pure."""

from __future__ import annotations

from textual.content import Content

from eagle3_console import units
from eagle3_console.alerts import Pressure, pressure
from eagle3_console.ui.draw import LEVEL_STYLE, MUTED, View, first_that_fits, words
from eagle3_remote.protocol import Gauges, Gpu

_ORDER = ("output", "dump", "home")
_BAR_STYLE = {"info": "$accent", "warning": "$warning", "error": "$error"}
_GPU_BAR = 4
_GPU_CELLS = 34
"""Cells that a GPU takes with a bar of `_GPU_BAR`: ``GPU 0 ████   93 %  88/141 GiB 60 °C``."""
_GPU_CELLS_BRIEF = 26
"""And without one: ``GPU 0  93 %  88/141 GiB 60°``."""


def draw_box(view: View) -> list[Content]:
    """Gauges of the output disk and the dump directory always; the rest as the room allows, saying what is left out."""
    snapshot = view.state.snapshot
    if snapshot is None:
        return [words(("waiting for the box", MUTED))]
    gauges = snapshot.gauges
    judged = [pressure(mount, snapshot.extract, view.state.history) for mount in gauges.mounts]
    judged.sort(key=lambda item: _ORDER.index(item.mount.label) if item.mount.label in _ORDER else len(_ORDER))
    main = [item for item in judged if item.mount.label != "home"] or judged
    others = [item for item in judged if item not in main]
    lines = [_gauge(item, view) for item in main] + [_memory(gauges, view)]
    across = _per_line(len(gauges.gpus), view.width, view.height - len(lines))
    gpus = _gpus(gauges, view, across)
    if len(lines) + len(gpus) + len(others) <= view.height:
        lines += [_gauge(item, view) for item in others]
    room = view.height - len(lines)
    if 0 < room < len(gpus):
        hidden = len(gauges.gpus) - (room - 1) * across
        gpus = [*gpus[: room - 1], words((f"{hidden} more GPUs: 3, then z", MUTED))]
    return lines + gpus


def _gauge(item: Pressure, view: View) -> Content:
    filled, empty = view.glyphs.bar(item.used_fraction, _bar_width(view))
    bar = ((filled, _BAR_STYLE[item.level]), (empty, MUTED))
    verdict = (item.verdict, f"bold {LEVEL_STYLE[item.level]}".strip())
    line = words(f"{item.mount.label:<6} ", *bar, f" {units.percent(item.used_fraction, 1)} ", verdict, "  ")
    return line + first_that_fits(_free(item), view.width - line.cell_length)


def _free(item: Pressure) -> list[Content]:
    """What is left, in ever fewer words; how long it lasts goes last."""
    free = f"{units.gb(item.mount.free)} free"
    binary = f" ({units.gib(item.mount.free)})"
    full = f"  full in {units.duration(item.full_in)}" if item.full_in is not None else ""
    need = f"  run needs {units.gb(item.needed)}" if item.needed else ""
    path = f"  {item.mount.path}"
    return [
        words(free, (binary + full + need + path, MUTED)),
        words(free, (full + need + path, MUTED)),
        words(free, (full + need, MUTED)),
        words(free, (full, MUTED)),
        words(free),
    ]


def _bar_width(view: View) -> int:
    return max(6, min(24, view.width // 8))


def _memory(gauges: Gauges, view: View) -> Content:
    used = gauges.ram_total - gauges.ram_available
    share = units.percent(used, gauges.ram_total)
    load = f"load {gauges.load1:.1f} of {gauges.cpus} CPUs"
    filled, empty = view.glyphs.bar(used / gauges.ram_total if gauges.ram_total else 0.0, _bar_width(view))
    return words("RAM    ", (filled, "$accent"), (empty, MUTED), f" {share} of {units.gib(gauges.ram_total)}  {load}")


def _per_line(gpus: int, width: int, room: int) -> int:
    """Two where both fit with a bar, or where one a line would not fit below each other."""
    if width >= 2 * _GPU_CELLS + 3:
        return 2
    return 2 if gpus > room and width >= 2 * _GPU_CELLS_BRIEF + 2 else 1


def _gpus(gauges: Gauges, view: View, across: int) -> list[Content]:
    """One or two in a line, all of one width; two that have no room for a bar are figures alone."""
    spare = (view.width - 3 * (across - 1)) // across - _GPU_CELLS
    if spare < 0 and across > 1:
        cells, gap = [_gpu_brief(gpu, view) for gpu in gauges.gpus], "  "
    else:
        bar = max(_GPU_BAR, min(12, _GPU_BAR + spare))
        cells, gap = [_gpu(gpu, bar, view) for gpu in gauges.gpus], "   "
    return [Content(gap).join(cells[at : at + across]) for at in range(0, len(cells), across)]


def _gpu(gpu: Gpu, bar: int, view: View) -> Content:
    filled, empty = view.glyphs.bar(gpu.memory_used / gpu.memory_total if gpu.memory_total else 0.0, bar)
    heat = f" {gpu.temperature} {view.glyphs.celsius}" if gpu.temperature is not None else ""
    return words(f"GPU {gpu.index} ", (filled, "$accent"), (empty, MUTED), f" {_busy(gpu)} {_memory_of(gpu)}{heat}")


def _gpu_brief(gpu: Gpu, view: View) -> Content:
    heat = f" {gpu.temperature}{view.glyphs.celsius[0]}" if gpu.temperature is not None else ""
    return words(f"GPU {gpu.index} {_busy(gpu)} {_memory_of(gpu)}{heat}")


def _busy(gpu: Gpu) -> str:
    return f"{gpu.utilisation:>3} %" if gpu.utilisation is not None else "  - %"


def _memory_of(gpu: Gpu) -> str:
    return f"{gpu.memory_used / 2**30:>3.0f}/{gpu.memory_total / 2**30:.0f} GiB"
