"""A person steers a running extraction, and servers of many kinds stand behind it. The servers are the stand-in; the job is real."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from eagle3_remote.extract import control
from eagle3_remote.protocol import ExtractServer, ExtractState
from tests.extract import jobs
from tests.extract.made import states_bytes, write_data
from tests.extract.standin import standin
from tests.extract.test_faults import IDS, holds, spec_of

MANY = [[i % 900 + 1] * (8 + i % 40) for i in range(300)]


def test_paused_resumed_and_another_budget_while_it_runs(tmp_path: Path, python: Path) -> None:
    data = tmp_path / "data.jsonl"
    write_data(data, MANY)

    def slow(ids: list[int], attempt: int) -> str:
        time.sleep(0.05)
        return "good"

    with standin(tmp_path, slow) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=100))
        with jobs.running(python, run_dir) as process:
            jobs.wait_until(run_dir, lambda now: now.stored >= 10, process)
            control.pause(str(run_dir))
            paused = jobs.wait_until(
                run_dir, lambda now: now.state is ExtractState.PAUSED and now.in_flight == 0, process
            )
            assert (paused.held, paused.eta) == ("request", None)
            time.sleep(0.5)
            assert len(server.prompts) == jobs.wait_until(run_dir, lambda now: True, process).stored < len(MANY)
            control.budget(str(run_dir), 1000)
            control.resume(str(run_dir))
            jobs.wait_until(run_dir, lambda now: now.tokens_in_flight > 500, process)
            assert process.wait(60) == 0
        assert "From now on 1000 tokens may be in flight" in (run_dir / "out.log").read_text()
        holds(tmp_path / "out", MANY)


def test_three_failures_of_one_kind_pause_until_a_person_says_go_on(tmp_path: Path, python: Path) -> None:
    broken = threading.Event()
    broken.set()
    with standin(tmp_path, lambda ids, attempt: "non-finite" if broken.is_set() else "good") as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=1, on_trouble="pause"))
        with jobs.running(python, run_dir) as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert "samples in a row failed in one way (non-finite)" in now.sentence
            assert "dtype or quantisation" in now.sentence
            assert now.held == "failures"
            broken.clear()
            control.resume(str(run_dir))
            assert process.wait(60) == 0
        holds(tmp_path / "out", IDS)


def test_a_sample_that_the_server_dies_of_twice_is_left_out(tmp_path: Path, python: Path) -> None:
    """Its neighbours in flight are tried alone, come through, and are not suspected any more."""
    with standin(tmp_path) as server:

        def behave(ids: list[int], attempt: int) -> str:
            if ids[0] == 6:
                server.down = True
                threading.Timer(1.0, setattr, (server, "down", False)).start()
                return "drop"
            if server.down:
                return "drop"
            time.sleep(0.1)
            return "good"

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 7
        report = jobs.report(python, run_dir)
        assert [(one.where, one.kind) for one in report.problems] == [("line 6", "failed: kills-server")]
        assert "with nothing else in flight" in report.problems[0].reason
        assert server.prompts.count(IDS[5]) == 2
        holds(tmp_path / "out", [ids for ids in IDS if ids[0] != 6])


def test_a_server_that_hangs_is_noticed_and_what_it_had_is_sent_again(tmp_path: Path, python: Path) -> None:
    """It takes requests and answers neither them nor /health; then it is started again."""
    with standin(tmp_path) as server:
        hung = threading.Event()

        def behave(ids: list[int], attempt: int) -> str:
            if ids[0] == 9 and attempt == 1:
                hung.set()
            return "timeout" if hung.is_set() else "good"

        server.behave = behave
        answer = server.get
        server.get = lambda path: (503, {}) if hung.is_set() and path == "/health" else answer(path)  # type: ignore[method-assign]
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=30))
        with jobs.running(python, run_dir, jobs.QUICK + ", min_timeout=10.0") as process:
            now = jobs.wait_until(run_dir, lambda now: now.state is ExtractState.PAUSED, process)
            assert "has not answered anything for" in now.sentence
            hung.clear()
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
            server.release.set()
        holds(tmp_path / "out", IDS)


@pytest.mark.parametrize("one_dies", [False, True])
def test_two_servers_behind_one_extraction(one_dies: bool, tmp_path: Path, python: Path) -> None:
    """Each gets its share; where one goes away the other does the rest, and nothing is lost or done twice."""
    data = tmp_path / "data.jsonl"
    write_data(data, MANY)
    with standin(tmp_path / "one") as first, standin(tmp_path / "two") as second:
        (second.model / "config.json").write_text((first.model / "config.json").read_text())
        second.model = first.model  # both serve one model

        def dying(ids: list[int], attempt: int) -> str:
            second.down = second.down or (one_dies and len(second.prompts) > 40)
            time.sleep(0.02)
            return "drop" if second.down else "good"

        first.behave, second.behave = (lambda ids, attempt: time.sleep(0.02) or "good"), dying  # type: ignore[func-returns-value]
        more = (ExtractServer(second.url, str(second.dump_dir)),)
        run_dir = jobs.prepare(tmp_path / "run", spec_of(first, tmp_path, servers=more, tokens_in_flight=200))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0, (run_dir / "out.log").read_text()
        holds(tmp_path / "out", MANY)
        assert min(len(first.prompts), len(second.prompts)) > 40
        if not one_dies:
            assert sorted(first.prompts + second.prompts) == sorted(MANY)
        assert list(first.dump_dir.iterdir()) == list(second.dump_dir.iterdir()) == []


def test_rows_of_another_size_than_the_run_s_own_are_not_stored(tmp_path: Path, python: Path) -> None:
    """Partial sums, or a norm too often: nothing else about them is wrong."""
    data = tmp_path / "data.jsonl"
    ids = [[i % 900 + 1] * 20 for i in range(40)]
    write_data(data, ids)
    with standin(tmp_path) as server:
        server.fill = lambda sent, attempt: 0x4180 if sent[0] == 39 and attempt < 3 else 0x3F80  # 16.0 in place of 1.0
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=20))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        log = (run_dir / "out.log").read_text()
        assert "row 38), attempt 1: norms: layer 0 has rows of size 16, those of the other samples 1 " in log
        holds(tmp_path / "out", ids)


def test_dumps_on_the_output_s_own_file_system_are_only_renamed(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        inodes: set[int] = set()
        write = server.dumped

        def dumped(folder: Path) -> None:
            inodes.add((folder / "states.safetensors").stat().st_ino)
            write(folder)

        server.dumped = dumped
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path))
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        stored = list((tmp_path / "out/hidden_states").iterdir())
        assert {path.stat().st_ino for path in stored} == inodes
        assert sorted(path.read_bytes() for path in stored) == sorted(map(states_bytes, IDS))
