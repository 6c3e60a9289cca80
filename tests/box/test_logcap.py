"""A log that grows too large: its middle goes, who writes and who reads notice nothing, and nothing that was known is lost."""

from __future__ import annotations

import base64
import errno
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3_remote.explain import explained
from eagle3_remote.job import jobs, logcap, stopping
from eagle3_remote.protocol import JobState, LogChunk
from eagle3_remote.serverlog import LogState, checkpoint, feed, view
from eagle3_remote.serverlog.logtail import LogTail, read_chunk
from tests.box.client import until
from tests.box.test_checkpoint import same
from tests.box.test_serverlog import LOGS

MIB = 1 << 20
START = (LOGS / "real" / "sglang_0.5.20_llama.log").read_bytes()
TP9 = b"[2026-11-29 18:00:00 TP9] Decode batch, #running-req: 1, #cached-token: 4711, #queue-req: 3\n"
"""A line that says something."""
MARK = re.compile(rb"\neagle3: (\d+) bytes of this log were dropped here, so that it does not fill the disk\. *\n")


def lines(first: int, count: int) -> bytes:
    return b"".join(
        b"[2026-11-29 18:%02d:00 TP0] Decode batch, line %09d of many\n" % (n % 60, n)
        for n in range(first, first + count)
    )


def numbers(data: bytes) -> list[int]:
    return [int(number) for number in re.findall(rb"line (\d{9}) of many\n", data)]


class Reader:
    """A console that follows the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.inode = self.place = 0
        self.parts: list[bytes] = []
        self.dropped: list[int] = []

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    def step(self) -> LogChunk:
        """The next piece."""
        chunk = read_chunk(self._path, self.inode, self.place, 1_000_000)
        assert chunk.inode == self.inode or self.inode == 0
        assert chunk.offset >= self.place
        self.inode, self.place = chunk.inode, chunk.next_offset
        self.parts.append(base64.b64decode(chunk.data))
        if chunk.dropped:
            self.dropped.append(chunk.dropped)
        return chunk

    def read(self) -> LogChunk:
        """All that is new."""
        while True:
            chunk = self.step()
            if chunk.next_offset >= chunk.size:
                return chunk


def test_a_job_that_writes_all_the_time_and_a_reader_that_follows(home: Path, release: Path) -> None:
    code = (
        "import os, time\n"
        "n = 0\n"
        "while n < 200_000:\n"
        "    os.write(1, b''.join(b'[2026-11-29 18:00:00 TP0] Decode batch, line %09d of many\\n' % k for k in range(n, n + 1000)))\n"
        "    n += 1000\n"
        "    time.sleep(0.04)\n"
    )
    env = {logcap.CAP_ENV: "4"}
    job = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-c", code], env, {}, cwd="/")
    reader, used = Reader(job.log_path), []

    def ended() -> bool:
        over = jobs.state_of(job) is JobState.FINISHED
        reader.read()
        used.append(job.log_path.stat().st_blocks * 512)
        return over

    until(ended)
    got = numbers(reader.data)
    assert got == sorted(set(got))
    assert reader.dropped or got == list(range(200_000))  # a machine under load may be more than half the cap behind
    drops = sum(later < before for before, later in itertools.pairwise(used))
    assert drops >= 1
    late = Reader(job.log_path)
    late.read()
    assert len(MARK.findall(late.data)) == 1
    kept = numbers(late.data)
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, 199_999)
    assert len(kept) < 200_000
    log = os.open(job.log_path, os.O_RDONLY)
    folded = checkpoint.load(job.run_dir, log)  # what the supervisor left for agents to come
    os.close(log)
    assert folded is not None
    assert folded.offset > MIB
    assert not stopping.members(job)


def test_a_writer_at_full_speed_never_loses_a_byte(tmp_path: Path) -> None:
    path, done = tmp_path / "out.log", threading.Event()
    path.touch()
    total = 300_000

    def write() -> None:
        log = os.open(path, os.O_WRONLY | os.O_APPEND)
        for first in range(0, total, 100):
            os.write(log, lines(first, 100))
        os.close(log)
        done.set()

    writer, trims, reader = threading.Thread(target=write), 0, Reader(path)
    writer.start()
    while not done.is_set():
        reader.step()
        trims += logcap.trim(path, MIB)
    writer.join()
    reader.read()
    assert trims > 1
    if not reader.dropped:  # it kept up
        assert numbers(reader.data) == list(range(total))
    got = numbers(reader.data)
    assert got == sorted(set(got))
    assert got[-1] == total - 1


def test_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    written = START + lines(0, 200_000)
    path.write_bytes(written)
    assert not logcap.trim(path, 64 * MIB)
    assert path.read_bytes() == written
    for more in (b"", lines(200_000, 100_000)):
        written += more
        with path.open("ab") as log:
            log.write(more)
        before = path.stat()
        assert logcap.trim(path, 4 * MIB)
        after = path.stat()
        assert (after.st_size, after.st_ino) == (before.st_size, before.st_ino) == (len(written), before.st_ino)
        assert 2 * MIB < after.st_blocks * 512 < 3 * MIB
        late = Reader(path)
        late.read()
        assert late.dropped == []  # the mark in the log says it
        head, said, tail = MARK.split(late.data)
        assert written.startswith(head)
        assert len(head) >= MIB // 2
        assert written.endswith(tail.lstrip(b" \n"))
        assert len(tail.lstrip(b" \n")) >= 2 * MIB - 100
        assert int(said) == len(written) - len(head) - len(tail.lstrip(b" \n"))
        assert b"\0" not in late.data
    assert not logcap.trim(path, 4 * MIB)


def test_a_reader_that_was_away_too_long_is_told_what_it_missed(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_bytes(lines(0, 60_000))
    reader = Reader(path)
    reader.read()
    with path.open("ab") as log:
        log.write(lines(60_000, 200_000))
    logcap.trim(path, 4 * MIB)
    chunk = reader.read()
    assert reader.dropped == [chunk.size - len(lines(0, 60_000)) - (len(reader.data) - len(lines(0, 60_000)))]
    got = numbers(reader.data)
    assert got[:60_000] == list(range(60_000))
    assert got[-1] == 259_999
    assert got == sorted(set(got))


def test_what_was_known_stays_known(tmp_path: Path) -> None:
    """The cause, the phases and every figure, for who watched and for who comes late."""
    path = tmp_path / "out.log"
    middle = lines(0, 50_000) + TP9 + lines(50_000, 150_000)
    path.write_bytes(START + middle)
    watcher, keeper = LogTail(path), logcap.LogKeeper(tmp_path, 4 * MIB, folded=True)
    watcher.update()
    keeper.look()
    assert b"TP9" not in path.read_bytes()
    end = lines(200_000, 100_000) + b"[2026-11-29 19:00:00] SIGTERM received. Draining requests and shutting down.\n"
    with path.open("ab") as log:
        log.write(end)
    keeper.look()
    whole = feed(feed(LogState(), START + middle), end)
    assert same(LogTail(path, keep=tmp_path).update(), whole)
    assert same(watcher.update(), whole)
    assert whole.cached == 4711
    # Another release folds what is left.
    left = LogTail(path).update()
    assert left.cached < 4711
    assert view(left) == view(feed(LogState(), path.read_bytes()))
    assert view(left).spans == view(whole).spans
    assert view(left).phase == view(whole).phase
    said = explained("x", feed(LogState(), path.read_bytes()))
    assert (said["reached"], said["failure"]) == ("exited", None)


def test_who_folds_slowly_goes_on_behind_the_gap_with_what_the_supervisor_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pread = tmp_path / "out.log", os.pread
    written = START + lines(0, 50_000) + TP9 + lines(50_000, 150_000)
    path.write_bytes(written)
    keeper = logcap.LogKeeper(tmp_path, 4 * MIB, folded=True)
    late = LogTail(path, keep=tmp_path)
    asked: list[int] = []

    def slow(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        if not asked:
            asked.append(offset)
            keeper.look()  # drops what was just read
        return data

    monkeypatch.setattr(os, "pread", slow)
    assert same(late.update(), feed(LogState(), written))
    assert TP9 not in path.read_bytes()


@pytest.mark.parametrize("what", [lambda *_: b"x" * 6 * MIB, lambda *_: b"\n" * 6 * MIB, lambda *_: b"\r" * 6 * MIB])
def test_logs_without_lines(what: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_bytes(what())
    assert logcap.trim(path, 4 * MIB)
    assert path.stat().st_size == 6 * MIB
    assert path.stat().st_blocks * 512 < 3 * MIB


def test_a_file_system_that_cannot_do_it_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for such a file system: the call itself refuses."""

    def refuse(log: int, start: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    path, said = tmp_path / "out.log", list[bytes]()
    path.write_bytes(START + lines(0, 200_000))
    monkeypatch.setattr(logcap, "_punch", refuse)
    monkeypatch.setattr(logcap, "EVERY", 0.01)
    monkeypatch.setattr(os, "write", lambda to, text: said.append(text))
    logcap.LogKeeper(tmp_path, 4 * MIB, folded=True).start()
    until(lambda: said)
    with path.open("ab") as log:
        log.write(lines(200_000, 50_000))
    until(lambda: LogTail(path, keep=tmp_path).update() == LogTail(path).update())
    assert said == [
        b"eagle3: the middle of this log cannot be dropped, so that it grows: [Errno 95] Operation not supported\n"
    ]
    assert numbers(path.read_bytes()) == list(range(250_000))
    assert feed(LogState(), said[0]).trouble == LogState().trouble


STALE, TOO_MANY = OSError(errno.ESTALE, "Stale file handle"), OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(
    ("where", "error"),
    [("fold", STALE), ("fold", ValueError()), ("drop", STALE), ("drop", TOO_MANY), ("look", STALE)],
)
@pytest.mark.parametrize("full", [False, True])
def test_what_goes_wrong_once_does_not_end_the_keeping(
    where: str, error: Exception, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins for a network disk's hiccups, and for a disk so full that nothing can be said either."""
    path, said, failing = tmp_path / "out.log", list[bytes](), [error] * 3
    path.write_bytes(START + lines(0, 200_000))
    earlier = threading.enumerate()  # those of the tests before end with the process only

    def failing_first(real: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **more: object) -> object:
            if failing and threading.current_thread().name == "log" and threading.current_thread() not in earlier:
                raise failing.pop()
            return real(*words, **more)

        return call

    def write(to: int, text: bytes) -> None:
        said.append(text)
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

    part = {"fold": (LogTail, "update"), "drop": (logcap, "_punch"), "look": (Path, "stat")}[where]
    monkeypatch.setattr(*part, failing_first(getattr(*part)))
    monkeypatch.setattr(logcap, "EVERY", 0.01)
    monkeypatch.setattr(os, "write", write)
    logcap.LogKeeper(tmp_path, 4 * MIB, folded=True).start()
    until(lambda: MARK.search(path.read_bytes()))
    assert failing == []
    assert len(said) == (where != "look")


def test_a_log_that_can_never_be_folded_still_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.log"
    path.write_bytes(START + lines(0, 200_000))

    def broken(self: LogTail, **more: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LogTail, "update", broken)
    keeper = logcap.LogKeeper(tmp_path, 4 * MIB, folded=True)
    keeper.look()
    assert not MARK.search(path.read_bytes()), "what it says would be lost for a hiccup"
    for _ in range(9):
        keeper.look()
    assert MARK.search(path.read_bytes())


@pytest.mark.parametrize(("text", "cap"), [("", 1024 * MIB), ("7", 7 * MIB), ("0", 0), ("many", 1024 * MIB)])
def test_the_cap_is_set_by_the_environment(text: str, cap: int) -> None:
    assert logcap.cap_of({logcap.CAP_ENV: text}) == cap


def test_the_mark_itself_is_no_failure() -> None:
    assert feed(
        LogState(), b"\neagle3: 5 bytes of this log were dropped here, so that it does not fill the disk.\n"
    ).trouble == (LogState().trouble)
