"""A stand-in for a patched SGLang server, only for faults that the real one cannot produce on demand.

It answers what the extraction asks and writes dumps of ones (row i of the file differs by its token ids only). What it does with a
request is decided by `behave(ids, attempt)`, which names one of `ACTS`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.protocol import ExtractSpec
from tests.extract.made import HIDDEN, states_bytes, write_dump
from tests.extract.quiet import QuietHandler, listening, serving

ACTS = (
    *(
        "good",
        "non-finite",
        "zero-row",
        "token-ids",
        "rows",
        "layers",
        "hidden-size",
        "dump-missing",
        "dump-error",
        "dump-unreadable",
    ),
    *("cached-tokens", "prompt-tokens", "timeout", "server-error", "refused", "drop"),
)
CONFIG = {
    "architectures": ["StandIn"],
    "num_hidden_layers": 8,
    "hidden_size": HIDDEN,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
Behave = Callable[[list[int], int], str]


class StandIn:
    """The running stand-in."""

    def __init__(self, work: Path, behave: Behave) -> None:
        self.model, self.dump_dir, self.behave = work / "model", work / "dumps", behave
        self.model.mkdir(parents=True)
        self.dump_dir.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        self.down = False
        """While set, every connection is broken."""
        self.key = ""
        """Where one is set, requests without it are refused, as SGLang's middleware does; it lets /health through."""
        self.prompts: list[list[int]] = []
        self.fill: Callable[[list[int], int], int] = lambda ids, attempt: 0x3F80
        """The bf16 value that a good dump is filled with."""
        self.dumped: Callable[[Path], None] = lambda folder: None
        """Told of every dump before it gets its name."""
        self.release = threading.Event()
        self.http = listening(_handler(self))
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def spec(self, data: Path, out: Path, **more: Any) -> ExtractSpec:
        """An extraction through it, without probes."""
        known: dict[str, Any] = {
            "server_url": self.url,
            "dump_dir": str(self.dump_dir),
            "model": str(self.model),
            "probe": False,
        }
        return ExtractSpec(str(data), str(out), **known, **more)

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/server_info":
            facts = {"max_total_num_tokens": 4000, "max_req_input_len": 3000, "chunked_prefill_size": 64}
            return 200, {"model_path": str(self.model), "version": "0.0", "disable_radix_cache": True, **facts}
        if path == "/v1/models":
            return 200, {"data": [{"max_model_len": 4096}]}
        return (200, {}) if path == "/health" else (404, {})

    def generate(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        """The answer to /generate; `None` breaks the connection."""
        rid, ids = body["rid"], body["input_ids"]
        self.prompts.append(ids)
        act = self.behave(ids, int(rid.rsplit("-", 1)[1]))
        assert act in ACTS
        if act == "drop":
            return None
        if act == "refused":
            return 400, {"error": {"message": "The input is longer than the model's context length"}}
        if act == "server-error":
            return 500, {"error": {"message": "CUDA error"}}
        if act == "timeout":
            self.release.wait(60)
        self._dump(act, rid, ids, self.fill(ids, int(rid.rsplit("-", 1)[1])))
        counted = len(ids) + (act == "prompt-tokens")
        return 200, {"meta_info": {"prompt_tokens": counted, "cached_tokens": 12 * (act == "cached-tokens")}}

    def _dump(self, act: str, rid: str, ids: list[int], fill: int) -> None:
        if act == "dump-missing":
            return
        folder = self.dump_dir / layout.folder_name(rid)
        if act == "dump-error":
            folder.mkdir()
            (folder / layout.ERROR_FILE).write_text(json.dumps({"rid": rid, "reason": "the writer broke"}))
            return
        states = {
            "non-finite": lambda: states_bytes(ids, fill=0x7FC0),
            "zero-row": lambda: states_bytes(ids, fill=0),
            "token-ids": lambda: states_bytes([*ids[:-1], ids[-1] ^ 1]),
            "rows": lambda: states_bytes(ids[1:]),
            "hidden-size": lambda: states_bytes(ids, hidden=HIDDEN * 2),
            "dump-unreadable": lambda: states_bytes(ids)[:-1],
        }.get(act, lambda: states_bytes(ids, fill=fill))()
        building = self.dump_dir / f".{rid}"
        write_dump(building, states, boundaries=(3, 5, 6) if act == "layers" else (2, 4, 5))
        self.dumped(building)
        building.rename(folder)


def _handler(standin: StandIn) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if not self._refused():
                self._say(None if standin.down else standin.get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.body())
            if self._refused():
                return
            if standin.down or self.path != "/generate":
                self._say(None if standin.down else (200, {}))
            else:
                self._say(standin.generate(body))

        def _refused(self) -> bool:
            right = f"Bearer {standin.key}" if standin.key else None
            refused = not standin.down and right not in (None, self.headers["Authorization"]) and self.path != "/health"
            if refused:
                self._say((401, {"error": "Unauthorized"}))
            return refused

        def _say(self, answer: tuple[int, Any] | None) -> None:
            if answer is None:
                self.hang_up()
            else:
                self.answer(answer[0], json.dumps(answer[1]).encode())

    return Handler


@contextmanager
def standin(work: Path, behave: Behave = lambda ids, attempt: "good") -> Iterator[StandIn]:
    """Run the stand-in."""
    server = StandIn(work, behave)
    with serving(server.http, server.release):
        yield server
