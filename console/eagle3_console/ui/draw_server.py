"""Panel 1: where the server is, how long each phase took, and what stands in the way. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from eagle3_console import units
from eagle3_console.alerts import SERVING
from eagle3_console.ui.draw import MUTED, View, flow, patch_words, words, wrap
from eagle3_remote.protocol import STARTING, Phase, ServerMetrics, ServerStatus, Snapshot

PHASE_NAMES = {
    Phase.SPAWNING: "spawn",
    Phase.INITIALISING: "init",
    Phase.DOWNLOADING: "download",
    Phase.LOADING_WEIGHTS: "weights",
    Phase.FINISHING_WEIGHTS: "finish weights",
    Phase.ALLOCATING_KV_CACHE: "kv cache",
    Phase.WARMING_KERNELS: "kernels",
    Phase.CAPTURING: "capture",
    Phase.HTTP_UP: "http",
    Phase.WARMING_UP: "warm-up",
}
_ALWAYS = (
    Phase.SPAWNING,
    Phase.INITIALISING,
    Phase.LOADING_WEIGHTS,
    Phase.ALLOCATING_KV_CACHE,
    Phase.HTTP_UP,
    Phase.WARMING_UP,
)
"""Phases of every start; the others are shown once they were seen."""


def draw_server(view: View) -> list[Content]:
    """The phase first, then what matters in it: bar and phases while it starts, load when it serves, cause when it failed."""
    snapshot = view.state.snapshot
    if snapshot is None:
        return [words(("waiting for the box", MUTED))]
    server = snapshot.server
    head = _head(server, view)
    if server.phase is Phase.FAILED:
        return [*head, *_failure(server, view, view.height - len(head))]
    if server.phase in STARTING:
        bar = [_shards(server, view)] if server.log.shards_total else []
        phases = flow(_phases(server, view), view.width)
        last = wrap(server.log.last_line, view.width, MUTED) if server.log.last_line else []
        room = view.height - len(head) - len(bar)
        if room <= len(phases):
            phases = phases[: max(0, room - 1)]
        return [*head, *bar, *phases, *last[: max(0, room - len(phases))]]
    if server.phase in SERVING:
        load = flow(_load(server, view), view.width, gap="  ")
        phases = flow(_phases(server, view), view.width)
        lines = [*head, *load, *flow(_setup(server, view), view.width)]
        if len(lines) + len(phases) <= view.height:
            lines[len(head) : len(head)] = phases
        return lines
    if server.job is None:
        lines = [
            *head,
            *wrap(server.sentence, view.width),
            words((f"{view.state.keys['server.start']} starts the server", MUTED)),
        ]
        return [*lines, *_others(snapshot, view)]
    return [*head, *wrap(server.sentence, view.width), *_others(snapshot, view)]


def _others(snapshot: Snapshot, view: View) -> list[Content]:
    """Servers that somebody else started, and where more is said of them."""
    lines = [line for one in snapshot.foreign for line in wrap(one.sentence, view.width, indent="  ")]
    if lines:
        lines += wrap("more, and how to extract through it: eagle3-console server status HOST --all", view.width, MUTED)
    return lines


def _head(server: ServerStatus, view: View) -> list[Content]:
    style = {
        Phase.FAILED: "$text-error",
        Phase.UNRESPONSIVE: "$text-error",
        Phase.STUCK: "$text-error",
        Phase.NOT_RUNNING: MUTED,
    }.get(server.phase, "$text-success" if server.phase in SERVING else "$text-accent")
    parts: list[str] = []
    if server.uptime is not None and server.phase not in (Phase.EXITED, Phase.FAILED):
        parts += _times(server, server.uptime)
    if server.job is not None and server.job.pid is not None:
        parts.append(f"pid {server.job.pid}")
    if server.job is not None and server.job.rc is not None:
        parts.append(f"exit code {server.job.rc}")
    if server.spec is not None:
        parts.append(f":{server.spec.port}")
        parts.append(f"tp {server.spec.tp}")
        parts.append(f"radix cache {'ON' if server.spec.radix_cache else 'off'}")
    name = words((server.phase.value.replace("-", " ").upper(), f"bold {style}"))
    lines = flow((words(part) for part in parts), view.width - name.cell_length - 2, f" {view.glyphs.dot} ")
    if not lines:
        return [name]
    return [name + "  " + lines[0], *(Content(" " * (name.cell_length + 2)) + line for line in lines[1:])]


def _times(server: ServerStatus, uptime: float) -> list[str]:
    """How long it is in its phase where the log says when that began, how long it is up, and what is usual for a start."""
    now = Phase.READY if server.phase in SERVING else server.phase
    began = next((span.at for span in server.log.spans if span.phase is now), None)
    own = []
    if began is not None and began > 0:
        own = [f"{'serving' if now is Phase.READY else 'for'} {units.duration(uptime - began)}"]
    usual = []
    if server.phase in STARTING and server.last_start is not None:
        usual = [f"the last start took {units.duration(server.last_start)}"]
    return [*own, f"up {units.duration(uptime)}", *usual]


def _shards(server: ServerStatus, view: View) -> Content:
    log = server.log
    done, total = log.shards_done or 0, log.shards_total or 0
    rest = f" {units.n_of(done, total)} shards  {log.shard_rate or '-'}  ETA {log.shard_eta or '-'}"
    filled, empty = view.glyphs.bar(done / total if total else 0.0, max(8, min(60, view.width - len(rest))))
    return words((filled, "$accent"), (empty, MUTED), rest)


def _phases(server: ServerStatus, view: View) -> Iterator[Content]:
    begun = {span.phase for span in server.log.spans}
    took = _took(server)
    order = [phase for phase in PHASE_NAMES if phase in begun or phase in _ALWAYS]
    for phase in order:
        name = PHASE_NAMES[phase]
        if phase is Phase.LOADING_WEIGHTS and server.log.shards_total and phase in begun:
            name += f" {server.log.shards_done or 0}/{server.log.shards_total}"
        seconds = f" {units.duration(took[phase])}" if phase in took else ""
        if phase is server.phase:
            yield words((f"{view.glyphs.running} {name}{seconds}", "bold $text-accent"))
        elif phase in begun or server.phase in SERVING:
            yield words((f"{view.glyphs.done} {name}{seconds}", "$text-success"))
        else:
            yield words((f"{view.glyphs.todo} {name}", MUTED))


def _took(server: ServerStatus) -> dict[Phase, float]:
    """Seconds each phase took; the one under way counts up to now."""
    spans = server.log.spans
    took: dict[Phase, float] = {}
    for index, span in enumerate(spans):
        last = server.uptime if span.phase is server.phase else None
        end = spans[index + 1].at if index + 1 < len(spans) else last
        if span.at is not None and end is not None:
            took[span.phase] = end - span.at
    return took


def _load(server: ServerStatus, view: View) -> Iterator[Content]:
    log = server.log
    metrics = server.metrics or ServerMetrics()
    at_work = server.phase is Phase.BUSY
    # What the log says is of its last batch: of a server that does nothing it is not so any more.
    running = log.running_requests if metrics.running is None and at_work else metrics.running
    queued = log.queued_requests if metrics.queued is None and at_work else metrics.queued
    if running is not None:
        yield words(f"decoding {running:>3}")
    if queued is not None:
        yield words(f"queue {queued:>3}")
    if log.prefill_tps is not None:
        prefill = f"prefill {units.rate(log.prefill_tps).strip()} tok/s"
        yield words(f"prefill {units.rate(log.prefill_tps)} tok/s") if at_work else words((f"last {prefill}", MUTED))
    yield from _metrics(server)
    health = "no answer yet" if server.health_ms is None else f"{server.health_ms:.0f} ms"
    yield words(f"health {health}")
    if log.cached_tokens:
        yield words((f"{view.glyphs.failed} cached {units.number(log.cached_tokens)} tokens", "bold $text-error"))
    else:
        yield words("cached tokens 0")


def _metrics(server: ServerStatus) -> Iterator[Content]:
    metrics = server.metrics
    if metrics is None:
        return
    if metrics.gen_tps:
        yield words(f"decode {units.rate(metrics.gen_tps)} tok/s")
    if metrics.token_usage is not None:
        yield words(f"kv {units.percent(metrics.token_usage, 1.0)} used")
    if metrics.cache_hit_rate is not None and server.spec is not None and server.spec.radix_cache:
        yield words(f"cache hits {units.percent(metrics.cache_hit_rate, 1.0)}")


def _setup(server: ServerStatus, view: View) -> Iterator[Content]:
    yield patch_words(view)
    marker = next(iter(server.log.markers), None)
    if marker is not None:
        yield words(f"boundaries {','.join(map(str, marker.boundaries))} of {marker.num_layers}")
        yield words(f"final {marker.final}-norm")
    if server.log.max_total_tokens:
        yield words(f"kv {units.number(server.log.max_total_tokens)} tokens")
    if server.log.chunked_prefill_size:
        yield words(f"chunk {units.number(server.log.chunked_prefill_size)}")


def _failure(server: ServerStatus, view: View, height: int) -> list[Content]:
    log = server.log
    cause = log.root_cause or log.refused or server.sentence
    name = f"{log.failure}: " if log.failure else ""
    reason = wrap(f"{view.glyphs.failed} {name}{cause}", view.width, "bold $text-error", indent="  ")
    advice = wrap(f"{view.glyphs.arrow} {log.advice}", view.width, "bold", indent="  ") if log.advice else []
    room = max(1, height - len(advice))
    rest = wrap(server.sentence, view.width, MUTED) if server.sentence not in (cause, "") else []
    return [*reason[:room], *advice, *rest]
