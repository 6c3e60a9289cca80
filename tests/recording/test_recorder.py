"""Recording never disturbs the session."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import pytest

from eagle3_console.errors import UsageError
from eagle3_console.events import AlertRaised, Event, LogArrived, Narration
from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from eagle3_console.recording.recorder import Recorder, recording
from tests.recording.scripts import session


def test_what_was_told_is_in_the_file(tmp_path: Path) -> None:
    seen: list[Event] = []
    path = tmp_path / "session.ndjson"
    with recording(argparse.Namespace(record=str(path)), "root@gpu-box") as recorder:
        assert recorder is not None
        emit = recorder.tee(seen.append)
        for _, event in session(30):
            emit(event)
    assert seen == [event for _, event in session(30)]
    assert path.stat().st_mode & 0o777 == 0o600
    replay = Player(Recording(path))
    replay.advance(1e9)
    assert replay.recording.fault == ""
    assert replay.state.notes[-1].text == "extraction under way"
    last = [event for _, event in session(30) if hasattr(event, "snapshot")][-1]
    assert replay.state.snapshot == last.snapshot


def test_it_is_written_while_the_session_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "now", "box")
    recorder.take(Narration("hello", 1.0))
    deadline = time.monotonic() + 30
    while b"hello" not in recorder.path.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    recorder.close()


def test_without_the_option_nothing_is_written(tmp_path: Path) -> None:
    with recording(argparse.Namespace(record=""), "box") as recorder:
        assert recorder is None


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        Recorder(path, "box")
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="cannot be made: No such file"):
        Recorder(tmp_path / "nowhere" / "file", "box")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_told_once_and_the_session_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Event] = []
    # /dev/full exists already, and a link to it is not made anew: the open of the file is what is stood in for
    monkeypatch.setattr(os, "open", lambda *_: os_open("/dev/full", os.O_WRONLY))
    recorder = Recorder(tmp_path / "full", "box")
    emit = recorder.tee(seen.append)
    deadline = time.monotonic() + 30
    while not any(isinstance(event, AlertRaised) for event in seen):
        assert time.monotonic() < deadline
        emit(LogArrived("job", b"x\n" * 100_000, 0))
        time.sleep(0.01)
    for _ in range(100):
        emit(Narration("on", 1.0))
    recorder.close()
    alerts = [event.alert for event in seen if isinstance(event, AlertRaised)]
    assert [alert.cause for alert in alerts] == ["recording-ended"]
    assert "No space left on device. The session goes on." in alerts[0].text


os_open = os.open
