"""Panel 3: disks first, since they end runs; then memory, load and GPUs. Pure."""

from __future__ import annotations

from textual.content import Content

from eagle3_console import units
from eagle3_console.alerts import Pressure, pressure
from eagle3_console.ui.draw import LEVEL_STYLE, View, flow, words
from eagle3_remote.protocol import Gauges, Gpu

_ORDER = ("output", "dump", "home")


def draw_box(view: View) -> list[Content]:
    """Gauges of the output disk and the dump directory always; the rest as the room allows."""
    snapshot = view.state.snapshot
    if snapshot is None:
        return [words(("waiting for the box", "$text-muted"))]
    gauges = snapshot.gauges
    judged = [pressure(mount, snapshot.extract, view.state.history) for mount in gauges.mounts]
    judged.sort(key=lambda item: _ORDER.index(item.mount.label) if item.mount.label in _ORDER else len(_ORDER))
    main = [item for item in judged if item.mount.label != "home"] or judged
    others = [item for item in judged if item not in main]
    memory = _memory(gauges, view)
    gpus = flow([_gpu(gpu, view) for gpu in gauges.gpus], view.width)
    wide = view.width >= 76
    detailed = not wide and 2 * len(main) + 1 + len(gpus) <= view.height
    lines = []
    for item in main:
        lines.append(_gauge(item, view))
        if detailed:
            lines.append(words((f"       {_detail(item)}", "$text-muted")))
    lines += [memory, *gpus]
    if len(lines) < view.height:
        lines += [_gauge(item, view) for item in others]
    return lines


def _gauge(item: Pressure, view: View) -> Content:
    mount = item.mount
    share = f" {units.percent(item.used_fraction, 1)} "
    rest = f"  {units.gb(mount.free)} free ({units.gib(mount.free)})"
    detail = f"  {_detail(item)}" if view.width >= 76 else ""
    used = 7 + len(share) + len(item.verdict) + len(rest) + len(detail)
    filled, empty = view.glyphs.bar(item.used_fraction, max(6, min(24, view.width - used)))
    style = LEVEL_STYLE[item.level]
    bar_style = {"info": "$accent", "warning": "$warning", "error": "$error"}[item.level]
    bar = ((filled, bar_style), (empty, "$text-muted"))
    return words(f"{mount.label:<6} ", *bar, share, (item.verdict, f"bold {style}"), rest, (detail, "$text-muted"))


def _detail(item: Pressure) -> str:
    parts = [item.mount.path]
    if item.full_in is not None:
        parts.append(f"full in {units.duration(item.full_in)}")
    if item.needed:
        parts.append(f"run needs {units.gb(item.needed)}")
    return ", ".join(parts)


def _memory(gauges: Gauges, view: View) -> Content:
    used = gauges.ram_total - gauges.ram_available
    share = units.percent(used, gauges.ram_total)
    load = f"load {gauges.load1:.1f} of {gauges.cpus} CPUs"
    filled, empty = view.glyphs.bar(
        used / gauges.ram_total if gauges.ram_total else 0.0, max(6, min(24, view.width - 54))
    )
    return words(
        "RAM    ", (filled, "$accent"), (empty, "$text-muted"), f" {share} of {units.gib(gauges.ram_total)}  {load}"
    )


def _gpu(gpu: Gpu, view: View) -> Content:
    filled, empty = view.glyphs.bar(gpu.memory_used / gpu.memory_total if gpu.memory_total else 0.0, 8)
    busy = f"{gpu.utilisation:>3} %" if gpu.utilisation is not None else "  - %"
    heat = f" {gpu.temperature} {view.glyphs.celsius}" if gpu.temperature is not None else ""
    size = f"{gpu.memory_used / 2**30:.0f}/{gpu.memory_total / 2**30:.0f} GiB"
    return words(f"GPU {gpu.index} ", (filled, "$accent"), (empty, "$text-muted"), f" {busy} {size}{heat}")
