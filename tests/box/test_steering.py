"""Several consoles on one box: one steers, the others are told who, and no wish is done twice."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote import steering
from eagle3_remote.box import identity
from eagle3_remote.job import jobs, stopping
from eagle3_remote.once import once
from eagle3_remote.protocol import E_REQUEST, PROTOCOL_VERSION, JobState, Snapshot, StopReport
from eagle3_remote.rpc import Refused
from eagle3_remote.steering import Console, Lease
from tests.box.client import AgentProcess, Answered, agent, until

ALICE, BOB = Console("alice@mbp", "a" * 16), Console("bob@desk", "b" * 16)
SECOND = Console("alice@mbp", "c" * 16)
"""Another console of Alice's."""
SLEEP = "import time; time.sleep(600)"


def greet(one: AgentProcess, console: Console, take_over: bool = False) -> None:
    who = {"console": console.name, "id": console.id, "readonly": console.readonly, "take_over": take_over}
    one.call("hello", protocol=PROTOCOL_VERSION, **who)


def steerer(one: AgentProcess) -> tuple[str, bool] | None:
    now = one.ask(Snapshot, "snapshot", paths={}).steering
    return None if now is None else (now.name, now.mine)


def extraction(home: Path, release: Path) -> jobs.Job:
    return jobs.start(
        home, release, jobs.new_id("extract"), [sys.executable, "-c", SLEEP], {}, {"data": "d", "out": "/o"}
    )


def test_one_steers_the_other_watches_until_it_takes_over_on_purpose(home: Path, release: Path) -> None:
    job = extraction(home, release)
    with agent(release, home) as one, agent(release, home) as other:
        greet(one, ALICE)
        greet(other, BOB)
        assert steerer(one) is None
        one.call("extract.control", action="pause", tokens=0, job=None)
        assert (steerer(one), steerer(other)) == (("alice@mbp", True), ("alice@mbp", False))
        for method, params in (
            ("extract.control", {"action": "resume", "tokens": 0, "job": None}),
            ("extract.stop", {"job": None}),
            ("server.stop", {"job": None}),
            ("server.probe", {"tokens": 19}),
            ("jobs.clean", {"go": True}),
            ("server.stack", {"job": None}),
            ("verify", {"dataset": "/no", "server": "running", "dump_dir": ""}),
        ):
            with pytest.raises(Answered, match=r"^alice@mbp steers this box: .* ago.*only watches.*--take-over"):
                other.call(method, **params)
        assert jobs.state_of(job) is JobState.RUNNING
        assert other.call("jobs.clean", go=False)["jobs"] == []  # looking is not steering
        with pytest.raises(Answered, match="There is no dataset directory /no"):
            other.call("verify", dataset="/no", server="", dump_dir="")
        assert other.call("releases.clean") == []  # after a deploy, whoever steers
        assert other.call("jobs.list", kind=None)[0]["id"] == job.id
        other.call("steer.take")
        assert (steerer(one), steerer(other)) == (("bob@desk", False), ("bob@desk", True))
        with pytest.raises(Answered, match="bob@desk steers"):
            one.call("extract.stop", job=None)
        assert other.ask(StopReport, "extract.stop", job=None).stopped


def test_who_leaves_lets_the_next_one_steer_at_once(home: Path, release: Path) -> None:
    with agent(release, home) as one, agent(release, home) as other:
        greet(one, ALICE)
        greet(other, BOB)
        with pytest.raises(Answered, match="No extraction is running"):
            one.call("extract.stop", job=None)
        one.call("steer.release")
        with pytest.raises(Answered, match="No extraction is running"):
            other.call("extract.stop", job=None)
        one.call("steer.release")  # not its own any more
        assert steerer(one) == ("bob@desk", False)


def test_take_over_from_the_command_line_holds_for_one_change(home: Path, release: Path) -> None:
    Lease(home).claim(ALICE)
    with agent(release, home) as other:
        greet(other, BOB, take_over=True)
        assert steerer(other) == ("alice@mbp", False)  # looking takes nothing
        with pytest.raises(Answered, match="No extraction is running"):
            other.call("extract.stop", job=None)
        assert steerer(other) == ("bob@desk", True)
        Lease(home).claim(ALICE, take_over=True)
        with pytest.raises(Answered, match="alice@mbp steers"):
            other.call("extract.stop", job=None)


def test_a_readonly_console_is_refused_on_the_box_whoever_steers(home: Path, release: Path) -> None:
    with agent(release, home) as one:
        greet(one, Console("alice@mbp", "a" * 16, readonly=True))
        for method in ("extract.stop", "server.stop", "steer.take", "server.stack", "releases.clean"):
            with pytest.raises(Answered, match="--readonly: it watches and changes nothing"):
                one.call(method, job=None)
        with pytest.raises(Answered, match="--readonly"):
            one.call("verify", dataset="/no", server="running", dump_dir="")
        assert steerer(one) is None
        one.call("hello", protocol=PROTOCOL_VERSION)  # a plain greeting does not make it writable
        with pytest.raises(Answered, match="--readonly"):
            one.call("extract.stop", job=None)


def test_a_holder_that_is_gone_expires_and_one_that_looks_does_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(steering, "_now", lambda: now[0])
    lease = Lease(home)
    lease.claim(ALICE)
    for _ in range(10):  # its snapshots renew it
        now[0] += steering.EXPIRES - 1
        assert lease.look(ALICE) is not None
    now[0] += steering.EXPIRES - 1
    with pytest.raises(Refused, match=r"alice@mbp .* seen 59 s ago"):
        lease.claim(BOB)
    assert lease.look(BOB) is not None  # the others' snapshots do not renew it
    now[0] += 1
    assert lease.look(BOB) is None
    lease.claim(BOB)
    with pytest.raises(Refused, match="bob@desk steers"):
        lease.claim(ALICE)


def test_a_clock_that_jumps_neither_ends_nor_prolongs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(home)
    lease.claim(ALICE)
    monkeypatch.setattr(time, "time", lambda: 7.0 * 3600)
    with pytest.raises(Refused, match="alice@mbp steers"):
        lease.claim(BOB)
    monkeypatch.setattr(identity, "boot_id", lambda: "another boot")
    lease.claim(BOB)  # whoever steered before the restart does not any more


def test_consoles_of_one_person_steer_together(home: Path) -> None:
    lease, second = Lease(home), SECOND
    lease.claim(ALICE)
    lease.claim(second)
    lease.release(second)  # a command that ends does not end what the screen holds
    with pytest.raises(Refused, match="alice@mbp"):
        lease.claim(BOB)
    seen = lease.look(second)
    assert seen is not None
    assert seen.mine


@pytest.mark.parametrize("order", [(ALICE, SECOND), (SECOND, ALICE)])
def test_whichever_of_them_leaves_the_other_goes_on_steering(home: Path, order: tuple[Console, Console]) -> None:
    leaves, stays = order
    lease = Lease(home)
    lease.claim(ALICE)
    lease.claim(SECOND)
    lease.release(leaves)
    with pytest.raises(Refused, match="alice@mbp steers"):
        lease.claim(BOB)
    lease.release(stays)
    lease.claim(BOB)


@pytest.mark.parametrize("both_changed", [True, False])
def test_one_whose_link_is_lost_is_kept_in_by_the_other(
    home: Path, monkeypatch: pytest.MonkeyPatch, both_changed: bool
) -> None:
    now = [1000.0]
    monkeypatch.setattr(steering, "_now", lambda: now[0])
    lease = Lease(home)
    lease.claim(ALICE)
    if both_changed:
        lease.claim(SECOND)
    for _ in range(130):  # nothing is heard of ALICE; the other asks for its snapshots
        now[0] += 1
        assert lease.look(SECOND) is not None
    with pytest.raises(Refused, match="alice@mbp steers"):
        lease.claim(BOB)
    lease.release(SECOND)
    if both_changed:  # ALICE, not seen for long, does not hold it for ever
        lease.claim(BOB)
    else:
        now[0] += steering.EXPIRES
        lease.claim(BOB)


def test_one_that_only_watches_does_not_keep_another_of_its_name_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(steering, "_now", lambda: now[0])
    lease = Lease(home)
    lease.claim(ALICE)
    for _ in range(70):
        now[0] += 1
        lease.look(Console("alice@mbp", "d" * 16, readonly=True))
    lease.claim(BOB)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": "x"}',
        '{"name": 1, "console": 2, "since": "a", "seen": []}',
        '{"name": "x", "since": 1, "seen": 1, "holders": []}',
    ],
)
def test_a_broken_lease_is_none(home: Path, text: str) -> None:
    home.mkdir()
    (home / "steer.json").write_text(text)
    assert Lease(home).look(BOB) is None
    Lease(home).claim(BOB)
    assert ((home / "steer.json").stat().st_mode & 0o777) == 0o600


def test_of_two_that_begin_at_once_one_steers(home: Path) -> None:
    outcome: list[str] = []
    gate = threading.Barrier(8)

    def begin(number: int) -> None:
        gate.wait()
        try:
            Lease(home).claim(Console(f"{number}@x", f"{number:016x}"))
            outcome.append("steers")
        except Refused:
            outcome.append("refused")

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome) == ["refused"] * 7 + ["steers"]


KEY = "0123456789abcdef"


def ask(one: AgentProcess, number: int, method: str, **params: Any) -> None:
    line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params, "key": KEY}
    one.write(json.dumps(line).encode() + b"\n")


def test_a_stop_whose_answer_was_lost_is_answered_again_as_it_was(home: Path, release: Path) -> None:
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(0)))\nprint('up', flush=True)\nwhile True: time.sleep(0.1)"
    job = jobs.start(
        home, release, jobs.new_id("extract"), [sys.executable, "-c", code], {}, {"data": "d", "out": "/o"}
    )
    until(lambda: job.log_path.read_bytes() == b"up\n")
    with agent(release, home) as one, agent(release, home) as other:
        ask(one, 501, "extract.stop", job=None)
        until(lambda: job.stop_requested)
        assert one.process.stdin is not None
        one.process.stdin.close()  # the link is lost; the stop goes on, its answer reaches nobody
        ask(other, 502, "extract.stop", job=None)
        again = other.answer(502)["result"]
        assert (again["job"], again["stopped"]) == (job.id, True)
        assert "finished what was in flight" in again["sentence"]
        one.process.wait(60)
        one._end()
        with pytest.raises(Answered, match="No extraction is running on this box: there is nothing to stop"):
            other.call("extract.stop", job=None)  # another wish


def test_one_key_is_done_once_by_however_many(home: Path) -> None:
    done: list[int] = []
    answers: list[object] = []

    def work() -> object:
        done.append(1)
        time.sleep(0.2)
        return {"number": len(done)}

    threads = [threading.Thread(target=lambda: answers.append(once(home, KEY, work))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), answers) == (1, [{"number": 1}] * 5)
    assert {oct(path.stat().st_mode & 0o777) for path in (home / "calls").iterdir()} == {"0o600"}


def test_what_failed_is_not_kept_and_old_answers_are_forgotten(home: Path) -> None:
    def refuse() -> object:
        raise Refused("No.")

    with pytest.raises(Refused):
        once(home, KEY, refuse)
    assert once(home, KEY, lambda: 1) == 1
    for path in (home / "calls").iterdir():
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    assert once(home, "f" * 16, lambda: 2) == 2
    assert once(home, KEY, lambda: 3) == 3


def test_a_call_is_done_where_nothing_can_be_kept(home: Path) -> None:
    home.write_text("a file where the folder should be")
    assert once(home, KEY, lambda: 5) == 5


@pytest.mark.parametrize("key", ["", "../../x", "ABCDEF0123456789", 7, ["a"], "a" * 65])
def test_a_wrong_key_is_answered(home: Path, release: Path, key: object) -> None:
    with agent(release, home) as one:
        line = {"jsonrpc": "2.0", "id": 9, "method": "jobs.list", "params": {"kind": None}, "key": key}
        one.write(json.dumps(line).encode() + b"\n")
        assert one.answer(9)["error"]["code"] == E_REQUEST
        assert not home.exists()


def test_nothing_is_left_of_the_lease_by_who_only_looked(home: Path, release: Path) -> None:
    with agent(release, home) as one:
        greet(one, ALICE)
        one.ask(Snapshot, "snapshot", paths={})
    assert not home.exists()


def test_a_stopped_job_is_not_stopped_twice(home: Path, release: Path) -> None:
    job = extraction(home, release)
    with agent(release, home) as one:
        assert one.ask(StopReport, "extract.stop", job=job.id).stopped
        again = one.ask(StopReport, "extract.stop", job=job.id)
        assert (again.stopped, again.sentence) == (False, f"Job {job.id} had ended already; nothing was signalled.")
    assert stopping.members(job) == []
