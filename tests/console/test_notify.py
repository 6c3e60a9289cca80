"""Alerts leave the console: real bytes on a real terminal, real posts to a real web server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.server
import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_console import cli, settings
from eagle3_console.events import Alert, AlertRaised, Event
from eagle3_console.exit_codes import ExitCode
from eagle3_console.follow import follow
from eagle3_console.notify import webhook
from eagle3_console.notify.headless import alerting
from eagle3_console.notify.notifier import Notifier, news
from eagle3_console.notify.terminal import notification
from eagle3_console.settings import AlertSettings
from eagle3_console.state import MAX_ALERTS, initial, reduce
from eagle3_remote.protocol import ExtractState
from tests.conftest import ROOT
from tests.ui.scenes import FAILED, LIVE, NOW, READY, RUNNING, TARGET, ScriptedController, arrived

OOM = Alert(NOW, "error", "server-failed:1", "server failed: <!channel> & out of memory", "give it less")
DONE = Alert(NOW, "info", "extract-done:1", "extraction finished")


class Receiver:
    """A web server that keeps what is posted to it and answers as it is told."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.answers: list[int] = []
        self.delay = 0.0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                time.sleep(outer.delay)
                with contextlib.suppress(OSError):
                    self.send_response(outer.answers.pop(0) if outer.answers else 200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0SECRET"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_what_is_posted_is_readable_for_slack_and_for_programs(receiver: Receiver) -> None:
    assert webhook.post(receiver.url, webhook.message(TARGET, OOM)) == ""
    assert receiver.bodies == [
        {
            "text": "root@gpu-box: error: server failed: &lt;!channel&gt; &amp; out of memory\ngive it less",
            "level": "error",
            "host": "root@gpu-box",
            "time": "2027-01-15T08:00:00Z",
            "alert": "server failed: <!channel> & out of memory",
            "cure": "give it less",
        }
    ]


def test_a_secret_in_a_log_line_is_not_posted() -> None:
    leaky = dataclasses.replace(OOM, text="server failed: HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz was refused")
    assert "hf_abc" not in json.dumps(webhook.message(TARGET, leaky))


@pytest.mark.parametrize(
    ("answers", "posts", "why"),
    [
        ([503, 204], 2, ""),
        ([429, 200], 2, ""),
        ([500, 502], 2, "it answered 502"),
        ([404], 1, "it answered 404"),
        ([302], 1, "it answered 302"),
    ],
)
def test_it_is_tried_once_more_where_that_may_help(
    receiver: Receiver, answers: list[int], posts: int, why: str
) -> None:
    receiver.answers = list(answers)
    assert webhook.post(receiver.url, {"text": "x"}, retry_after=0.01) == why
    assert len(receiver.bodies) == posts


def test_no_reason_names_the_address(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.delay = 1.0
    reasons = [
        webhook.post(receiver.url, {}, timeout=0.05, retry_after=0.01),
        webhook.post("http://127.0.0.1:1/T0SECRET", {}, retry_after=0.01),
        webhook.post("https://no-such-host.invalid/T0SECRET", {}, retry_after=0.01),
        webhook.post("ftp://T0SECRET", {}, retry_after=0.01),
        webhook.post("http://T0SECRET:port/", {}, retry_after=0.01),
    ]
    assert reasons[0] == "it did not answer within 0.05 s"
    assert all(reasons)
    assert "T0SECRET" not in caplog.text + str(reasons)


async def test_failures_are_said_once_until_it_works_again(receiver: Receiver) -> None:
    receiver.answers = [404, 404, 200, 404]
    said: list[str] = []
    hook = webhook.Webhook(receiver.url, said.append)
    for _ in range(4):
        hook.put({})
    await hook.close()
    assert len(receiver.bodies) == 4
    assert said == ["it answered 404", "it answered 404"]


async def test_a_receiver_that_hangs_holds_up_nothing(receiver: Receiver) -> None:
    receiver.delay = 30.0
    hook = webhook.Webhook(receiver.url, lambda why: None)
    beats = 0
    for _ in range(500):
        hook.put({})
        await asyncio.sleep(0)
        beats += 1
    while not receiver.bodies:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await hook.close(0.1)
    assert beats == 500
    assert len(receiver.bodies) == 1


class Told:
    """Every channel, written down."""

    def __init__(self, receiver: Receiver, **wanted: Any) -> None:
        self.written = ""
        self.said: list[Alert] = []
        self.notifier = Notifier(AlertSettings(webhook=receiver.url, **wanted), self.write, self.said.append)

    def write(self, text: str) -> None:
        self.written += text


async def test_each_channel_has_its_level(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    told = Told(receiver, bell="error", desktop="osc9", desktop_from="warning", webhook_from="info")
    for level in ("info", "warning", "error"):
        told.notifier.tell("h", Alert(NOW, level, level, "words"))  # type: ignore[arg-type]
    await told.notifier.close()
    sequences = "\x1b]9;eagle3-console: h: warning: words\a|\a\x1b]9;eagle3-console: h: error: words\a"
    assert told.written == sequences.replace("|", "")
    assert [body["level"] for body in receiver.bodies] == ["info", "warning", "error"]


async def test_that_the_webhook_fails_is_told_everywhere_but_there(receiver: Receiver) -> None:
    receiver.answers = [404]
    told = Told(receiver)
    told.notifier.tell("h", OOM)
    await told.notifier.close()
    (alert,) = told.said
    assert alert.text == "an alert could not be posted to the webhook: it answered 404"
    told = Told(receiver)
    told.notifier.tell("h", alert)
    await told.notifier.close()
    assert told.written == "\a"
    assert len(receiver.bodies) == 1


async def test_only_what_is_new_after_the_first_look_is_sent(receiver: Receiver) -> None:
    told = Told(receiver)
    state = initial(NOW, "h")
    for event in (LIVE, arrived(FAILED), arrived(FAILED), AlertRaised(DONE), arrived(READY)):
        before, state = state, reduce(state, event)
        told.notifier.follow("h", before, state)
    await told.notifier.close()
    assert [body["alert"] for body in receiver.bodies] == ["extraction finished"]


def test_news_of_a_list_that_is_cut_at_its_beginning() -> None:
    alerts = tuple(Alert(NOW, "info", str(n), "") for n in range(MAX_ALERTS + 2))
    assert news(alerts[:MAX_ALERTS], alerts[2:]) == list(alerts[MAX_ALERTS:])
    assert news((), alerts[:2]) == list(alerts[:2])
    assert news(alerts, alerts) == []


@pytest.mark.parametrize(
    ("kind", "environ", "sequence"),
    [
        ("off", {}, ""),
        ("osc9", {}, "\x1b]9;eagle3-console: a, b^[]0,c^G\a"),
        ("osc777", {}, "\x1b]777;notify;eagle3-console;a, b^[]0,c^G\a"),
        ("osc9", {"TMUX": "/tmp/tmux"}, "\x1bPtmux;\x1b\x1b]9;eagle3-console: a, b^[]0,c^G\a\x1b\\"),
    ],
)
def test_a_notification_is_one_line_that_commands_nothing(kind: str, environ: dict[str, str], sequence: str) -> None:
    made = notification(kind, "a; b\x1b\x1b]0;c\a", environ)  # type: ignore[arg-type]
    assert made.count("\a") == sequence.count("\a")
    assert made.startswith(sequence[:24])
    assert ";" not in made.rpartition("eagle3-console")[2][1:]
    assert len(notification("osc9", "x" * 5_000, {})) < 300


async def test_a_headless_command_tells_the_alerts_that_a_screen_shows(receiver: Receiver) -> None:
    events: list[Event] = []
    async with alerting(events.append, "h", AlertSettings(webhook=receiver.url)) as emit:
        for event in (LIVE, arrived(READY, RUNNING), arrived(FAILED, RUNNING), arrived(FAILED, RUNNING)):
            emit(event)
        emit(AlertRaised(OOM))
    told = [event.alert.cause.partition(":")[0] for event in events if isinstance(event, AlertRaised)]
    assert told == ["server-failed", "server-failed"]
    assert [body["alert"].partition(":")[0] for body in receiver.bodies] == [
        "server failed (cuda_oom)",
        "server failed",
    ]


async def test_the_session_in_plain_lines_sends_them_too(receiver: Receiver) -> None:
    paused = dataclasses.replace(RUNNING, state=ExtractState.PAUSED, sentence="the dump directory is full")
    controller = ScriptedController([LIVE, arrived(READY, RUNNING), arrived(READY, paused)])
    wanted = AlertSettings(webhook=receiver.url)
    task = asyncio.create_task(follow(controller, TARGET, stream=io.StringIO(), alerts=wanted))
    await controller.played.wait()
    task.cancel()  # as ctrl+c does: what is to be posted is posted
    with pytest.raises(asyncio.CancelledError):
        await task
    assert receiver.bodies[0]["alert"] == "extraction paused: the dump directory is full"


def written_to_a_terminal(*words: str, **environ: str) -> tuple[bytes, int]:
    """What a command writes to a real pseudo-terminal, and its exit code."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "eagle3_console", *words],
        cwd=ROOT,
        env={**os.environ, "TMUX": "", "TERM": "xterm-256color", **environ},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):
        while data := os.read(master, 65536):
            seen += data
    os.close(master)
    return seen, process.wait()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings.path().parent.mkdir(parents=True)
    return settings.path()


def test_a_test_alert_goes_through_every_channel_that_is_set(own: Path, receiver: Receiver) -> None:
    own.write_text(f'[alerts]\ndesktop = "osc777"\nwebhook = "{receiver.url}"\nwebhook_from = "error"\n')
    seen, code = written_to_a_terminal("config", "test-alert")
    assert code == ExitCode.GOOD
    line = b"this machine: info: this is a test of the alerts"
    assert seen.startswith(b"\a\x1b]777;notify;eagle3-console;" + line + b"\a")
    assert seen.endswith(b"bell: rung\r\ndesktop: sent as osc777\r\nwebhook: posted\r\n")
    assert len(receiver.bodies) == 1
    seen, _ = written_to_a_terminal("config", "test-alert", TMUX="/tmp/x")
    assert b"\x1bPtmux;\x1b\x1b]777;notify;eagle3-console;" + line + b"\a\x1b\\" in seen


def test_a_test_alert_says_what_does_not_work(
    own: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.answers = [404]
    own.write_text(f'[alerts]\nwebhook = "{receiver.url}"\n')
    assert cli.main(["config", "test-alert"]) == ExitCode.NO_CONNECTION
    said = capsys.readouterr()
    assert said.out == "bell: not rung: there is no terminal here\nwebhook: not posted: it answered 404\n"
    own.write_text("[alerts]\nbell = false\n")
    assert cli.main(["config", "test-alert"]) == ExitCode.GOOD
    assert capsys.readouterr().out.startswith("No channel is set: see [alerts] in ")
