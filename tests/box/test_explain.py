"""`explain` as a person and as a script meet it: saved logs on this machine, no box."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

LOGS = Path(__file__).parent / "logs"


def explain(*args: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "eagle3_console", "explain", *args],
        input=stdin,
        capture_output=True,
        env={**os.environ, **env},
        timeout=60,
        check=False,
    )


def test_one_object_a_file_in_the_order_given() -> None:
    names = [str(LOGS / name) for name in ("watchdog_new_wording.log", "raw_cr_only_bar_ge_0_5_10.log")]
    done = explain(*names, "--json")
    failed, loading = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert (done.returncode, done.stderr) == (0, b"")
    assert [failed["file"], loading["file"]] == names
    assert (failed["phase"], failed["ready"], failed["ranks"], failed["shards"]) == ("failed", False, ["TP2"], None)
    assert {key: failed["failure"][key] for key in ("kind", "root_cause", "rank", "certain")} == {
        "kind": "watchdog_timeout",
        "root_cause": "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "rank": "TP2",
        "certain": True,
    }
    assert "--watchdog-timeout" in failed["failure"]["advice"]
    assert (loading["phase"], loading["failure"]) == ("load_weights", None)
    assert {key: loading["shards"][key] for key in ("done", "total", "rate", "unit")} == {
        "done": 57,
        "total": 64,
        "rate": 8.0,
        "unit": "it/s",
    }


def test_a_note_for_people_says_phase_rank_line_advice_and_how_sure() -> None:
    done = explain(str(LOGS / "exit_minus9_new_wording.log"))
    said = done.stdout.decode()
    for word in ("failed on rank 3: host_oom_kill", "exit code: -9", "dmesg", "Likely, not certain"):
        assert word in said
    loading = explain(str(LOGS / "old_prefix_real_nul_byte.log")).stdout.decode()
    assert "55 of 55 shards" in loading
    assert "TP4, TP6, TP7" in loading


def test_standard_input_and_any_locale() -> None:
    log = "[2026-08-12 09:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):\nValueError: né\n"
    done = explain("-", stdin=log.encode(), LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "né" in done.stdout.decode()


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_told() -> None:
    good = str(LOGS / "watchdog_new_wording.log")
    done = explain("/nowhere/x.log", good, str(LOGS), "--json")
    assert done.returncode == 2
    assert [json.loads(line)["file"] for line in done.stdout.splitlines()] == [good]
    assert b"/nowhere/x.log cannot be read: No such file or directory." in done.stderr
    assert b"Is a directory" in done.stderr


def test_a_name_that_looks_like_an_option() -> None:
    done = explain("--json", "--", "-strange.log")
    assert done.returncode == 2
    assert b"-strange.log cannot be read" in done.stderr


def test_what_lies_in_the_folder_one_is_in_does_not_matter(tmp_path: Path) -> None:
    for name in ("argparse.py", "json.py", "eagle3_remote.py"):
        (tmp_path / name).write_text("raise SystemExit('not ours')")
    line = [str(Path(sys.executable).parent / "eagle3-console"), "explain", str(LOGS / "watchdog_new_wording.log")]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_is_said_in_one_line() -> None:
    line = [sys.executable, "-m", "eagle3_console", "explain", str(LOGS / "watchdog_new_wording.log"), "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first log is told, the second does not come
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"eagle3-console: Interrupted.\n"
