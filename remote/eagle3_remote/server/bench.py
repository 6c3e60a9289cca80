"""Single-stream speed of the server that runs: decode and prefill tokens a second, kept in ``<home>/bench.jsonl``."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import secrets
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.box import doctor
from eagle3_remote.job import jobs
from eagle3_remote.protocol import (
    BenchReport,
    BenchRun,
    BenchSpec,
    ModelFact,
    Phase,
    ServerStatus,
    decode,
    encode,
)
from eagle3_remote.rpc import Refused, ServerFault
from eagle3_remote.server import attach
from eagle3_remote.server.health import opener, url_of

PROMPT = 32
"""Tokens of the prompt that is decoded from: short, so that attention over it costs next to nothing."""
ANSWER_TIMEOUT = 300.0
"""Seconds without a byte after which a measurement is given up."""
IDLE_WAIT = 10.0
"""Seconds that a measurement waits for the server to have nothing to do."""
KEPT_SHOWN = 50
RID = "bench-"
"""Not the run's prefix: the patch does not dump these."""


def measure(home: Path, spec: BenchSpec, look: Callable[[], ServerStatus]) -> BenchReport:
    """Measure our ready server and keep the result.

    Args:
        look: gives the server as it is now.

    Raises:
        Refused: none is ready, an extraction runs, it is busy with somebody else's requests, or the lengths do not fit.
        ServerFault: it did not answer as it should.
    """
    _no_extraction(home, "Nothing is measured while it does")
    server = _idle(look)
    if server.job is None or server.spec is None:
        raise Refused(f"No server of ours is ready to be measured: {server.sentence}")
    job = jobs.find(home, server.job.id)
    model = decode(ModelFact, doctor.model_fact(server.spec.model))
    if model.vocab_size <= 0:
        raise Refused(f"The vocabulary size of {server.spec.model} is not known: its config.json does not name it.")
    _check(spec, server)
    url = url_of(server.spec.host, server.spec.port)
    draw = random.Random(secrets.randbits(64))  # new prompts each time: a prefix cache has none of them

    def prompt(tokens: int) -> list[int]:
        return [draw.randrange(model.vocab_size) for _ in range(tokens)]

    decodes = [_decode_tps(url, prompt(PROMPT), spec.decode_tokens) for _ in range(spec.repeats + 1)][1:]
    prefills = [_prefill_tps(url, prompt(spec.prefill_tokens)) for _ in range(spec.repeats + 1)][1:]
    _no_extraction(home, "One began meanwhile, so that nothing was measured")
    leader = None if job is None else job.leader
    env = {} if leader is None else attach.environment_of(leader.pid)
    run = BenchRun(
        at=time.time(),
        model=server.spec.model,
        sglang_version=server.sglang_version,
        decode_tps=statistics.median(decodes),
        prefill_tps=statistics.median(prefills),
        decode_tokens=spec.decode_tokens,
        prefill_tokens=spec.prefill_tokens,
        decode_all=tuple(decodes),
        prefill_all=tuple(prefills),
        gpus=tuple(str(row["name"]) for row in doctor.gpus()),
        tp=server.spec.tp,
        argv=server.argv,
        nccl={name: value for name, value in sorted(env.items()) if name.startswith("NCCL_")},
        job=server.job.id,
    )
    earlier = kept(home)
    try:
        with open(path_of(home), "a", encoding="utf-8") as file:
            file.write(json.dumps(encode(run)) + "\n")
    except OSError as error:
        raise Refused(
            f"The server was measured (decode {run.decode_tps:.1f} tok/s, prefill {run.prefill_tps:.0f} tok/s), but "
            f"{path_of(home)} cannot be written: {error.strerror}."
        ) from error
    return BenchReport(run, tuple(earlier[-KEPT_SHOWN:]), str(path_of(home)))


def path_of(home: Path) -> Path:
    """Where measurements are kept."""
    return home / "bench.jsonl"


def kept(home: Path) -> list[BenchRun]:
    """Earlier measurements, oldest first; lines that cannot be read are passed over."""
    runs = []
    try:
        lines = path_of(home).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError):
            runs.append(decode(BenchRun, json.loads(line)))
    return runs


def _idle(look: Callable[[], ServerStatus]) -> ServerStatus:
    """The server once it has nothing to do; what it did a moment ago may be our own probe."""
    deadline = time.monotonic() + IDLE_WAIT
    while (server := look()).phase is Phase.BUSY and time.monotonic() < deadline:
        time.sleep(0.25)
    if server.phase is Phase.BUSY:
        raise Refused(
            f"The server was at work for {IDLE_WAIT:.0f} s: with somebody else's requests in it the numbers would be "
            "theirs as well. Measure when it is idle."
        )
    if server.phase is not Phase.READY:
        raise Refused(f"No server of ours is ready to be measured: {server.sentence}")
    return server


def _no_extraction(home: Path, what: str) -> None:
    for job in jobs.living(home, "extract"):
        raise Refused(f"Job {job.id} extracts through the server. {what}: wait for its end, or stop it first.")


def _check(spec: BenchSpec, server: ServerStatus) -> None:
    limit = min(server.log.context_len or 1 << 17, server.log.max_total_tokens or 1 << 17) - 8
    if not 2 <= spec.decode_tokens <= limit - PROMPT:
        raise Refused(f"{spec.decode_tokens} tokens cannot be decoded on this server: 2 to {limit - PROMPT} can.")
    if not 1 <= spec.prefill_tokens <= limit:
        raise Refused(f"A prompt of {spec.prefill_tokens} tokens does not fit this server: 1 to {limit} do.")
    if not 1 <= spec.repeats <= 20:
        raise Refused(f"{spec.repeats} repeats are not possible: 1 to 20 are.")


def _decode_tps(url: str, ids: list[int], tokens: int) -> float:
    """Tokens a second between the first and the last piece of one stream."""
    pieces = [(at, done) for at, done in _stream(url, ids, tokens)]
    (first, one), (last, all_of_them) = pieces[0], pieces[-1]
    if all_of_them != tokens or last <= first or all_of_them <= one:
        raise ServerFault(
            f"The server at {url} gave {all_of_them} of {tokens} tokens in {len(pieces)} pieces: that cannot be timed."
        )
    return (all_of_them - one) / (last - first)


def _prefill_tps(url: str, ids: list[int]) -> float:
    """Prompt tokens a second: from sending the prompt to its first new token."""
    begun = time.monotonic()
    pieces = list(_stream(url, ids, 1))
    return len(ids) / (pieces[0][0] - begun)


def _stream(url: str, ids: list[int], tokens: int) -> Iterator[tuple[float, int]]:
    """(when, tokens so far) of each piece of one streamed answer."""
    body = {
        "rid": f"{RID}{secrets.token_hex(6)}",
        "input_ids": ids,
        "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
        "stream": True,
    }
    assert not RID.startswith(layout.RID_PREFIX)
    request = urllib.request.Request(
        f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    seen = False
    try:
        with opener().open(request, timeout=ANSWER_TIMEOUT) as answer:
            for line in answer:
                if not line.startswith(b"data:") or b"[DONE]" in line:
                    continue
                meta = _meta(line, url)
                seen = True
                yield time.monotonic(), meta
    except urllib.error.HTTPError as error:
        said = error.read(500).decode("utf-8", "replace")
        raise ServerFault(f"The server at {url} refused the request ({error.code}): {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ServerFault(f"The server at {url} did not answer: {error}. See its log.") from error
    if not seen:
        raise ServerFault(f"The server at {url} ended its answer before the first token. See its log.")


def _meta(line: bytes, url: str) -> int:
    try:
        value: Any = json.loads(line[5:])
        return int(value["meta_info"]["completion_tokens"])
    except (ValueError, KeyError, TypeError) as error:
        said = line[:300].decode("utf-8", "replace")
        raise ServerFault(f"The server at {url} answered something else than SGLang's stream: {said}") from error
