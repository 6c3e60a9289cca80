"""The agent over real pipes: what it answers to right, wrong and broken lines, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import (
    E_METHOD,
    E_PARAMS,
    E_PARSE,
    E_REFUSED,
    E_REQUEST,
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    ExtractState,
    Hello,
    JobState,
    JobStatus,
    LogChunk,
    Phase,
    SmokeRate,
    Snapshot,
    StopReport,
    decode,
)
from tests.box.client import Answered, agent, until


def start(home: Path, release: Path, code: str, kind: str, message: dict[str, object]) -> jobs.Job:
    return jobs.start(home, release, jobs.new_id(kind), [sys.executable, "-u", "-c", code], {}, message)


def test_ready_comes_first_and_end_of_input_ends_it(release: Path, home: Path) -> None:
    with agent(release, home) as one:
        hello = one.ask(Hello, "hello", protocol=PROTOCOL_VERSION)
        assert json.loads(one.lines[0]) == {"jsonrpc": "2.0", "method": "ready"}
        assert (hello.protocol, hello.home, hello.pid) == (PROTOCOL_VERSION, str(home), one.process.pid)
        assert one.close() == 0
        assert not home.exists()  # looking leaves nothing behind
        assert one.stderr == b""


def test_another_protocol_is_refused_in_a_sentence(release: Path, home: Path) -> None:
    with agent(release, home) as one, pytest.raises(Answered, match=r"protocol 1, the console 99.*deploy") as error:
        one.call("hello", protocol=99)
    assert error.value.code == E_REFUSED


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", E_PARSE),
        (b"\xff\xfe\x00", E_PARSE),
        (b"[" * 100_000, E_PARSE),
        (b"[]", E_REQUEST),
        (b"7", E_REQUEST),
        (b'{"id": null, "method": 3}', E_REQUEST),
        (b'{"id": {}, "method": "hello"}', E_REQUEST),
        (b"x" * (MAX_LINE_BYTES + 1), E_REQUEST),
        (b"x" * (3 * MAX_LINE_BYTES), E_REQUEST),
    ],
    ids=["words", "bytes", "deep", "list", "number", "no method", "bad id", "one too long", "far too long"],
)
def test_broken_lines_are_answered_and_not_fatal(release: Path, home: Path, line: bytes, code: int) -> None:
    with agent(release, home) as one:
        one.write(line + b"\n")
        assert one.answer(None)["error"]["code"] == code
        assert one.call("jobs.list", kind=None) == []


def test_wrong_methods_and_params_are_answered(release: Path, home: Path) -> None:
    with agent(release, home) as one:
        for method, params, code in (
            ("no.such", {}, E_METHOD),
            ("hello", {}, E_PARAMS),
            ("hello", {"protocol": "1"}, E_PARAMS),
            ("server.start", {"model": "x"}, E_PARAMS),
            ("snapshot", {"paths": {"a": 3}}, E_PARAMS),
            ("log.read", {"job": "x", "inode": 0, "offset": 0, "limit": 1}, E_REFUSED),
            ("extract.stop", {"job": None}, E_REFUSED),
            ("report", {"job": None}, E_REFUSED),
            ("verify", {"dataset": "/no/such"}, E_REFUSED),
            ("server.probe", {"tokens": 19}, E_REFUSED),
        ):
            with pytest.raises(Answered) as error:
                one.call(method, **params)
            assert error.value.code == code, method
        one.write(b'{"jsonrpc": "2.0", "id": 77, "method": "hello", "params": [1]}\n')
        assert one.answer(77)["error"]["code"] == E_PARAMS
        one.write(b'{"jsonrpc": "2.0", "method": "no.answer.wanted"}\n')
        assert one.call("jobs.list", kind=None) == []


def test_an_empty_box(release: Path, home: Path, tmp_path: Path) -> None:
    with agent(release, home) as one:
        seen = one.ask(Snapshot, "snapshot", paths={"output": str(tmp_path / "not" / "there")})
    assert seen.server.phase is Phase.NOT_RUNNING
    assert seen.extract is None
    assert {mount.label for mount in seen.gauges.mounts} == {"output", "dump", "home"}
    assert all(mount.total > 0 for mount in seen.gauges.mounts)
    assert seen.gauges.ram_total > seen.gauges.ram_available > 0


def test_the_rate_of_the_last_forecast_is_told(release: Path, home: Path) -> None:
    with agent(release, home) as one:
        assert one.ask(SmokeRate, "extract.plan_kept", model="/m") == SmokeRate()
        home.mkdir(exist_ok=True)
        (home / "smoke.json").write_text('{"/m": {"samples": 32, "tokens_per_s": 100.0}}')
        assert one.ask(SmokeRate, "extract.plan_kept", model="/m") == SmokeRate(32, 100.0)


def test_a_slow_call_does_not_hold_up_the_others(release: Path, home: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: None); print('up', flush=True)\nwhile True: time.sleep(0.1)"
    job = start(home, release, code, "server", {"model": "m", "python": "p", "port": 1})
    until(lambda: job.log_path.read_bytes() == b"up\n")
    with agent(release, home) as one:
        stopping = one.send("server.stop", job=job.id)
        until(lambda: one.ask(Snapshot, "snapshot", paths={}).server.phase is Phase.STOPPING)
        chunk = one.ask(LogChunk, "log.read", job=job.id, inode=0, offset=0, limit=100)
        assert base64.b64decode(chunk.data) == b"up\n"
        until(lambda: job.leader is not None)
        leader = job.leader
        assert leader is not None
        os.kill(leader.pid, signal.SIGKILL)  # do not sit out the grace
        report = one.answer(stopping)["result"]
        assert report["stopped"]
        status = one.ask(Snapshot, "snapshot", paths={}).server
        assert (status.phase, status.sentence) == (Phase.EXITED, "The server was stopped.")


def test_a_killed_agent_touches_no_job(release: Path, home: Path) -> None:
    job = start(home, release, "import time; time.sleep(600)", "extract", {"data": "d", "out": "/o"})
    with agent(release, home) as one:
        assert one.ask(Snapshot, "snapshot", paths={}).extract is not None
        one.kill()
    with agent(release, home) as other:
        (seen,) = other.call("jobs.list", kind="extract")
        assert (seen["id"], seen["state"]) == (job.id, "running")
        assert other.ask(StopReport, "extract.stop", job=None).stopped
        (after,) = other.call("jobs.list", kind="extract")
        assert (after["state"], after["rc"]) == ("finished", -15)


def test_a_stop_that_has_begun_is_finished_without_the_console(release: Path, home: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(0)))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    job = start(home, release, code, "server", {"model": "m", "python": "p", "port": 1})
    until(lambda: job.log_path.read_bytes() == b"up\n")
    with agent(release, home) as one:
        one.send("server.stop", job=job.id)
        until(lambda: job.stop_requested)
        assert one.close() == 0
    assert jobs.state_of(job) is JobState.FINISHED
    assert stopping.members(job) == []


def test_log_is_read_by_inode_and_offset(release: Path, home: Path) -> None:
    job = start(home, release, "print('x' * 100_000)", "server", {"model": "m", "python": "p"})
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    with agent(release, home) as one:
        text, chunk = b"", one.ask(LogChunk, "log.read", job=job.id, inode=0, offset=0, limit=30_000)
        while chunk.data:
            assert chunk.offset == len(text)
            text += base64.b64decode(chunk.data)
            where = {"inode": chunk.inode, "offset": chunk.next_offset}
            chunk = one.ask(LogChunk, "log.read", job=job.id, limit=30_000, **where)
        assert text == b"x" * 100_000 + b"\n"
        assert (chunk.size, chunk.next_offset) == (len(text), len(text))
        tail = one.ask(LogChunk, "log.read", job=job.id, inode=0, offset=-5, limit=100)
        assert (base64.b64decode(tail.data), tail.offset) == (b"xxxx\n", len(text) - 5)
        job.log_path.write_bytes(b"short\n")
        shrunk = one.ask(LogChunk, "log.read", job=job.id, inode=chunk.inode, offset=chunk.next_offset, limit=100)
        assert (base64.b64decode(shrunk.data), shrunk.offset) == (b"short\n", 0)
        (home / "new").write_bytes(b"another\n")
        (home / "new").rename(job.log_path)
        replaced = one.ask(LogChunk, "log.read", job=job.id, inode=shrunk.inode, offset=3, limit=100)
        assert (base64.b64decode(replaced.data), replaced.offset) == (b"another\n", 0)
        job.log_path.unlink()
        gone = one.ask(LogChunk, "log.read", job=job.id, inode=0, offset=0, limit=1)
        assert (gone.data, gone.next_offset, gone.size) == ("", 0, 0)


def test_an_extraction_that_was_killed_is_not_running(release: Path, home: Path) -> None:
    job = start(home, release, "import time; time.sleep(600)", "extract", {"data": "d", "out": "/data/out"})
    progress = {
        "state": "running",
        "sentence": "at work",
        "total": 64,
        "stored": 12,
        "in_flight": 5,
        "samples_per_s": 3.5,
    }
    (job.run_dir / "progress.json").write_text(json.dumps(progress))
    with agent(release, home) as one:
        before = one.ask(Snapshot, "snapshot", paths={}).extract
        assert before is not None
        assert (before.state, before.stored, before.sentence) == (ExtractState.RUNNING, 12, "at work")
        leader = job.leader
        assert leader is not None
        os.kill(leader.pid, signal.SIGKILL)
        until(lambda: jobs.state_of(job) is JobState.FINISHED)
        after = one.ask(Snapshot, "snapshot", paths={}).extract
        assert after is not None
        assert (after.state, after.stored, after.in_flight, after.samples_per_s) == (ExtractState.FAILED, 12, 0, 0.0)
        assert "killed: 12 of 64 samples are stored" in after.sentence
        assert "/data/out" in after.sentence


def test_what_handlers_print_never_reaches_the_console(release: Path, home: Path) -> None:
    noisy = home.parent / "noisy"
    shutil.copytree(release, noisy)
    agent_source = noisy / "eagle3_remote" / "agent.py"
    text = agent_source.read_text()
    agent_source.write_text(
        text.replace(
            '"""The whole truth: box, server, extraction."""',
            'print("noise", flush=True); import os; os.system("echo child")',
        )
    )
    with agent(noisy, home) as one:
        assert one.ask(Snapshot, "snapshot", paths={}).extract is None
        assert one.close() == 0
        assert one.stderr == b"noise\nchild\n"
        assert all(line.startswith(b"{") for line in one.lines)


def test_a_job_status_has_all_a_console_needs(release: Path, home: Path) -> None:
    job = start(home, release, "print('hi')", "server", {"model": "m", "python": "p"})
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    with agent(release, home) as one:
        (raw,) = one.call("jobs.list", kind=None)
        status = decode(JobStatus, raw)
    assert (status.log_size, status.log_inode) == (3, job.log_path.stat().st_ino)
    assert status.run_dir == str(job.run_dir)
    assert status.started_at is not None
    assert abs(status.started_at - time.time()) < 600
