"""What the panels say, as text."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from eagle3_console import units
from eagle3_console.alerts import Sample
from eagle3_console.events import (
    Connection,
    ConnectionChanged,
    Event,
    Narration,
    Planned,
    SnapshotArrived,
    StepChanged,
    WorkSeen,
)
from eagle3_console.headless import extract_line
from eagle3_console.keys import KEYS
from eagle3_console.state import initial, reduce
from eagle3_console.ui.draw import View, draw_checklist, draw_events, draw_header
from eagle3_console.ui.draw_box import draw_box
from eagle3_console.ui.draw_extraction import draw_extraction
from eagle3_console.ui.draw_server import draw_server
from eagle3_console.ui.glyphs import ASCII, UNICODE
from eagle3_console.ui.plot import Plotter, load_plotext, plot_lines, until_end
from eagle3_console.ui.possible import footer, label
from eagle3_console.ui.widgets.key_bar import chosen
from eagle3_remote.protocol import (
    ArrayStatus,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    ForeignServer,
    Phase,
    ServerMetrics,
    ServerStatus,
    Snapshot,
    TaskState,
    TaskStatus,
)
from tests.ui.scenes import (
    EXPORT,
    FAILED,
    FINISHED,
    LIVE,
    LOADING,
    NOW,
    READY,
    RUNNING,
    SCENES,
    arrived,
    gauges,
    snapshot,
)

BEFORE = "the one before: finished, 9,997 / 10,000, /data/hidden/kimi"
HOSTILE = "\x1b]0;owned\x07[bold]line\none\r\x00"


def view(*events: Event, width: int = 78, height: int = 20) -> View:
    state = initial(NOW, "box")
    for event in events:
        state = reduce(state, event)
    return View(state, NOW, UNICODE, width, height)


def text(draw: Callable[[View], list[Content]], *events: Event, width: int = 78, height: int = 20) -> str:
    return "\n".join(line.plain for line in draw(view(*events, width=width, height=height)))


def test_loading_shows_the_shard_bar_its_rate_and_its_end() -> None:
    shown = text(draw_server, arrived(LOADING))
    assert "LOADING WEIGHTS  for 4 m 12 s · up 4 m 27 s" in shown
    assert "31 / 64 shards  8.14s/it  ETA 04:28" in shown
    assert "✓ spawn 3 s" in shown
    assert "▶ weights 31/64 4 m 12 s" in shown
    assert "· kv cache" in shown
    assert "Loading safetensors checkpoint shards" in shown


def test_what_the_log_says_of_its_last_batch_is_not_shown_as_now_on_an_idle_server() -> None:
    idle = dataclasses.replace(READY, phase=Phase.READY)
    shown = text(draw_server, arrived(idle))
    assert "last prefill 20.4k tok/s" in shown
    assert "running" not in shown
    assert "queue" not in shown
    metered = dataclasses.replace(idle, metrics=ServerMetrics(running=0, queued=0))
    assert "decoding   0  queue   0" in text(draw_server, arrived(metered))
    busy = text(draw_server, arrived(dataclasses.replace(READY, phase=Phase.BUSY)))
    assert "decoding   8  queue  31  prefill 20.4k tok/s" in busy


@pytest.mark.parametrize("phase", Phase)
def test_a_time_beside_a_phase_is_its_own_or_says_that_it_is_not(phase: Phase) -> None:
    shown = text(draw_server, arrived(dataclasses.replace(READY, phase=phase)), width=100)
    spans = {span.phase: span.at for span in READY.log.spans}
    spans[Phase.BUSY] = spans[Phase.READY]
    began = spans.get(phase)
    own = re.findall(r"(?:for|serving) ([0-9hms ]+?) ·", shown.splitlines()[0])
    assert own == ([units.duration(2999.0 - began)] if began else [])
    assert ("up 49 m 59 s" in shown) is (phase not in (Phase.EXITED, Phase.FAILED))


def test_who_waits_for_a_start_is_told_what_the_last_one_took() -> None:
    assert "the last start took 9 m 12 s" in text(draw_server, arrived(dataclasses.replace(LOADING, last_start=552.0)))
    assert "last start" not in text(draw_server, arrived(LOADING))
    assert "last start" not in text(draw_server, arrived(dataclasses.replace(READY, last_start=552.0)))


def test_what_is_said_aside_is_in_the_events_alone() -> None:
    said = [LIVE, Narration("extraction under way", NOW - 2), Narration("watched: so", NOW - 1, aside=True)]
    assert draw_checklist(view(*said, width=160)).plain.endswith("extraction under way")
    assert "watched: so" in text(draw_events, *said)


@pytest.mark.parametrize(("held", "key"), [("request", True), ("failures", True), ("", False)])
def test_a_pause_that_a_person_ends_names_the_key_on_the_screen_and_the_command_without_one(
    held: str, key: bool
) -> None:
    paused = dataclasses.replace(RUNNING, state=ExtractState.PAUSED, sentence="Paused: so.", held=held)
    assert ("Paused: so. p lets it go on." in text(draw_extraction, arrived(READY, paused))) is key
    assert ("Paused: so. 'extract resume' lets it go on." in extract_line(paused)) is key


@pytest.mark.parametrize("width", range(40, 240, 7))
def test_the_footer_leaves_out_no_key_that_there_is_room_for(width: int) -> None:
    state = view(*SCENES["finished"]).state
    most = chosen(KEYS, state, False, 10_000)
    some = chosen(KEYS, state, False, width)
    taken = sum(len(f"{key.shown} {label(key, state)}  ") for key in some) - 1
    left_out = sorted((key for key in most if key not in some), key=lambda key: footer(key, state))
    assert taken <= width
    if left_out:
        needed = left_out[0]
        assert taken + len(f"{needed.shown} {label(needed, state)}  ") > width
        assert all(
            footer(key, state) <= footer(needed, state) or key.id in ("help", "palette", "detach") for key in some
        )


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_is_in_the_footer_once_there_is_a_dataset(width: int) -> None:
    state = view(LIVE, arrived(READY, FINISHED)).state
    assert "report" in [key.id for key in chosen(KEYS, state, False, width)]


def test_ready_shows_every_phase_with_its_time() -> None:
    shown = text(draw_server, arrived(READY), width=100)
    assert "✓ weights 64/64 8 m 41 s" in shown
    assert "✓ warm-up 5 s" in shown
    assert "patch ✓ 8/8 ranks   boundaries 2,30,58 of 61   final pre-norm" in shown
    assert "radix cache off" in shown


@pytest.mark.parametrize("height", [3, 7, 20])
def test_a_failure_shows_cause_and_advice_in_whatever_room(height: int) -> None:
    shown = text(draw_server, arrived(FAILED), height=height)
    lines = shown.splitlines()[:height]
    assert "FAILED" in lines[0]
    assert "cuda_oom: torch.OutOfMemoryError" in lines[1]
    assert any("--mem-fraction" in line or "→" in line for line in lines)


def test_no_server_says_how_to_start_one() -> None:
    assert "s starts the server" in text(draw_server, arrived(ServerStatus(Phase.NOT_RUNNING, "no server job here")))


def test_servers_of_others_are_told_where_none_of_ours_runs() -> None:
    theirs = ForeignServer(1, 2, "b", "ann", 3.0, "http://127.0.0.1:1", sentence="SGLang 0.5.9 of user ann (pid 4711).")
    there = Snapshot(NOW, gauges(), ServerStatus(Phase.NOT_RUNNING, "no server job here"), foreign=(theirs,))
    shown = text(draw_server, SnapshotArrived(there, NOW))
    assert "SGLang 0.5.9 of user ann (pid 4711)." in shown
    assert "server status HOST --all" in shown


def test_metrics_are_shown_where_they_are_and_nothing_where_not() -> None:
    metered = dataclasses.replace(
        READY, metrics=ServerMetrics(running=3, queued=7, gen_tps=63.6, token_usage=0.25, cache_hit_rate=0.5)
    )
    shown = text(draw_server, arrived(metered))
    assert "decoding   3  queue   7" in shown
    assert "decode  63.6 tok/s" in shown
    assert "kv  25 % used" in shown
    assert "cache hits" not in shown  # the cache is off
    assert "used" not in text(draw_server, arrived(READY))


@pytest.mark.parametrize("state", ExtractState)
def test_only_what_moves_has_a_rate_and_an_end(state: ExtractState) -> None:
    shown = text(draw_extraction, arrived(READY, dataclasses.replace(RUNNING, state=state, sentence="why")))
    moves = state in (ExtractState.PLANNING, ExtractState.RUNNING, ExtractState.FINISHING)
    assert ("samples/s now" in shown) is moves
    assert ("done 09:30" in shown) is moves
    assert "10.9" in shown


def test_extraction_names_both_units_and_both_times() -> None:
    shown = text(draw_extraction, arrived(READY, RUNNING))
    assert "370 GB (345 GiB) of 992 GB (924 GiB) written" in shown
    assert "done 09:30, in 1 h 30 m" in shown
    assert "11.8 samples/s now" in shown
    assert "in flight  38, 61,004 tokens" in shown


@pytest.mark.parametrize("name", ["hidden", "hidden2", "hidden-of-the-second-run-with-all-samples"])
@pytest.mark.parametrize("state", [ExtractState.RUNNING, ExtractState.FINISHED, ExtractState.STOPPED])
@pytest.mark.parametrize(("width", "height"), [(56, 12), (78, 4), (30, 12), (50, 12), (120, 20)])
def test_the_dataset_that_is_shown_is_told_by_its_own_name(
    name: str, state: ExtractState, width: int, height: int
) -> None:
    spec = ExtractSpec(data="/mnt/share/projects/long/data.jsonl", out=f"/mnt/share/projects/eagle/data/{name}")
    shown = text(
        draw_extraction,
        arrived(READY, dataclasses.replace(RUNNING, state=state, spec=spec)),
        width=width,
        height=height,
    )
    assert shown.splitlines()[-1].endswith(name[-10:])
    assert len(shown.splitlines()[-1]) <= width


def test_while_it_plans_to_go_on_what_is_stored_is_still_shown() -> None:
    stopped = dataclasses.replace(RUNNING, state=ExtractState.STOPPED)
    again = dataclasses.replace(RUNNING.job, id="extract-again") if RUNNING.job is not None else None
    plans = ExtractStatus(ExtractState.PLANNING, "Reading the input.", again, RUNNING.spec)
    elsewhere = dataclasses.replace(plans, spec=ExtractSpec(data="/d", out="/data/other"))
    first = arrived(READY, stopped)
    for later in ([arrived(READY, plans)], [arrived(READY, plans), arrived(READY, plans)]):
        shown = text(draw_extraction, first, *later)
        assert "3,731 / 10,000   37 %  PLANNING" in shown
        assert "370 GB (345 GiB) of 992 GB (924 GiB) written" in shown
    for events in ((arrived(READY, plans),), (first, arrived(READY, elsewhere)), (first, arrived(READY, None))):
        assert "3,731" not in text(draw_extraction, *events)
    counted = dataclasses.replace(plans, total=12, stored=7)
    assert "7 / 12" in text(draw_extraction, first, arrived(READY, plans), arrived(READY, counted))


def test_no_forecast_before_it_is_worth_one() -> None:
    assert "ETA - (measuring)" in text(draw_extraction, arrived(READY, dataclasses.replace(RUNNING, eta=None)))


def test_a_finished_extraction_has_no_rate_of_now() -> None:
    shown = text(draw_extraction, arrived(READY, FINISHED))
    assert "FINISHED" in shown
    assert "now" not in shown
    assert "took 15 m 17 s" in shown


def test_a_failed_extraction_says_why() -> None:
    broken = dataclasses.replace(RUNNING, state=ExtractState.FAILED, sentence="no space left in /data/hidden")
    assert "no space left in /data/hidden" in text(draw_extraction, arrived(READY, broken), height=4)


def test_disks_come_first_and_hidden_gpus_are_counted() -> None:
    lines = text(draw_box, arrived(READY, RUNNING), width=50, height=6).splitlines()
    assert lines[0].startswith("output ")
    assert "1.70 TB free" in lines[0]
    assert lines[1].startswith("dump ")
    assert lines[-1] == "6 more GPUs: 3, then z"
    assert len(lines) == 6


def test_a_box_without_gpus_has_no_gpu_rows() -> None:
    event = dataclasses.replace(arrived(READY), snapshot=snapshot(READY, box=gauges(gpus=0)))
    assert "GPU" not in text(draw_box, event)


def test_the_header_keeps_the_clock_and_drops_the_rest() -> None:
    for width in range(24, 130):
        line = draw_header(view(*SCENES["extracting"], width=width), "root@gpu-box", False, 0, "a")
        assert line.cell_length <= width
        assert line.plain.rstrip().endswith("08:00:00")


@given(st.integers(10, 200), st.integers(1, 40), st.sampled_from(sorted(SCENES)))
def test_no_width_or_height_breaks_a_panel(width: int, height: int, scene: str) -> None:
    for draw in (draw_server, draw_extraction, draw_box, draw_events):
        assert text(draw, *SCENES[scene], width=width, height=height)


def test_text_of_others_cannot_break_a_line_or_reach_the_terminal() -> None:
    log = dataclasses.replace(FAILED.log, root_cause=HOSTILE, advice=HOSTILE, last_line=HOSTILE)
    hostile = dataclasses.replace(FAILED, log=log, sentence=HOSTILE)
    lines = [*draw_server(view(arrived(hostile))), *draw_events(view(arrived(hostile)))]
    for line in lines:
        assert "\x1b" not in line.plain
        assert "\n" not in line.plain
    assert "[bold]line" in "".join(line.plain for line in lines)


def test_a_failed_step_says_failed_in_words() -> None:
    assert "✗ server failed" in draw_checklist(view(LIVE, arrived(FAILED))).plain


def samples(count: int) -> list[Sample]:
    return [Sample(NOW + 2.0 * i, 10.0 + i % 5, 1e9, 0.1) for i in range(count)]


def test_the_plot_fits_its_room() -> None:
    for height in (7, 12, 20):
        lines = [line.plain for line in plot_lines(samples(900), 70, height, UNICODE)]
        assert lines[0] == "samples/s"
        assert len(lines) <= height
        assert max(map(len, lines)) <= 70
        assert "now" in lines[-1]
        assert any(0x2800 < ord(letter) < 0x2900 for line in lines for letter in line)


def test_the_plot_of_a_run_that_is_over_ends_where_it_ran_last() -> None:
    ran = [dataclasses.replace(sample, running=True) for sample in samples(30)]
    idle = [Sample(NOW + 60.0 + 2.0 * i, 0.0, 0.0, 0.1) for i in range(300)]
    assert until_end([*ran, *idle]) == ran
    assert until_end(idle) == []
    plotter = Plotter(UNICODE)
    assert "now" in plotter.lines(ran, 70, 12)[-1].plain
    assert "end" in plotter.lines(ran, 70, 12, over=True)[-1].plain


def test_without_plotext_there_are_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    load_plotext.cache_clear()
    try:
        lines = [line.plain for line in plot_lines(samples(30), 70, 8, UNICODE)]
    finally:
        load_plotext.cache_clear()
    assert "█" in lines[-1]
    assert lines[1].split()[0] == "15"


def test_a_plot_in_ascii_is_ascii() -> None:
    assert all(line.plain.isascii() for line in plot_lines(samples(30), 70, 12, ASCII))


def test_a_plot_is_kept_until_there_is_something_new() -> None:
    plotter, history = Plotter(UNICODE), samples(30)
    first = plotter.lines(history, 60, 10)
    assert plotter.lines(history, 60, 10) is first
    assert plotter.lines(history, 50, 10) is not first


def test_state_and_alerts_need_no_terminal_library() -> None:
    program = (
        "import sys, eagle3_console.state, eagle3_console.alerts, eagle3_console.units; "
        "print([name for name in ('textual', 'rich', 'plotext', 'asyncssh') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_plotext_is_not_loaded_before_the_first_plot() -> None:
    program = "import sys, eagle3_console.ui.app; print('plotext' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_tasks_of_an_array_are_listed_as_the_box_sends_them() -> None:
    tasks = (
        TaskStatus(2, TaskState.LOST, "It ended without finishing: Slurm calls it NODE_FAIL.", "n3"),
        TaskStatus(1, TaskState.EXTRACTING, "Extracting.", "n2", extract=RUNNING),
        TaskStatus(0, TaskState.FINISHED, "Finished: all 5 samples are stored.", "n1", extract=FINISHED),
    )
    array = ArrayStatus("77", "/f", "/out", "Array 77 of 3 tasks: 1 run, 1 finished, 1 ended early.", RUNNING, tasks)
    event = arrived(READY, RUNNING)
    event = dataclasses.replace(event, snapshot=dataclasses.replace(event.snapshot, array=array))
    shown = text(draw_extraction, event, height=12)
    assert "Array 77 of 3 tasks" in shown
    assert shown.index("task 2 lost") < shown.index("task 1 extracting n2") < shown.index("task 0 finished")


@pytest.mark.parametrize("extract", [None, RUNNING, FINISHED])
def test_an_export_that_runs_is_seen_with_its_progress(extract: ExtractStatus | None) -> None:
    now = view(LIVE, arrived(READY, extract), WorkSeen((EXPORT,), NOW))
    lines = [line.plain for line in draw_extraction(now)]
    assert "▶ export    412 / 1,200 files   34 %  120 GB of 350 GB  ETA 1 m 35 s" in lines
    assert "▶ export 34 %" in draw_checklist(now).plain


def test_the_header_counts_down_to_the_next_try() -> None:
    waiting = Connection("waiting", "link lost; trying again at 14:03:31 (try 4)", NOW, next_try=NOW + 7.2)
    line = draw_header(view(ConnectionChanged(waiting)), "root@gpu-box", False, 0, "a").plain
    assert "waiting 8 s" in line
    over = draw_header(
        view(ConnectionChanged(dataclasses.replace(waiting, next_try=NOW - 1))), "root@gpu-box", False, 0, "a"
    ).plain
    assert "waiting  " in over


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (StepChanged("extract", "todo"), "begins when the server is ready and the probe is good"),
        (StepChanged("extract", "running", "starting"), "the extraction starts"),
    ],
)
def test_a_second_run_does_not_show_the_end_of_the_first_as_its_own(step: StepChanged, words: str) -> None:
    events = (LIVE, arrived(READY, FINISHED), Planned(("to /data/hidden/next",)), step)
    lines = [str(line) for line in draw_extraction(view(*events))]
    assert lines == [words, "to /data/hidden/next", BEFORE]
    ended = [str(line) for line in draw_extraction(view(*events[:-1]))]
    assert "FINISHED" in ended[0]
