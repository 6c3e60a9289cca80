"""A server that is stopped on purpose under a running extraction. The server is the stand-in; the job is real."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from eagle3_remote.extract import control, leaving
from eagle3_remote.protocol import ExtractState, ExtractStatus
from tests.extract import jobs
from tests.extract.made import write_data
from tests.extract.standin import StandIn, standin
from tests.extract.test_faults import holds, spec_of

MANY = [[i % 900 + 1] * (8 + i % 40) for i in range(300)]


def is_held(now: ExtractStatus) -> bool:
    return now.state is ExtractState.PAUSED and now.in_flight == 0


def slow(ids: list[int], attempt: int) -> str:
    time.sleep(0.05)
    return "good"


def port_of(server: StandIn) -> int:
    return leaving.port_of(server.url)


def test_a_server_that_drains_gets_nothing_new_and_nothing_is_counted_as_failed(tmp_path: Path, python: Path) -> None:
    """It answers whatever comes for as long as it comes, as SGLang does after TERM. So often that losses would end the run."""
    data = tmp_path / "data.jsonl"
    write_data(data, MANY)
    with standin(tmp_path, slow) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=100))
        with jobs.running(python, run_dir, jobs.QUICK + ", server_losses=0") as process:
            jobs.wait_until(run_dir, lambda now: now.stored >= 10, process)
            for _ in range(2):
                leaving.mark(run_dir, port_of(server))
                now = jobs.wait_until(run_dir, lambda now: is_held(now) and now.stored == len(server.prompts), process)
                assert "the server is being stopped" in now.sentence
                assert now.held == "", "it goes on by itself"
                drained = now.stored  # all that was in flight
                assert drained < len(MANY)
                time.sleep(0.5)  # it is healthy all the time
                assert len(server.prompts) == drained
                server.down = True
                leaving.clear(run_dir)
                now = jobs.wait_until(run_dir, lambda now: "stopped on purpose" in now.sentence, process)
                assert now.state is ExtractState.PAUSED
                server.down = False
                jobs.wait_until(run_dir, lambda now, before=drained: now.stored > before, process)  # type: ignore[misc]
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
        assert sorted(server.prompts) == sorted(MANY), "each was sent once"
        holds(tmp_path / "out", MANY)


def test_what_is_in_flight_when_it_ends_is_sent_again_and_not_suspected(tmp_path: Path, python: Path) -> None:
    """A restart that cuts requests off, as often as it likes, is no sample's fault."""
    data = tmp_path / "data.jsonl"
    write_data(data, MANY[:40])
    cut = threading.Event()
    with standin(tmp_path) as server:
        stopped = threading.Event()

        def behave(ids: list[int], attempt: int) -> str:
            if cut.is_set():
                stopped.wait(60)
                return ("drop", "server-error", "refused")[ids[0] % 3]
            return slow(ids, attempt)

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=100))
        with jobs.running(python, run_dir) as process:
            jobs.wait_until(run_dir, lambda now: now.stored >= 5, process)
            for _ in range(3):
                stopped.clear()
                cut.set()
                before = len(server.prompts)
                jobs.wait_until(run_dir, lambda now, sent=before: len(server.prompts) > sent, process)  # type: ignore[misc]
                leaving.mark(run_dir, port_of(server))
                jobs.wait_until(run_dir, lambda now: "the server is being stopped" in now.sentence, process)
                server.down = True
                stopped.set()
                jobs.wait_until(run_dir, is_held, process)
                leaving.clear(run_dir)
                cut.clear()
                server.down = False
                jobs.wait_until(run_dir, lambda now: now.state is not ExtractState.PAUSED, process)
            assert process.wait(60) == 0, (run_dir / "out.log").read_text()
        assert jobs.status(run_dir).failed == 0
        holds(tmp_path / "out", MANY[:40])


def test_a_pause_by_a_person_outlives_the_restart(tmp_path: Path, python: Path) -> None:
    data = tmp_path / "data.jsonl"
    write_data(data, MANY)
    with standin(tmp_path, slow) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=100))
        with jobs.running(python, run_dir) as process:
            jobs.wait_until(run_dir, lambda now: now.stored >= 10, process)
            control.pause(str(run_dir))
            jobs.wait_until(run_dir, is_held, process)
            sent = len(server.prompts)
            leaving.mark(run_dir, port_of(server))
            time.sleep(0.5)
            leaving.clear(run_dir)
            log = run_dir / "out.log"
            jobs.wait_until(run_dir, lambda now: f"The server at {server.url} is back." in log.read_text(), process)
            time.sleep(0.5)
            now = jobs.status(run_dir)
            assert (now.state, now.held, len(server.prompts)) == (ExtractState.PAUSED, "request", sent)
            control.resume(str(run_dir))
            assert process.wait(60) == 0
        holds(tmp_path / "out", MANY)


def test_one_that_has_sent_everything_does_not_wait_for_a_server(tmp_path: Path, python: Path) -> None:
    data = tmp_path / "data.jsonl"
    write_data(data, MANY[:20])
    with standin(tmp_path) as server:
        last = threading.Event()

        def behave(ids: list[int], attempt: int) -> str:
            if len(server.prompts) == 20:
                last.wait(60)
            return "good"

        server.behave = behave
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path, tokens_in_flight=100))
        with jobs.running(python, run_dir) as process:
            jobs.wait_until(run_dir, lambda now: len(server.prompts) == 20, process)
            leaving.mark(run_dir, port_of(server))
            jobs.wait_until(run_dir, lambda now: "the server is being stopped" in now.sentence, process)
            last.set()
            assert process.wait(60) == 0
        holds(tmp_path / "out", MANY[:20])


def test_a_mark_of_another_server_or_one_left_behind_holds_nothing(tmp_path: Path, python: Path) -> None:
    data = tmp_path / "data.jsonl"
    write_data(data, MANY[:20])
    with standin(tmp_path) as server:
        run_dir = jobs.prepare(tmp_path / "run", spec_of(server, tmp_path))
        leaving.mark(run_dir, port_of(server) + 1)
        assert jobs.run(python, run_dir, tuning=jobs.QUICK) == 0
        holds(tmp_path / "out", MANY[:20])
    left = run_dir / leaving.LEAVING_FILE
    for text in ('{"port": 30000, "until": 1.0}', "", "{}", "[]"):
        left.write_text(text)
        assert leaving.leaving(str(run_dir)) is None
