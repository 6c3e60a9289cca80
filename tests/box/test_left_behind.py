"""What a server leaves in shared memory and on its GPUs: what is provably ours goes, everything else is named and stays."""

from __future__ import annotations

import multiprocessing.shared_memory
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_remote.box import gpus, shm
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import StopReport
from eagle3_remote.server import ledger, proof
from tests.box.client import until

SEGMENTS = """
import mmap, os, sys, time
def make(name, hold=True):
    path = '/dev/shm/' + name
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 8192)
    mapped.append(mmap.mmap(fd, 8192))
    mapped[-1][0] = 1
    os.close(fd)
mapped = []
"""


def start(home: Path, release: Path, code: str) -> jobs.Job:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = [sys.executable, "-u", "-c", SEGMENTS + code]
    return jobs.start(home, release, jobs.new_id("server"), line, {}, {"model": "m", "port": port})


def stop(home: Path, job: jobs.Job) -> StopReport:
    """As `ServerControl.stop` does it."""
    ledger.note_segments(job)
    pids = {one.pid for one in stopping.members(job)}
    shown = proof.shown_on_gpus(pids)
    return proof.after_stop(home, job, stopping.stop(job, grace=0.2, term=0.2), pids, shown=shown)


@pytest.fixture
def name() -> Iterator[str]:
    """A name that nobody else has; what is left under it is removed."""
    prefix = f"e3test{os.getpid()}"
    yield prefix
    for one in Path("/dev/shm").iterdir():
        if prefix in one.name:
            one.unlink()


def test_segments_of_a_killed_server_are_removed_and_nothing_else(home: Path, release: Path, name: str) -> None:
    theirs = multiprocessing.shared_memory.SharedMemory(create=True, size=8192, name=f"psm_{name}_theirs")
    before = Path(f"/dev/shm/psm_{name}_before")  # the job only opens what somebody else made before it
    before.write_bytes(bytes(8192))
    made = [f"psm_{name}_a", f"sem.{name}", f"sglang_loads_{name}.shm", f"odd_{name}"]
    code = f"for one in {[*made, before.name]!r}: make(one)\nos.unlink('/dev/shm/{made[0]}')\nmake({made[0]!r})\nprint('made', flush=True)\ntime.sleep(600)"
    job = start(home, release, code)
    try:
        until(lambda: "made" in job.log_path.read_text())
        report = stop(home, job)
        assert report.stopped, report.sentence
        left = {one.name for one in Path("/dev/shm").iterdir() if name in one.name}
        assert left == {theirs.name, before.name, f"odd_{name}"}
        assert "3 shared-memory segments that it left were removed" in report.sentence
        assert report.leftovers == (f"/dev/shm/odd_{name} is of no known kind",)
        assert "is free." in report.sentence
    finally:
        theirs.close()
        theirs.unlink()


def test_a_segment_that_somebody_else_uses_stays(home: Path, release: Path, name: str) -> None:
    job = start(home, release, f"make('psm_{name}')\nprint('made', flush=True)\ntime.sleep(600)")
    until(lambda: "made" in job.log_path.read_text())
    with open(f"/dev/shm/psm_{name}", "rb"):
        report = stop(home, job)
        assert report.leftovers == (f"/dev/shm/psm_{name} is used by pid {os.getpid()}",)
    assert Path(f"/dev/shm/psm_{name}").exists()


def test_what_a_server_that_crashed_by_itself_left_is_known_from_its_supervisor(
    home: Path, release: Path, name: str
) -> None:
    code = f"make('psm_{name}')\nprint('made', flush=True)\nwhile not os.path.exists({str(home / 'go')!r}): time.sleep(0.1)\nos.kill(os.getpid(), 9)"
    job = start(home, release, code)
    until(lambda: any(one.name == f"psm_{name}" for one in ledger.segments(job)))
    (home / "go").touch()
    until(lambda: jobs.exit_code(job) == -9)
    assert Path(f"/dev/shm/psm_{name}").exists()
    report = stop(home, job)
    assert not report.stopped
    assert f"1 shared-memory segment that it left was removed (psm_{name})" in report.sentence
    assert not Path(f"/dev/shm/psm_{name}").exists()


def test_a_name_that_was_used_again_is_another_segment(name: str) -> None:
    path = Path(f"/dev/shm/psm_{name}")
    path.write_bytes(b"one")
    old = shm.Segment(path.name, path.stat().st_ino)
    path.with_name(path.name + "2").write_bytes(b"two")
    path.with_name(path.name + "2").replace(path)
    assert shm.reclaim([old]) == shm.Reclaimed()
    assert path.exists()


@pytest.mark.usefixtures("smi")
def test_who_holds_the_gpus() -> None:
    cards = gpus.cards()
    assert cards is not None
    first, second, unseen, untold = (
        gpus.taken(cards[:1]),
        gpus.taken(cards[1:2]),
        gpus.taken(cards[2:3]),
        gpus.taken(cards[3:]),
    )
    assert f"GPU 0 (80 GiB) holds 68.4 GiB by pid {os.getpid()} (user " in first[0]
    assert "python train.py,--x)" in first[0]
    assert "2.9 GiB by pid 4194999 (not of this container, [Not Found])" in first[0]
    assert second == []  # a desktop on it is no obstacle
    assert unseen == ["GPU 2 (80 GiB) holds 40.0 GiB by processes that are not seen from here"]
    assert f"holds 40.0 GiB by pid {os.getpid()} (user " in untold[0]
    assert len(gpus.held_by([os.getpid()], cards)) == 3


@pytest.mark.parametrize(
    ("shown", "in_use", "words"),
    [
        (False, 40960, "Whether its GPU memory is back cannot be seen from here"),  # whose, nobody tells
        (True, 40960, "Its GPU memory is back"),  # it was told before, and is not any more
        (False, 512, "Its GPU memory is back"),  # nobody holds any
    ],
)
def test_gpu_memory_is_said_to_be_back_only_where_that_can_be_seen(
    home: Path, release: Path, smi: Path, shown: bool, in_use: int, words: str
) -> None:
    idle = smi.read_text().replace("73728", "512").replace("70000", "300").replace("3000", "100")
    smi.write_text(idle.replace("40960", str(in_use)))  # of the third GPU and the last, whose holders it does not tell
    job = start(home, release, "time.sleep(600)")
    report = stopping.stop(job, grace=0.2, term=0.2)
    report = proof.after_stop(home, job, report, {4194998}, shown=shown)
    assert words in report.sentence
    assert (report.stopped, report.leftovers) == (True, ())


@pytest.mark.usefixtures("smi")
def test_gpu_memory_that_is_not_back_means_that_the_server_is_not_stopped(
    home: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "GPU_WAIT", 0.2)
    job = start(home, release, "time.sleep(600)")
    report = stopping.stop(job, grace=0.2, term=0.2)
    assert report.stopped
    holder = {os.getpid()}  # the stand-in for nvidia-smi shows this process
    assert proof.shown_on_gpus(holder)
    report = proof.after_stop(home, job, report, holder, shown=True)
    assert not report.stopped
    assert "GPU memory is not back: GPU 0: 68.4 GiB by pid" in report.sentence
    assert len(report.leftovers) == 3


@pytest.mark.parametrize("told", [True, False])  # whether the driver says what each process holds
def test_only_the_memory_of_the_jobs_that_will_end_does_not_count(told: bool) -> None:
    held = 40 * gpus.GIB
    app = gpus.App(0, 1, "python", held if told else 0, "server-20261130T000000-abcd", "bob")
    card = gpus.Card(0, "GPU-a", held, 80 * gpus.GIB, (app,))
    assert gpus.taken([card], {app.job}) == []
    assert "of our job server-20261130T000000-abcd" in gpus.taken([card], {"server-20261130T000000-ffff"})[0]
    assert len(gpus.taken([card])) == 1


@pytest.mark.usefixtures("smi")
@pytest.mark.parametrize(
    ("value", "seen"),
    [("1,0", [1, 0]), (" 2 , 0", [2, 0]), ("GPU-cccc,GPU-aaaa-1", [2, 0]), ("", []), ("0,9,1", [0]), ("-1", [])],
)
def test_the_gpus_that_a_process_would_see(value: str, seen: list[int]) -> None:
    cards = gpus.cards()
    assert cards is not None
    assert [card.index for card in gpus.visible(cards, {"CUDA_VISIBLE_DEVICES": value})] == seen
    assert [card.index for card in gpus.visible(cards, {})] == [0, 1, 2, 3]


def test_without_nvidia_smi_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.cards() is None


def test_an_nvidia_smi_that_fails_claims_nothing(smi: Path) -> None:
    smi.write_text(
        f"#!{sys.executable}\nprint('Failed to initialize NVML: Driver/library version mismatch')\nexit(18)\n"
    )
    assert gpus.cards() is None
