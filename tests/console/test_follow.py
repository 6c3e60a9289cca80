"""Where no screen can be drawn, the console follows in plain lines: a real process, the real agent on this machine."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_console.controller import SessionController
from eagle3_console.errors import AgentFault, BoxNotFit, BoxRefused, ConsoleError
from eagle3_console.events import Alert, AlertRaised, ConnectionChanged, ended_by
from eagle3_console.exit_codes import ExitCode
from eagle3_console.follow import follow
from eagle3_console.link.errors import HostKeyChanged, LoginRefused, NoConnection
from eagle3_console.link.local import LocalLink
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from tests.ui.scenes import FAILED, FINISHED, LIVE, LOADING, NOW, READY, RUNNING, TARGET, ScriptedController, arrived

REFUSED = ConnectionChanged(ended_by(LoginRefused("the host key has changed"), NOW))


async def lines(*events: object) -> list[str]:
    stream = io.StringIO()
    assert await follow(ScriptedController([*events, REFUSED]), TARGET, stream=stream) == ExitCode.LOGIN  # type: ignore[list-item]
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


async def test_everything_that_the_screen_would_show_is_told_once() -> None:
    note = AlertRaised(Alert(NOW, "error", "x", "[refused]", "do this"))
    said = await lines(LIVE, arrived(LOADING), arrived(LOADING), arrived(FAILED), arrived(FAILED), note)
    assert said[0].startswith("There is no terminal for a screen here, so root@gpu-box is followed in lines")
    assert said.count("server: loading-weights, shard 31 of 64, 8.14s/it, 04:28 left") == 1
    (failed,) = [line for line in said if line.startswith("error: server failed (cuda_oom)")]
    assert failed.endswith("--mem-fraction-static 0.8.")
    assert said.count("error: [refused] do this") == 1
    assert said[-2] == "link: the host key has changed"
    assert said[-1].startswith("error: the box refuses the link: the host key has changed")


@pytest.mark.parametrize(("extract", "words"), [
    (None, "extract: nothing was extracted here yet"),
    (RUNNING, "extract: 3,731 of 10,000 stored, 11.8 samples/s"),
    (FINISHED, "extract: finished: all valid samples are stored"),
])  # fmt: skip
async def test_one_that_comes_late_is_told_how_it_stands(extract: object, words: str) -> None:
    said = await lines(LIVE, arrived(READY, extract))  # type: ignore[arg-type]
    assert any(line.startswith(words) for line in said), said


@pytest.mark.parametrize(
    "error",
    [
        LoginRefused("w h y"),
        HostKeyChanged("w h y"),
        BoxNotFit("w h y"),
        BoxRefused("w h y"),
        AgentFault("w h y"),
        NoConnection("w h y"),
    ],
)
async def test_what_ends_it_is_said_as_what_it_is_and_gives_its_exit_code(error: ConsoleError) -> None:
    stream = io.StringIO()
    ended = ConnectionChanged(ended_by(error, NOW))
    assert await follow(ScriptedController([LIVE, ended]), TARGET, stream=stream) == error.exit_code
    said = stream.getvalue()
    assert "w h y" in said
    assert ("refuses the link" in said) == (error.exit_code == ExitCode.LOGIN)
    assert "or the command again where there is none" in said


async def test_a_box_without_a_place_for_the_release_ends_it_with_the_code_of_that() -> None:
    async def dial() -> LocalLink:
        return LocalLink()

    session = Session(dial, "local", box_home="/proc/no/place")
    stream = io.StringIO()
    async with asyncio.timeout(60):
        assert await follow(SessionController(session, Plan()), "local", stream=stream) == ExitCode.BOX_NOT_FIT
    assert "error: the box cannot be watched: " in stream.getvalue()
    assert "refuse" not in stream.getvalue()


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "xterm-256color"}])
def test_the_command_follows_where_there_is_no_terminal(environ: dict[str, str], tmp_path: Path) -> None:
    words = ["local", "--box-dir", str(tmp_path / "box")]
    process = subprocess.Popen(
        [sys.executable, "-m", "eagle3_console", *words],
        env={**os.environ, **environ, "XDG_CONFIG_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "nothing was extracted here yet" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, (out, err)
    assert "jobs on the box go on" in err
    assert "\x1b" not in "".join(said) + out + err
    assert any("link: connected" in line for line in said)
