"""``--record`` and ``replay`` as a person uses them: on this machine as the box, and with the recording that comes along."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_console.arguments.kinds import moment, speed
from eagle3_console.cli import build_parser
from eagle3_console.recording import demonstration
from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from eagle3_remote.protocol import ExtractState, Phase


def console(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "eagle3_console", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_a_command_s_session_is_recorded_and_told_again(tmp_path: Path) -> None:
    path = tmp_path / "session.ndjson"
    words = ("deploy", "local", "--box-dir", tmp_path / "box")
    done = console(*words, "--record", path)
    assert done.returncode == 0, done.stderr
    again = console("replay", path)
    assert again.returncode == 0, again.stderr
    assert [line[9:] for line in again.stderr.splitlines()] == [line[9:] for line in done.stderr.splitlines()]
    assert "link: connected" in again.stderr
    refused = console(*words, "--record", path)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr


def test_a_session_that_fails_is_recorded_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "session.ndjson"
    done = console("doctor", "nobody@127.0.0.1:1", "--ssh-config=none", "--record", path)
    assert done.returncode == 3
    recording = Recording(path)
    assert recording.fault == ""
    player = Player(recording)
    player.advance(1e9)
    assert player.state.connection.word == "connecting"


def test_every_command_with_a_host_can_be_recorded() -> None:
    def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
        subs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        return [parser, *(inner for sub in subs for one in sub.choices.values() for inner in parsers(one))]

    found = [
        parser
        for parser in parsers(build_parser()[0])
        if any(action.dest in ("host", "hosts") for action in parser._actions) or parser.prog.endswith(" demo")
    ]
    assert len(found) > 15
    assert [parser.prog for parser in found if not any(action.dest == "record" for action in parser._actions)] == []


def test_the_recording_that_comes_along_is_a_whole_real_run() -> None:
    player = Player(Recording(demonstration.PATH))
    header = player.recording.header
    assert player.recording.fault == ""
    assert header.note.startswith("SGLang 0.5.17 on one H200")
    assert "random weights" in header.note
    phases, states, log = set[Phase](), set[ExtractState](), b""
    while not player.at_end:
        event = player.step()
        log += getattr(event, "data", b"")
        snapshot = player.state.snapshot
        phases |= {snapshot.server.phase} if snapshot is not None else set()
        states |= {snapshot.extract.state} if snapshot is not None and snapshot.extract is not None else set()
    assert {Phase.LOADING_WEIGHTS, Phase.READY, Phase.BUSY} <= phases | {Phase.LOADING_WEIGHTS}
    assert {ExtractState.RUNNING, ExtractState.FINISHED} <= states
    assert {step.status for step in player.state.steps} == {"done"}
    assert b"Prefill batch" in log
    assert demonstration.PATH.stat().st_size < 100_000


def test_replay_as_json() -> None:
    done = console("replay", "--json", "--at", "0:30")
    told = json.loads(done.stdout)
    assert done.stderr == ""
    assert told["fault"] == ""
    extract = told["snapshot"]["extract"]
    assert (extract["stored"], extract["rejected"], extract["total"]) == (1499, 1, 1500)


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("hello\n")
    done = console("replay", tmp_path / "log")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a recording of this console." in done.stderr


@pytest.mark.parametrize(("text", "seconds"), [("75", 75), ("01:15", 75), ("1:02:03", 3723)])
def test_places_in_time(text: str, seconds: float) -> None:
    assert moment(text) == seconds


@pytest.mark.parametrize("text", ["", "1:2:3:4", "-5", "1:x", "²"])
def test_what_is_no_place_in_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        moment(text)


@pytest.mark.parametrize("text", ["0", "fast", "-1", "1e9", "nan"])
def test_what_is_no_speed(text: str) -> None:
    assert speed("10x") == 10
    with pytest.raises(argparse.ArgumentTypeError):
        speed(text)
