"""What a real server that somebody else started seldom is. A stand-in process plays it: it has a server's command line and
tells a server's settings, and computes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagle3_patch import layout
from eagle3_remote.box import identity
from eagle3_remote.extract.extraction import with_more
from eagle3_remote.protocol import ExtractSpec, Patched, PatchMarker
from eagle3_remote.rpc import Refused
from eagle3_remote.server import attach, foreign, foreigncalls
from eagle3_remote.server.serverinfo import extra_key_works, unfit_for_extra_key, unfit_settings
from tests.box.client import until
from tests.patch.servers import free_port

STAND_IN = """
import http.server, json, os, signal, subprocess, sys, time
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
def last_child(*words):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    open(os.environ["LATE"], "w").write(str(child.pid))
    time.sleep(1)
    os._exit(0)
if os.environ.get("LATE"):
    signal.signal(signal.SIGTERM, last_child)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status = 200 if self.path == os.environ.get("KNOWS", "/server_info") else 404
        status = int(os.environ.get("STATUS", status))
        body = os.environ.get("INFO", "{}").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
INFO = {"model_path": "/models/x", "version": "0.5.23", "tp_size": 2, "disable_radix_cache": True, "port": 1}
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    package = tmp_path / "lib" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(STAND_IN)
    running: list[subprocess.Popen[bytes]] = []

    def go(info: dict[str, object] | None = None, **env: str) -> subprocess.Popen[bytes]:
        port = str(free_port())
        path = os.pathsep.join([str(tmp_path / "lib"), env.pop("PYTHONPATH", "")])
        argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", "/models/x", "--port", port]
        given = {**os.environ, "INFO": json.dumps(INFO | (info or {})), "PYTHONPATH": path, **env}
        process = subprocess.Popen([*argv, "--api-key", "s3cret"], env=given, start_new_session=True)
        running.append(process)
        until(lambda: foreign.listening(process.pid))
        return process

    yield go
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def of(process: subprocess.Popen[bytes], home: Path) -> foreign.ForeignServer:
    return next(one for one in foreign.look(home) if one.pid == process.pid)


def test_a_server_without_the_patch_is_told_and_refused(start: Start, tmp_path: Path) -> None:
    process = start()
    one = of(process, tmp_path)
    assert (one.patched, one.answers, one.model, one.settings["tp_size"]) == (Patched.NO, True, "/models/x", "2")
    assert "without the patch" in one.sentence
    assert "s3cret" not in str(dataclasses.asdict(one))
    with pytest.raises(Refused, match="runs without the patch"):
        attach.others(tmp_path, ExtractSpec(data="/d", out="/o", server_url=one.url))


def test_an_old_server_answers_under_the_old_name(start: Start, tmp_path: Path) -> None:
    process = start({"version": "0.5.4.post3"}, KNOWS="/get_server_info")
    assert of(process, tmp_path).version == "0.5.4.post3"


@pytest.mark.parametrize(
    ("info", "env", "words"),
    [
        ({}, {"STATUS": "401"}, "asks for an API key"),
        ({}, {"STATUS": "500"}, "answered 500"),
        ({}, {"INFO": "<html>"}, "no SGLang server"),
        ({"speculative_algorithm": "EAGLE3"}, {}, "Speculative decoding is on"),
        ({"nnodes": 2}, {}, "runs on 2 machines"),
        ({}, {layout.ENV_RID_PREFIX: "mine-"}, "begins with 'mine-'"),
        ({}, {layout.ENV_LAYOUT: "pt"}, "dumps in the layout 'pt'"),
        ({"disable_radix_cache": False, "version": "0.5.9"}, {}, "SGLang 0.5.9 takes extra_key and does not use it"),
        ({"model_path": "org/name"}, {}, "which is no directory"),
        ({}, {}, "The model at /models/x cannot be used"),
    ],
)
def test_a_patched_server_that_is_not_fit(
    start: Start, tmp_path: Path, info: dict[str, object], env: dict[str, str], words: str
) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    patched = {layout.ENV_DUMP_DIR: str(dump), "PYTHONPATH": "/release/eagle3_patch/entry"}
    one = of(start(info, **patched, **env), tmp_path)
    assert one.patched is Patched.YES
    with pytest.raises(Refused, match=words):
        attach.others(tmp_path, ExtractSpec(data="/d", out="/o", server_url=one.url, extra_key=True))


def test_whose_environment_cannot_be_read_needs_the_dump_directory_named(start: Start, tmp_path: Path) -> None:
    process = start()
    (seen,) = [one for one in foreign.processes() if one.identity.pid == process.pid]
    hidden = foreign.describe(dataclasses.replace(seen, environ=None, ports=None))
    assert (hidden.patched, hidden.unfit) == (Patched.UNKNOWN, ())
    assert "cannot be seen by this user" in hidden.sentence
    far = foreign.describe(dataclasses.replace(seen, near=False))
    assert (far.url, far.answers) == ("", False)
    assert "network of its own" in far.unfit[0]


def test_stopping_ends_children_that_ignore_term_and_nothing_else(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreigncalls, "GRACE", 0.5)
    monkeypatch.setattr(foreigncalls, "TERM", 0.5)
    stubborn, other = start(STUBBORN="1"), start()
    leader = identity.identify(stubborn.pid)
    assert leader is not None
    family = [one.pid for one in foreigncalls.descendants(leader)]
    assert len(family) == 1
    calls = foreigncalls.ForeignCalls(tmp_path)
    calls.listing()
    report = calls.stop(stubborn.pid, socket.gethostname())
    assert report.stopped, report.sentence
    assert "was killed" in report.sentence
    assert not [stat for stat in identity.living() if stat.pid in (stubborn.pid, *family)]
    assert other.poll() is None


def test_stopping_ends_a_child_that_was_born_after_the_term_as_well(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreigncalls, "GRACE", 3.0)
    note = tmp_path / "late"
    process = start(LATE=str(note))
    calls = foreigncalls.ForeignCalls(tmp_path)
    calls.listing()
    report = calls.stop(process.pid, socket.gethostname())
    late = identity.identify(int(note.read_text()))
    if late is not None and identity.same_process(late):
        os.kill(late.pid, signal.SIGKILL)
        pytest.fail(f"its child lives on: {report.sentence}")
    assert report.stopped, report.sentence


def test_a_pid_that_was_given_to_another_process_since_is_not_stopped(start: Start, tmp_path: Path) -> None:
    process = start()
    calls = foreigncalls.ForeignCalls(tmp_path)
    (shown,) = [one for one in calls.listing() if one.pid == process.pid]
    earlier = dataclasses.replace(shown, start_time=shown.start_time - 1)
    foreign.remember(tmp_path, [earlier])
    with pytest.raises(Refused, match="is not the server any more"):
        calls.stop(process.pid, socket.gethostname())
    assert process.poll() is None
    (tmp_path / "foreign-shown.json").write_text('{"1": [1], "2": "x", "3": null, "4": {"a": 1}}')
    assert [foreign.remembered(tmp_path, pid) for pid in (1, 2, 3, 4, 5)] == [None] * 5


@pytest.mark.parametrize(
    ("version", "works"),
    [("0.5.4.post3", False), ("0.5.10.post1", False), ("0.5.11", True), ("0.5.23", True), ("", False), ("main", False)],
)
def test_from_which_version_on_an_extra_key_is_used(version: str, works: bool) -> None:
    assert extra_key_works(version) is works


def test_other_caches_are_not_trusted_with_a_key() -> None:
    assert unfit_for_extra_key({"enable_lmcache": False, "hicache_storage_backend": None}, "0.5.23") is None
    assert "LMCache" in (unfit_for_extra_key({"enable_lmcache": True}, "0.5.23") or "")
    assert unfit_settings({"tp_size": 8, "nnodes": 1, "pp_size": 1, "speculative_algorithm": None}) == []


def test_its_own_interpreter_is_found_by_a_bare_name_as_well(start: Start, tmp_path: Path) -> None:
    process = start(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    one = of(process, tmp_path)
    assert attach._interpreters(one) == [sys.executable]
    bare = dataclasses.replace(one, argv=(Path(sys.executable).name, *one.argv[1:]))
    assert attach._interpreters(bare) == [sys.executable]
    script = dataclasses.replace(one, argv=("/venv/bin/python3", "/venv/bin/sglang", "serve"))
    assert attach._interpreters(script) == ["/venv/bin/python3", "/venv/bin/python"]


def test_one_server_with_the_cache_on_among_several_gives_every_request_a_key() -> None:
    spec = ExtractSpec(data="/d", out="/o", server_url="http://127.0.0.1:1", dump_dir="/one")
    marker = PatchMarker("1", "0.5.23", "M", 8, 64, (2, 4, 5), "pre", 0, 1, True)
    off = attach.Fit("http://127.0.0.1:2", "/two", "/p", "/m", marker, None, False, "0.5.23")
    on = dataclasses.replace(off, url="http://127.0.0.1:3", dump_dir="/three", extra_key=True)
    assert not with_more(spec, [off]).extra_key
    both = with_more(spec, [off, on])
    assert both.extra_key
    assert [(one.url[-1], one.dump_dir) for one in both.servers] == [("2", "/two"), ("3", "/three")]


@pytest.mark.parametrize("url", ["http://localhost:5", "localhost:5", "http://127.0.0.1:5", "http://[::1]:5"])
def test_addresses_of_this_machine(url: str) -> None:
    host, port = attach._address(url)
    assert port == 5
    assert attach._is_here(host) or host == "::1"  # a machine without IPv6


@pytest.mark.parametrize("url", ["http://[::1", "[::1", "http://h:x", "https://h:1", "http://:5", "http://h:5/v1"])
def test_what_is_no_address_is_refused_in_a_sentence(tmp_path: Path, url: str) -> None:
    with pytest.raises(Refused, match="is not of the form"):
        attach.others(tmp_path, ExtractSpec(data="/d", out="/o", server_url=url))


@pytest.mark.parametrize("host", ["a" * 70, ".x", "no-such-machine.invalid"])
def test_a_name_that_cannot_be_one_is_no_address_of_this_machine(host: str) -> None:
    assert not attach._is_here(host)
