"""What is replayed is what was shown, wherever one jumps, and as far as the file is good."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from eagle3_console.errors import UsageError
from eagle3_console.events import Event, LogArrived, LogRestarted
from eagle3_console.recording.player import LOG_TAIL, LogEvent, Player
from eagle3_console.recording.reader import Recording
from eagle3_console.state import initial, reduce
from tests.recording.scripts import session, write
from tests.ui.scenes import NOW, RUNNING, SCENES, arrived, job

SECONDS = 400


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recording") / "session.ndjson", session(SECONDS))


def player(path: Path) -> Player:
    return Player(Recording(path))


def bytes_of(log: list[LogEvent]) -> bytes:
    return b"".join(event.data for event in log if isinstance(event, LogArrived))


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_the_end_of_a_replay_is_the_end_of_the_session(scene: str, tmp_path: Path) -> None:
    state = initial(NOW, "root@gpu-box")
    for event in SCENES[scene]:
        state = reduce(state, event)
    path = write(tmp_path / "scene", [(number * 2.0, event) for number, event in enumerate(SCENES[scene])])
    replay = player(path)
    log = replay.advance(1e9)
    assert replay.state == state
    assert replay.recording.fault == ""
    assert bytes_of(log) == b"".join(event.data for event in SCENES[scene] if isinstance(event, LogArrived))


def test_a_jump_shows_what_playing_shows(path: Path) -> None:
    jumping = player(path)
    assert len(jumping.recording.checkpoints) == 6
    places = [
        0.0,
        0.15,
        9.0,
        10.0,
        59.9,
        60.0,
        60.6,
        61.5,
        399.0,
        1e9,
        *(random.Random(7).uniform(0, SECONDS) for _ in range(20)),
    ]
    for place in random.Random(8).sample(places, len(places)):
        playing = player(path)
        played = playing.advance(place)
        log = jumping.seek(place)
        assert jumping.state == playing.state, place
        assert (jumping.position, jumping.wall) == (playing.position, pytest.approx(playing.wall))
        assert bytes_of(log) == bytes_of(played)[-len(bytes_of(log)) :]
        assert isinstance(log[0], LogRestarted)


def test_playing_goes_on_from_a_jump(path: Path) -> None:
    whole, jumped = player(path), player(path)
    whole.advance(1e9)
    jumped.seek(200)
    for to in range(200, SECONDS + 10, 7):
        jumped.advance(to)
    assert jumped.state == whole.state
    assert jumped.at_end


def test_a_jump_shows_the_end_of_a_long_log(tmp_path: Path) -> None:
    data = b"".join(b"line %07d\n" % number for number in range(100_000))
    pieces = [(i / 1000, LogArrived("server-1", data[i : i + 10_000], i)) for i in range(0, len(data), 10_000)]
    replay = player(write(tmp_path / "log", pieces))
    shown = bytes_of(replay.seek(1e9))
    assert data.endswith(shown)
    assert LOG_TAIL <= len(shown) < 2 * LOG_TAIL + 10_000


def test_another_log_begins_anew_after_a_jump(tmp_path: Path) -> None:
    events: list[Event] = [LogArrived("a", b"old\n", 0), LogRestarted("b"), LogArrived("b", b"new\n", 0)]
    replay = player(write(tmp_path / "log", [(float(i), event) for i, event in enumerate(events)]))
    assert replay.seek(9) == [LogRestarted("b"), LogArrived("b", b"new\n", 0)]


def test_check_points_of_another_console_are_not_needed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    lines = path.read_bytes().splitlines(keepends=True)
    foreign = [
        json.dumps([json.loads(line)[0], "Checkpoint", {"state": {"shape": "another"}, "points": [], "of": 0}]).replace(
            ", ", ","
        ).encode() + b"\n" if b'"Checkpoint"' in line[:30] else line
        for line in lines
    ]  # fmt: skip
    other.write_bytes(b"".join(foreign))
    theirs, ours = player(other), player(path)
    theirs.seek(333)
    ours.seek(333)
    assert theirs.state == ours.state
    assert theirs.recording.fault == ""


@pytest.mark.parametrize("keep", [0.999, 0.5, 0.01])
def test_a_cut_file_plays_up_to_the_cut(path: Path, tmp_path: Path, keep: float) -> None:
    data = path.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(data[: int(len(data) * keep)])
    replay, whole = player(cut), player(path)
    assert "breaks off at" in replay.recording.fault
    replay.seek(1e9)
    whole.advance(replay.recording.seconds)
    assert replay.state.snapshot == whole.state.snapshot


def test_a_session_that_was_killed_says_so(tmp_path: Path) -> None:
    replay = player(write(tmp_path / "killed", session(20), end=False))
    assert "its session was not left, or still goes on" in replay.recording.fault
    assert replay.recording.seconds > 18


@pytest.mark.parametrize(
    ("damage", "seen_at_once"), [(b"\0" * 40, True), (b"[1.0,\"LogArrived\",{}]", True), (b'"delta":[[[[', False)]
)  # fmt: skip
def test_a_damaged_file_plays_up_to_the_damage(path: Path, tmp_path: Path, damage: bytes, seen_at_once: bool) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    bad = next(i for i in range(500, 600) if b'"SnapshotArrived"' in lines[i][:40])
    if seen_at_once:
        lines[bad] = damage + b"\n"
    else:
        lines[bad] = lines[bad].replace(b'"delta":{', damage, 1)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"".join(lines))
    replay = player(damaged)
    assert ("is damaged at" in replay.recording.fault) is seen_at_once
    replay.advance(1e9)
    assert "is damaged at" in replay.recording.fault
    assert f"line {bad + 1}:" in replay.recording.fault
    whole = player(path)
    whole.advance(replay.recording.seconds)
    assert replay.state.snapshot == whole.state.snapshot
    assert replay.at_end


def test_a_packed_file_plays_and_a_cut_one_as_far_as_it_goes(path: Path, tmp_path: Path) -> None:
    packed, cut = tmp_path / "all.gz", tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    cut.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    assert player(packed).recording.fault == ""
    assert player(packed).recording.seconds == player(path).recording.seconds
    assert "cannot be unpacked to its end" in player(cut).recording.fault
    assert 0 < player(cut).recording.seconds < player(path).recording.seconds


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"hello\n", "is not a recording"),
        (b'{"format":1}\n', "is not a recording"),
        (b'{"format":99,"console":"7.0","target":"t","started_at":0}\n', "made by eagle3-console 7.0 in format 99"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, data: bytes | None, words: str) -> None:
    path = tmp_path / "file"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError, match=words):
        Recording(path)


def test_a_recording_is_small(path: Path) -> None:
    """Twice a second for 400 s: less than a line a second of snapshots, each what changed."""
    recording = Recording(path)
    assert recording.kinds.count("SnapshotArrived") <= SECONDS + 5
    assert path.stat().st_size < SECONDS * 1500


def test_the_log_is_written_whole_lines_at_a_time_and_without_secrets(tmp_path: Path) -> None:
    key = "hf_" + "k" * 30
    text = f"loading with --api-key {key} now\n".encode() * 50
    pieces = [(i / 50, LogArrived(job("server").id, text[i : i + 7], i)) for i in range(0, len(text), 7)]
    path = write(tmp_path / "secret", [(0.0, arrived(extract=RUNNING)), *pieces])
    assert key[3:].encode() not in path.read_bytes()
    log = player(path).advance(1e9)
    assert len(bytes_of(log)) == len(text)
    assert bytes_of(log).count(b"loading with --api-key ***") == 50
