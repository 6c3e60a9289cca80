"""The probe finds what is wrong. A stand-in HTTP server plays the faults that a right SGLang and patch do not make."""

from __future__ import annotations

import http.server
import json
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_patch import layout
from eagle3_remote.protocol import PatchMarker, ProbeReport
from eagle3_remote.rpc import ServerFault
from eagle3_remote.server import probe

MARKER = PatchMarker("0.1", "0.5.23", "LlamaForCausalLM", 8, 4, (2, 4, 5), "pre", 0, 1, True)
VOCAB = 50


class Fault:
    """What the stand-in does with one request; the default is right."""

    def __init__(self) -> None:
        self.status = 200
        self.meta: dict[str, Any] = {}
        self.body: bytes | None = None
        self.dump: Callable[[Path, list[int]], None] = write_dump
        self.requests: list[dict[str, Any]] = []


def write_dump(folder: Path, sent: list[int], **wrong: Any) -> None:
    """A dump folder as layout.py says; `wrong` overrides facts."""
    folder.mkdir()
    rows, layers, hidden = wrong.get("rows", len(sent)), wrong.get("layers", 4), wrong.get("hidden", 4)
    tokens = wrong.get("ids", sent)
    states = b"\0" * (rows * layers * hidden * 2)
    raw = struct.pack(f"<{len(tokens)}q", *tokens)
    header = json.dumps(
        {
            "hidden_states": {"dtype": "BF16", "shape": [rows, layers, hidden], "data_offsets": [0, len(states)]},
            "token_ids": {
                "dtype": "I64",
                "shape": [len(tokens)],
                "data_offsets": [len(states), len(states) + len(raw)],
            },
        }
    ).encode()
    data = struct.pack("<Q", len(header)) + header + states + raw
    (folder / layout.STATES_FILE).write_bytes(data[: wrong.get("cut", len(data))])
    meta = {"tokens": wrong.get("tokens", rows), "boundaries": wrong.get("boundaries", [2, 4, 5])}
    (folder / layout.META_FILE).write_text(json.dumps(meta))
    (folder / layout.DONE_FILE).touch()


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def url(fault: Fault, dump: Path) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fault.requests.append(body)
            fault.dump(dump / layout.folder_name(body["rid"]), body["input_ids"])
            meta = {"prompt_tokens": len(body["input_ids"]), "cached_tokens": 0, **fault.meta}
            self.send_response(fault.status)
            self.end_headers()
            self.wfile.write(json.dumps({"meta_info": meta}).encode() if fault.body is None else fault.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def run(url: str, dump: Path) -> ProbeReport:
    return probe.run(url, dump, MARKER, VOCAB, 19)


def test_all_is_right(url: str, dump: Path, fault: Fault) -> None:
    report = run(url, dump)
    assert report == ProbeReport(
        True, 19, 19, 19, 0, 4, "Probe: 19 tokens sent, 19 rows dumped, 0 cached, 4 states a token."
    )
    assert list(dump.iterdir()) == []
    (request,) = fault.requests
    assert request["rid"].startswith(layout.RID_PREFIX)
    assert all(0 <= one < VOCAB for one in request["input_ids"])
    assert request["sampling_params"]["max_new_tokens"] == 1
    assert run(url, dump).ok
    assert fault.requests[0]["rid"] != fault.requests[1]["rid"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": 18}, "19 tokens were sent, the server counted 19, 18 rows were dumped"),
        ({"rows": 18, "tokens": 19}, "facts differ"),
        ({"layers": 3}, "3 states a token were dumped, 4 are configured"),
        ({"hidden": 8}, "facts differ"),
        ({"boundaries": [3, 5, 6]}, "facts differ"),
        ({"ids": [1] * 19}, "token ids are not the ones"),
        ({"ids": [1] * 18}, "token ids are not the ones"),
        ({"cut": -8}, "cut short"),
        ({"cut": 100}, "cannot be read"),
        ({"cut": 3}, "cannot be read"),
    ],
)
def test_wrong_dumps(url: str, dump: Path, fault: Fault, wrong: dict[str, Any], words: str) -> None:
    fault.dump = lambda folder, ids: write_dump(folder, ids, **wrong)
    report = run(url, dump)
    assert not report.ok
    assert words in report.sentence
    assert list(dump.iterdir()) == []


def test_cached_tokens_are_named_first(url: str, dump: Path, fault: Fault) -> None:
    fault.meta = {"cached_tokens": 12}
    fault.dump = lambda folder, ids: write_dump(folder, ids, rows=7)
    report = run(url, dump)
    assert (report.ok, report.cached, report.dumped) == (False, 12, 7)
    assert "12 of its tokens came from the radix cache" in report.sentence


def test_the_patch_gives_its_reason(url: str, dump: Path, fault: Fault) -> None:
    def refuse(folder: Path, ids: list[int]) -> None:
        folder.mkdir()
        (folder / layout.ERROR_FILE).write_text(json.dumps({"rid": "x", "reason": "no space left"}))

    fault.dump = refuse
    assert "no space left" in run(url, dump).sentence
    assert list(dump.iterdir()) == []


def test_no_dump_at_all(url: str, dump: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "DUMP_TIMEOUT", 0.2)
    fault.dump = lambda folder, ids: None
    report = run(url, dump)
    assert (report.ok, report.dumped) == (False, 0)
    assert "is the patch in the server?" in report.sentence


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b"no such rid", r"refused the probe request \(400\): no such rid"),
        (200, b"<html>", "something else"),
        (200, b"[]", "something else"),
        (200, b'{"meta_info": 3}', "without meta_info"),
    ],
)
def test_wrong_answers(url: str, dump: Path, fault: Fault, status: int, body: bytes, words: str) -> None:
    fault.status, fault.body = status, body
    with pytest.raises(ServerFault, match=words):
        run(url, dump)
    assert list(dump.iterdir()) == []


def test_nobody_answers(dump: Path) -> None:
    with pytest.raises(ServerFault, match=r"did not answer the probe request: .*refused"):
        probe.run("http://127.0.0.1:1", dump, MARKER, VOCAB, 19)
