"""Which lines of a log are wanted, and the command that prints, counts and saves them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_console.loglines import CauseFinder, Level, Lines, Sieve, own_level, rank_tag
from eagle3_remote.protocol import ServerSpec, encode

LOG = """\
[2026-01-02 03:04:05] server_args=ServerArgs(model_path='/m', tp_size=2)
[2026-01-02 03:04:06 TP0] Load weight begin. avail mem=79.1 GB
[2026-01-02 03:04:06 TP1] Load weight begin. avail mem=79.1 GB
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]\r\
Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  1.00s/it]
/venv/torch/x.py:12: UserWarning: deprecated
  warnings.warn("x")

eagle3-patch ready: {"tp_rank": 1, "tp_size": 2}
[2026-01-02 03:04:09 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/venv/sglang/srt/managers/scheduler.py", line 1, in run
    self.work()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.

[2026-01-02 03:04:10] Received sigquit from a child process. It usually means the child failed.
[1,0]<stdout>:[2026-01-02 03:04:11 DP0 TP0] WARNING: late
"""


def kept(rank: str = "", level: Level = Level.INFO, grep: str = "", log: str = LOG, single: bool = False) -> list[str]:
    lines, sieve = Lines(), Sieve(rank, level, re.compile(grep) if grep else None, single=single)
    found = [line for line in [*lines.feed(log.encode()), *lines.rest()] if sieve.wants(line)]
    assert sieve.kept == len(found)
    assert sieve.seen == log.count("\n")
    return found


def test_a_rank_takes_its_tracebacks_and_its_marker_with_it() -> None:
    found = kept("TP1")
    assert [line[:40] for line in found] == [
        "[2026-01-02 03:04:06 TP1] Load weight be",
        'eagle3-patch ready: {"tp_rank": 1, "tp_s',
        "[2026-01-02 03:04:09 TP1] Scheduler hit ",
        '  File "/venv/sglang/srt/managers/schedu',
        "    self.work()",
        "torch.OutOfMemoryError: CUDA out of memo",
        "",
    ]
    assert [line[-30:] for line in kept("TP0")] == [
        "weight begin. avail mem=79.1 GB"[-30:],
        " 03:04:11 DP0 TP0] WARNING: late"[-30:],
    ]
    assert len(kept("DP0")) == 1


def test_untagged_lines_are_rank_0_where_there_is_one_rank() -> None:
    log = "[2026-01-02 03:04:05] one\n[2026-01-02 03:04:06] two\n"
    assert kept("TP0", log=log) == []
    assert len(kept("TP0", log=log, single=True)) == 2
    assert kept("TP1", log=log, single=True) == []


def test_a_level_takes_all_of_a_traceback_and_what_is_graver() -> None:
    errors = kept(level=Level.ERROR)
    assert errors[0].startswith("[2026-01-02 03:04:09 TP1] Scheduler hit")
    assert errors[3].startswith("torch.OutOfMemoryError")
    assert len(errors) == 5
    warnings = kept(level=Level.WARNING)
    assert [line for line in warnings if line not in errors] == [
        "/venv/torch/x.py:12: UserWarning: deprecated",
        '  warnings.warn("x")',
        "[1,0]<stdout>:[2026-01-02 03:04:11 DP0 TP0] WARNING: late",
    ]


def test_filters_add_up_and_a_bar_is_one_line() -> None:
    assert kept("TP1", Level.ERROR, "3.50") == [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB."
    ]
    assert kept(grep="Completed") == [
        "Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  1.00s/it]"
    ]


def test_cutting_the_bytes_anywhere_changes_nothing() -> None:
    data = (LOG + "ä\x1b[2J half").encode()
    whole = Lines()
    expected = [*whole.feed(data), *whole.rest()]
    for cut in range(len(data)):
        lines = Lines()
        assert [*lines.feed(data[:cut]), *lines.feed(data[cut:]), *lines.rest()] == expected
    assert "\x1b" not in "".join(expected)


@pytest.mark.parametrize(("text", "tag"), [("3", "TP3"), ("tp03", "TP3"), ("DP1", "DP1"), ("attn_cp0", "ATTN_CP0")])
def test_rank_tags(text: str, tag: str) -> None:
    assert rank_tag(text) == tag


@pytest.mark.parametrize("text", ["", "x", "-1", "TP", "3;4"])
def test_what_is_no_rank(text: str) -> None:
    with pytest.raises(ValueError, match="a rank is"):
        rank_tag(text)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("[2026-01-02 03:04:05] ERROR: x", Level.ERROR),
        ("ValueError: x", Level.ERROR),
        ("no errors were found, 0 warnings", Level.INFO),
        ("x FutureWarning: y", Level.WARNING),
        ('eagle3-patch refused: {"reason": "x"}', Level.ERROR),
    ],
)
def test_levels(line: str, level: Level) -> None:
    assert own_level(line) is level


def test_the_root_cause_is_found_with_what_is_around_it() -> None:
    finder = CauseFinder("torch.OutOfMemoryError: CUDA out of   memory.")
    finder.feed(LOG.split("\n"))
    assert finder.place == 12
    shown = list(finder.lines())
    assert [line for line in shown if line.startswith(">")] == [
        "> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB."
    ]
    assert len(shown) == 10 + 1 + 4
    absent = CauseFinder("nothing of the kind")
    absent.feed(LOG.split("\n"))
    assert (absent.place, list(absent.lines())) == (None, [])


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A box folder in which a server of two ranks has failed."""
    run = tmp_path / "box" / "runs" / "server-20260102T030405-0a1b"
    run.mkdir(parents=True)
    spec = {"id": run.name, "boot_id": "another", "created_at": 1.0, "argv": ["python"]}
    spec["message"] = encode(ServerSpec(model="/m", python="/p", tp=2))
    (run / "spec.json").write_text(json.dumps(spec))
    (run / "out.log").write_text(LOG)
    (run / "rc").write_text("1")
    return tmp_path / "box"


def log_of(box: Path, *words: str | Path) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "eagle3_console", "server", "log", "local", "--box-dir", str(box), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def test_the_command_filters_counts_and_saves(box: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.log"
    code, out, err = log_of(box, "--rank", "1", "--level", "error", "--save", saved)
    assert (code, out) == (0, "")
    assert "5 of 15 lines match" in err
    assert saved.read_text().splitlines()[3].startswith("torch.OutOfMemoryError")
    code, out, err = log_of(box, "--save", saved)
    assert (code, saved.read_text().count("\n")) == (2, 5)
    assert "exists here already" in err
    code, out, err = log_of(box, "--grep", "load weight", "-n", "1")
    assert (code, out) == (0, "[2026-01-02 03:04:06 TP1] Load weight begin. avail mem=79.1 GB\n")
    assert log_of(box, "--rank", "x")[0] == 2
    assert log_of(box, "--grep", "(")[0] == 2
    whole = tmp_path / "whole.log"
    assert log_of(box, "--save", whole, "--quiet")[::2] == (0, "")
    assert whole.read_bytes() == LOG.encode()


def test_the_command_goes_to_the_root_cause(box: Path) -> None:
    code, out, _ = log_of(box, "--root-cause")
    assert code == 0
    assert out.startswith("cuda_oom: ")
    assert "line 12 of " in out
    assert "\n> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.\n" in out
    code, out, _ = log_of(box, "--root-cause", "--json")
    assert json.loads(out)["text"].count("\n> ") == 1
