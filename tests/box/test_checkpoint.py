"""A fold that another process goes on with: the same as one that was never interrupted, whatever the log and the cut."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_patch.layout import MARKER_CHECKED, MARKER_READY, MARKER_REFUSED
from eagle3_remote.protocol import decode, encode
from eagle3_remote.serverlog import LogState, checkpoint, feed, logtail
from eagle3_remote.serverlog.logtail import KEEP_EVERY, LogTail
from tests.box.test_serverlog import EXPECTED, LOGS, MARKER, PIECES
from tests.box.test_serverlog_fuzz import GARBAGE, KINDS

WANTED = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
}


def handed_over(folder: Path, whole: bytes, cut: int) -> LogState:
    """`whole` folded by two processes, the second of which starts from what the first has kept at `cut`."""
    path = folder / "out.log"
    path.write_bytes(whole)
    log = os.open(path, os.O_RDONLY)
    try:
        checkpoint.save(folder, log, cut, feed(LogState(), whole[:cut]))
        kept = checkpoint.load(folder, log)
    finally:
        os.close(log)
    assert kept is not None
    assert kept.offset == cut
    return feed(kept.state, whole[cut:])


def same(one: LogState, other: LogState) -> bool:
    """Equal, and of the same types: True is no 1, and a step no number."""
    steps = [repr((state.step, state.spans)) for state in (one, other)]
    return one == other and steps[0] == steps[1] and json.dumps(encode(one)) == json.dumps(encode(other))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_logs_handed_over_at_many_places(name: str, tmp_path: Path) -> None:
    whole = (LOGS / name).read_bytes()
    at_once = feed(LogState(), whole)
    for place in range(0, len(whole) + 1, max(1, len(whole) // 20)):
        assert same(handed_over(tmp_path, whole, place), at_once)


@given(st.lists(st.one_of(KINDS, GARBAGE, st.sampled_from([*PIECES, b"\n", b"\n"])), max_size=60), st.data())
@settings(max_examples=300, **WANTED)  # type: ignore[arg-type]
def test_any_log_handed_over_anywhere(tmp_path: Path, pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    assert same(handed_over(tmp_path, whole, cut), feed(LogState(), whole))


def test_every_field_that_a_state_has_is_kept_by_some_log() -> None:
    """Otherwise the tests above would prove nothing of it."""
    plain, seen = encode(LogState()), set()
    marked = [f"{words} {json.dumps(MARKER)}".encode() for words in (MARKER_READY, MARKER_CHECKED, MARKER_REFUSED)]
    unhealthy = [b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable'] * 4
    ready = b"The server is fired up and ready to roll!"
    made = [b"[2026-11-29 17:00:00 TP1] Capture cuda graph begin", *marked, ready, *unhealthy, b"SIGTERM received"]
    printed = b"Traceback (most recent call last):\n  File\nValueError: no\n"
    both = b"".join(
        b"[2026-11-29 17:00:00 TP%d] Scheduler hit an exception: Traceback (most recent call last):\n" % n
        for n in (0, 1)
    )
    logs = [path.read_bytes()[:40_000] for path in sorted(LOGS.rglob("*.log"))]
    for whole in [*logs, b"".join(line + b"\n" for line in made), printed, both + b"ValueError: no\n"]:
        for end in {*range(0, len(whole), 1000), len(whole)}:
            state = feed(LogState(), whole[:end])
            now = encode(state)
            assert same(decode(LogState, now), state)
            seen |= {key for key in plain if now[key] != plain[key]}
            seen |= {f"trouble.{key}" for key in plain["trouble"] if now["trouble"][key] != plain["trouble"][key]}
    assert {*plain, *(f"trouble.{key}" for key in plain["trouble"])} - seen == set()


def big(folder: Path) -> Path:
    """A log of more than is folded between two checkpoints."""
    start = (LOGS / "real" / "sglang_0.5.20_llama.log").read_bytes()
    line = b"[2026-11-29 17:20:%02d TP0] Decode batch, #running-req: %d, #queue-req: 3\n"
    path = folder / "out.log"
    path.write_bytes(start + b"".join(line % (n % 60, n) for n in range(2 * KEEP_EVERY // len(line))))
    return path


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the log is read from now on."""
    places, pread = [], os.pread

    def watched(descriptor: int, length: int, offset: int) -> bytes:
        if length > 100_000:
            places.append(offset)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", watched)
    return places


def test_the_next_process_folds_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = big(tmp_path)
    first = LogTail(path, keep=tmp_path).update()
    size = path.stat().st_size
    places = reads(monkeypatch)
    assert LogTail(path, keep=tmp_path).update() == first == LogTail(path).update()
    assert places[0] == 0
    places.clear()
    with path.open("ab") as file:
        file.write(b"[2026-11-29 17:21:00 TP0] Decode batch, #running-req: 77, #queue-req: 0\n")
    assert LogTail(path, keep=tmp_path).update().running == 77
    assert min(places) == size


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept, log: kept.write_bytes(kept.read_bytes()[:-1]),
        lambda kept, log: kept.write_bytes(kept.read_bytes().replace(b'"offset": 2', b'"offset": 1')),
        lambda kept, log: kept.write_bytes(b""),
        lambda kept, log: kept.write_bytes(b"\xff" * 100),
        lambda kept, log: kept.rename(kept.with_name("fold-0123456789ab.json")),
        lambda kept, log: os.truncate(log, 3000),
        lambda kept, log: (
            log.rename(log.with_name("old")),
            log.write_bytes(log.with_name("old").read_bytes().replace(b"#queue-req: 3", b"#queue-req: 4")),
        ),
        lambda kept, log: log.write_bytes(b"another log, the same inode\n" + log.read_bytes()),
    ],
    ids=["cut", "another offset", "empty", "garbage", "another release", "shorter log", "another file", "another log"],
)
def test_what_does_not_fit_is_not_used(damage: object, tmp_path: Path) -> None:
    path = big(tmp_path)
    LogTail(path, keep=tmp_path).update()
    (kept,) = tmp_path.glob("fold-*.json")
    damage(kept, path)  # type: ignore[operator]
    assert LogTail(path, keep=tmp_path).update() == LogTail(path).update()
    log = os.open(path, os.O_RDONLY)
    again = checkpoint.load(tmp_path, log)
    os.close(log)
    assert again is None or again.state == LogTail(path).update()


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = big(tmp_path)
    assert LogTail(path, keep=tmp_path / "not there").update() == LogTail(path).update()
    assert [one.name for one in tmp_path.iterdir()] == ["out.log"]


def test_of_two_that_fold_one_log_the_slower_follows_the_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pread, save = big(tmp_path), os.pread, checkpoint.save
    faster, asked, saved = LogTail(path, keep=tmp_path), list[int](), list[int]()
    monkeypatch.setattr(logtail, "_KEEP_MEANWHILE", KEEP_EVERY)

    def slow(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        asked.append(offset)
        if len(asked) == 1:
            faster.update()
        return data

    def noted(folder: Path, log: int, offset: int, state: LogState) -> None:
        saved.append(offset)
        save(folder, log, offset, state)

    monkeypatch.setattr(os, "pread", slow)
    monkeypatch.setattr(checkpoint, "save", noted)
    late = LogTail(path, keep=tmp_path)
    assert same(late.update(), feed(LogState(), path.read_bytes()))
    assert saved == sorted(set(saved))
    assert len(saved) > 1
